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

/* The first problem is the error; the reading goes on to find the others. */
static int policy_problem(struct policy_parser *parser, const char *place, const char *reason)
{
    struct err problem = {0};
    err_set(&problem, EINVAL, "%s:%s%s", parser->file, place, reason);
    if (parser->problems++ == 0)
        err_set(parser->err, EINVAL, "%s", problem.message);
    if (parser->env->problem)
        parser->env->problem(parser->env->ctx, problem.message);
    return -EINVAL;
}

int policy_refuse(struct policy_parser *parser, const struct json *at, const char *format, ...)
{
    char reason[512];
    char place[32];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof(reason), format, args);
    va_end(args);
    snprintf(place, sizeof(place), "%u:%u: ", json_line(at), json_column(at));
    return policy_problem(parser, place, reason);
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

static int read_member(struct policy_parser *parser, const struct json *value, const char *name,
                       const struct policy_key *keys, size_t count, struct policy_rule *rule)
{
    const struct policy_key *key = NULL;
    for (size_t i = 0; i < count && !key; i++)
        if (strcmp(keys[i].name, name) == 0)
            key = &keys[i];
    if (!key)
        return refuse_key(parser, value, name, keys, count);
    if (json_type(value) != key->type)
        return policy_refuse(parser, value, "\"%s\" must be %s, not %s", name,
                             json_type_name(key->type), json_type_name(json_type(value)));
    return key->read(parser, rule, value);
}

int policy_read_object(struct policy_parser *parser, const struct json *json,
                       const struct policy_key *keys, size_t count, struct policy_rule *rule)
{
    int result = 0;
    for (size_t i = 0; i < json_count(json); i++)
        if (read_member(parser, json_at(json, i), json_key_at(json, i), keys, count, rule) < 0)
            result = -EINVAL;
    return result;
}

/* The rule has a name and a port, and can be freed, whatever comes out. */
static int read_rule(struct policy_parser *parser, const struct json *json,
                     struct policy_rule *rule, size_t number)
{
    int result = 0;
    buf_clear(&parser->missing);
    rule->port = POLICY_PORT_HTTPS;
    if (asprintf(&rule->name, "rule %zu", number) < 0) {
        rule->name = NULL;
        return policy_refuse(parser, json, "out of memory");
    }
    if (json_type(json) != JSON_OBJECT)
        return policy_refuse(parser, json, "a rule must be an object, not %s",
                             json_type_name(json_type(json)));
    if (policy_read_object(parser, json, policy_rule_keys, policy_rule_key_count, rule) < 0)
        result = -EINVAL;
    if (policy_rule_check(parser, rule, json) < 0)
        result = -EINVAL;
    if (parser->missing.len)
        rule->inactive = TAKE_PTR(parser->missing.data);
    buf_free(&parser->missing);
    return result;
}

/* True when a rule before this one has its name; all of them have one by now. */
static bool name_is_taken(const struct policy *policy, size_t index)
{
    const char *name = policy->rules[index].name;
    for (size_t i = 0; i < index; i++)
        if (strcmp(policy->rules[i].name, name) == 0)
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

/* The rules of one file, behind those that the policy has. */
static int read_rules(struct policy_parser *parser, const struct json *list, struct policy *policy)
{
    size_t count = json_count(list);
    int result = 0;
    if (count == 0)
        return 0;
    struct policy_rule *grown =
        reallocarray(policy->rules, policy->count + count, sizeof(*policy->rules));
    if (!grown)
        return policy_refuse(parser, list, "out of memory");
    policy->rules = grown;
    for (size_t i = 0; i < count; i++) {
        const struct json *json = json_at(list, i);
        size_t index = policy->count++;
        policy->rules[index] = (struct policy_rule){0};
        if (read_rule(parser, json, &policy->rules[index], index + 1) < 0)
            result = -EINVAL;
        if (!policy->rules[index].name)
            return -EINVAL; /* no memory */
        if (name_is_taken(policy, index))
            result = policy_refuse(parser, json, "two rules are named \"%s\"",
                                   policy->rules[index].name);
        if (check_port(parser, policy, index, json) < 0)
            result = -EINVAL;
    }
    return result;
}

/* ------------------------------------------------------------------- files beside the policy */

static int read_text(struct policy_parser *parser, const char *data, size_t len,
                     struct policy *policy);

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Whether the file may be read here; *ret_known: it was, so that its rules count already. */
static int include_check(struct policy_parser *parser, const struct json *value, const char *name,
                         bool *ret_known)
{
    size_t depth = 0;
    size_t len = name ? strlen(name) : 0;
    if (len < 6 || len > 255 || strchr(name, '/') || name[0] == '.' ||
        strcmp(name + len - 5, ".json") != 0)
        return policy_refuse(parser, value,
                             "an include is the name of a *.json file beside the "
                             "policy");
    for (const struct policy_frame *frame = parser->frame; frame; frame = frame->includer) {
        depth++;
        if (strcmp(base_name(frame->file), name) == 0)
            return policy_refuse(parser, value, "%s is included by itself%s", name,
                                 frame == parser->frame ? "" : ", by way of others");
    }
    if (depth > POLICY_INCLUDE_DEPTH)
        return policy_refuse(parser, value, "%s: included more than %d files deep", name,
                             POLICY_INCLUDE_DEPTH);
    for (size_t i = 0; i < parser->included.count && !*ret_known; i++)
        *ret_known = strcmp(parser->included.items[i], name) == 0;
    return 0;
}

static int include_note(struct policy_parser *parser, const char *name)
{
    struct policy_strings *list = &parser->included;
    char **grown = reallocarray(list->items, list->count + 1, sizeof(*list->items));
    if (!grown)
        return -ENOMEM;
    list->items = grown;
    list->items[list->count] = strdup(name);
    return list->items[list->count] ? (int)(list->count++, 0) : -ENOMEM;
}

/* In messages the file lies where the policy does. */
static int include_read(struct policy_parser *parser, const struct json *value,
                        struct policy *policy)
{
    const char *name = json_text(value);
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    cleanup_free char *path = NULL;
    bool is_known = false;
    if (include_check(parser, value, name, &is_known) < 0)
        return -EINVAL;
    if (is_known)
        return 0;
    int result = parser->env->file(parser->env->ctx, name, &text);
    if (result < 0)
        return policy_refuse(parser, value, "%s beside the policy: %s", name, strerror(-result));
    const char *file = parser->file;
    int folder_len = (int)(base_name(file) - file);
    if (include_note(parser, name) < 0 || asprintf(&path, "%.*s%s", folder_len, file, name) < 0)
        return policy_refuse(parser, value, "out of memory");
    struct policy_frame frame = {path, parser->frame};
    parser->file = path;
    parser->frame = &frame;
    result = read_text(parser, buf_text(&text), text.len, policy);
    parser->frame = frame.includer;
    parser->file = file;
    return result;
}

static int read_includes(struct policy_parser *parser, const struct json *list,
                         struct policy *policy)
{
    int result = 0;
    for (size_t i = 0; i < json_count(list); i++)
        if (include_read(parser, json_at(list, i), policy) < 0)
            result = -EINVAL;
    return result;
}

/* ----------------------------------------------------------------------------------- the file */

static int read_document(struct policy_parser *parser, const struct json *json,
                         struct policy *policy)
{
    static const struct policy_key keys[] = {{"rules", JSON_ARRAY, NULL},
                                             {"include", JSON_ARRAY, NULL}};
    int result = 0;
    if (json_type(json) != JSON_OBJECT)
        return policy_refuse(parser, json, "a policy must be an object, not %s",
                             json_type_name(json_type(json)));
    for (size_t i = 0; i < json_count(json); i++)
        if (strcmp(json_key_at(json, i), "rules") != 0 &&
            strcmp(json_key_at(json, i), "include") != 0)
            result =
                refuse_key(parser, json_at(json, i), json_key_at(json, i), keys, ARRAY_LEN(keys));
    const struct json *rules = json_get(json, "rules");
    const struct json *include = json_get(json, "include");
    if (include && json_type(include) != JSON_ARRAY)
        result = policy_refuse(parser, include, "\"include\" must be an array of names of files");
    if (json_type(rules) != JSON_ARRAY && (rules || !include))
        return policy_refuse(parser, rules ? rules : json,
                             "a policy must have \"rules\", an array");
    if (read_rules(parser, rules, policy) < 0)
        result = -EINVAL;
    if (json_type(include) == JSON_ARRAY && read_includes(parser, include, policy) < 0)
        result = -EINVAL;
    return result;
}

static int read_text(struct policy_parser *parser, const char *data, size_t len,
                     struct policy *policy)
{
    cleanup_json struct json *json = NULL;
    struct err inner = {0};
    if (len > (size_t)LIMIT_CONFIG_BYTES)
        return policy_problem(parser, "1:1: ", "larger than a policy may be (1 MiB)");
    int result = json_parse(data, len, JSON_COMMENTS, &json, &inner);
    if (result < 0)
        return policy_problem(parser, "", inner.message);
    return read_document(parser, json, policy);
}

int policy_parse(const char *file, const char *data, size_t len, const struct policy_env *env,
                 struct policy **ret, struct err *err)
{
    struct policy *policy = calloc(1, sizeof(*policy));
    if (!policy)
        return err_set(err, ENOMEM, "out of memory");
    policy->references = 1;
    struct policy_frame frame = {file, NULL};
    struct policy_parser parser = {.file = file,
                                   .env = env,
                                   .err = err,
                                   .frame = &frame,
                                   .missing = BUF_INIT(LIMIT_POLICY_REASON_BYTES)};
    int result = read_text(&parser, data, len, policy);
    buf_free(&parser.missing);
    policy_strings_free(&parser.included);
    if (result < 0) {
        policy_unref(policy);
        return result;
    }
    *ret = policy;
    return 0;
}
