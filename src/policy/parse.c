/* A policy's text into struct policy. Pure: no I/O. A text that is refused leaves nothing behind;
 * the policy in force is the caller's to keep. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/internal.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "util/near.h"

int policy_refuse(struct policy_parser *parser, const struct json *at, const char *format, ...)
{
    char reason[512];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof(reason), format, args);
    va_end(args);
    return err_set(parser->err, EINVAL, "%s:%u:%u: %s", parser->file, json_line(at),
                   json_column(at), reason);
}

static int refuse_key(struct policy_parser *parser, const struct json *at, const char *key,
                      const struct policy_key *keys, size_t count)
{
    struct near near = {.word = key};
    for (size_t i = 0; i < count; i++)
        near_consider(&near, keys[i].name);
    if (near.best)
        return policy_refuse(parser, at, "unknown key \"%.80s\": did you mean \"%s\"?", key,
                             near.best);
    return policy_refuse(parser, at, "unknown key \"%.80s\"", key);
}

int policy_read_object(struct policy_parser *parser, const struct json *json,
                       const struct policy_key *keys, size_t count, struct policy_rule *rule)
{
    for (size_t i = 0; i < json_count(json); i++) {
        const struct json *value = json_at(json, i);
        const char *name = json_key_at(json, i);
        const struct policy_key *key = NULL;
        for (size_t j = 0; j < count && !key; j++)
            if (strcmp(keys[j].name, name) == 0)
                key = &keys[j];
        if (!key)
            return refuse_key(parser, value, name, keys, count);
        if (json_type(value) != key->type)
            return policy_refuse(parser, value, "\"%s\" must be %s, not %s", name,
                                 json_type_name(key->type), json_type_name(json_type(value)));
        int result = key->read(parser, rule, value);
        if (result < 0)
            return result;
    }
    return 0;
}

static int read_rule(struct policy_parser *parser, const struct json *json,
                     struct policy_rule *rule, size_t number)
{
    buf_clear(&parser->missing);
    if (json_type(json) != JSON_OBJECT)
        return policy_refuse(parser, json, "a rule must be an object, not %s",
                             json_type_name(json_type(json)));
    if (policy_read_object(parser, json, policy_rule_keys, policy_rule_key_count, rule) < 0 ||
        policy_rule_check(parser, rule, json) < 0)
        return -EINVAL;
    if (!rule->name && asprintf(&rule->name, "rule %zu", number) < 0) {
        rule->name = NULL;
        return policy_refuse(parser, json, "out of memory");
    }
    if (parser->missing.len)
        rule->inactive = TAKE_PTR(parser->missing.data);
    buf_free(&parser->missing);
    return 0;
}

/* True when a rule before this one has its name; all of them have one by now. */
static bool name_is_taken(const struct policy *policy, size_t index)
{
    const char *name = policy->rules[index].name;
    for (size_t i = 0; name && i < index; i++)
        if (policy->rules[i].name && strcmp(policy->rules[i].name, name) == 0)
            return true;
    return false;
}

/* A port speaks TLS or plain HTTP in the whole policy: which, its listener must know before the
 * first byte. */
static int check_port(struct policy_parser *parser, const struct policy *policy, size_t index,
                      const struct json *json)
{
    const struct policy_rule *rule = &policy->rules[index];
    const struct json *at = json_get(json, "port");
    struct policy_port ports[POLICY_PORTS_MAX];
    at = at ? at : json_get(json, "plain_http") ? json_get(json, "plain_http") : json;
    if (rule->port == (rule->plain_http ? POLICY_PORT_HTTPS : POLICY_PORT_HTTP))
        return policy_refuse(parser, at,
                             rule->plain_http ? "port 443 speaks TLS alone"
                                              : "port 80 speaks plain HTTP alone: it needs "
                                                "\"plain_http\": true");
    for (size_t i = 0; i < index; i++)
        if (policy->rules[i].port == rule->port && policy->rules[i].plain_http != rule->plain_http)
            return policy_refuse(parser, at,
                                 "port %u speaks either TLS or plain HTTP, and rule \"%s\" has it "
                                 "for %s",
                                 rule->port, policy->rules[i].name,
                                 rule->plain_http ? "TLS" : "plain HTTP");
    if (policy_ports_of(policy->rules, index + 1, ports) > POLICY_PORTS_MAX)
        return policy_refuse(parser, at, "a policy has at most %d ports beside 80 and 443",
                             POLICY_PORTS_MAX);
    return 0;
}

static int read_rules(struct policy_parser *parser, const struct json *list, struct policy *policy)
{
    size_t count = json_count(list);
    policy->rules = calloc(count ? count : 1, sizeof(*policy->rules));
    if (!policy->rules)
        return policy_refuse(parser, list, "out of memory");
    policy->count = count;
    for (size_t i = 0; i < count; i++) {
        int result = read_rule(parser, json_at(list, i), &policy->rules[i], i + 1);
        if (result < 0)
            return result;
        if (name_is_taken(policy, i))
            return policy_refuse(parser, json_at(list, i), "two rules are named \"%s\"",
                                 policy->rules[i].name);
        if (check_port(parser, policy, i, json_at(list, i)) < 0)
            return -EINVAL;
    }
    return 0;
}

/* The document itself has one key. */
static int read_document(struct policy_parser *parser, const struct json *json,
                         struct policy *policy)
{
    static const struct policy_key keys[] = {{"rules", JSON_ARRAY, NULL}};
    if (json_type(json) != JSON_OBJECT)
        return policy_refuse(parser, json, "a policy must be an object, not %s",
                             json_type_name(json_type(json)));
    for (size_t i = 0; i < json_count(json); i++)
        if (strcmp(json_key_at(json, i), "rules") != 0)
            return refuse_key(parser, json_at(json, i), json_key_at(json, i), keys,
                              ARRAY_LEN(keys));
    const struct json *rules = json_get(json, "rules");
    if (json_type(rules) != JSON_ARRAY)
        return policy_refuse(parser, rules ? rules : json,
                             "a policy must have \"rules\", an array");
    return read_rules(parser, rules, policy);
}

int policy_parse(const char *file, const char *data, size_t len, const struct policy_env *env,
                 struct policy **ret, struct err *err)
{
    cleanup_json struct json *json = NULL;
    struct err inner = {0};
    if (len > (size_t)LIMIT_CONFIG_BYTES)
        return err_set(err, EINVAL, "%s:1:1: larger than %d bytes", file, LIMIT_CONFIG_BYTES);
    int result = json_parse(data, len, JSON_COMMENTS, &json, &inner);
    if (result < 0)
        return err_set(err, -result, "%s:%s", file, inner.message);
    struct policy *policy = calloc(1, sizeof(*policy));
    if (!policy)
        return err_set(err, ENOMEM, "out of memory");
    policy->references = 1;
    struct policy_parser parser = {
        .file = file, .env = env, .err = err, .missing = BUF_INIT(LIMIT_POLICY_REASON_BYTES)};
    result = read_document(&parser, json, policy);
    buf_free(&parser.missing);
    if (result < 0) {
        policy_unref(policy);
        return result;
    }
    *ret = policy;
    return 0;
}
