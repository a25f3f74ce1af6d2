/* A parsed policy: its life, and what egress asks of a rule. No I/O, no secret. */
#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "policy/internal.h"
#include "util/cleanup.h"

void policy_strings_free(struct policy_strings *strings)
{
    for (size_t i = 0; i < strings->count; i++)
        free(strings->items[i]);
    free(strings->items);
}

void policy_value_free(struct policy_value *value)
{
    for (size_t i = 0; i < value->count; i++) {
        free(value->parts[i].text);
        free(value->parts[i].basic_user);
    }
    free(value->parts);
    *value = (struct policy_value){0};
}

static void rule_free(struct policy_rule *rule)
{
    for (size_t i = 0; i < rule->set_count; i++) {
        free(rule->set[i].name);
        policy_value_free(&rule->set[i].value);
    }
    free(rule->set);
    policy_strings_free(&rule->methods);
    policy_strings_free(&rule->remove);
    policy_strings_free(&rule->git.repositories);
    policy_strings_free(&rule->git.branches);
    policy_strings_free(&rule->git.tags);
    free(rule->name);
    free(rule->host);
    free(rule->path);
    free(rule->upstream);
    free(rule->upstream_ca);
    free(rule->upstream_cert);
    free(rule->upstream_key);
    free(rule->inactive);
}

struct policy *policy_ref(struct policy *policy)
{
    policy->references++;
    return policy;
}

void policy_unref(struct policy *policy)
{
    if (!policy)
        return;
    assert(policy->references > 0);
    if (--policy->references > 0)
        return;
    for (size_t i = 0; i < policy->count; i++)
        rule_free(&policy->rules[i]);
    free(policy->rules);
    free(policy);
}

size_t policy_rule_count(const struct policy *policy)
{
    return policy->count;
}

const struct policy_rule *policy_rule_at(const struct policy *policy, size_t index)
{
    assert(index < policy->count);
    return &policy->rules[index];
}

const char *policy_rule_name(const struct policy_rule *rule)
{
    return rule->name;
}

const char *policy_rule_inactive(const struct policy_rule *rule)
{
    return rule->inactive;
}

void policy_rule_secrets(const struct policy_rule *rule, void (*found)(void *ctx, const char *name),
                         void *ctx)
{
    for (size_t i = 0; i < rule->set_count; i++) {
        const struct policy_value *value = &rule->set[i].value;
        for (size_t j = 0; j < value->count; j++)
            if (value->parts[j].is_secret)
                found(ctx, value->parts[j].text);
    }
    if (rule->upstream_key)
        found(ctx, rule->upstream_key);
}

uint16_t policy_rule_port(const struct policy_rule *rule)
{
    return rule->port;
}

bool policy_rule_is_plain(const struct policy_rule *rule)
{
    return rule->plain_http;
}

size_t policy_ports_of(const struct policy_rule *rules, size_t count,
                       struct policy_port ret[POLICY_PORTS_MAX])
{
    size_t found = 0;
    for (size_t i = 0; i < count && found <= POLICY_PORTS_MAX; i++) {
        uint16_t port = rules[i].port;
        bool is_known = port == POLICY_PORT_HTTP || port == POLICY_PORT_HTTPS;
        for (size_t j = 0; j < found && j < POLICY_PORTS_MAX; j++)
            is_known = is_known || ret[j].port == port;
        if (is_known)
            continue;
        if (found < POLICY_PORTS_MAX)
            ret[found] = (struct policy_port){port, !rules[i].plain_http};
        found++;
    }
    return found;
}

size_t policy_ports(const struct policy *policy, struct policy_port ret[POLICY_PORTS_MAX])
{
    return policy_ports_of(policy->rules, policy->count, ret);
}

/* As they may be told apart behind a server: `other` in lower case, with "-" alone. */
static bool name_is(const char *name, const char *other, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        unsigned char d = (unsigned char)other[i];
        if (d == '\0' || (isalnum(c) ? tolower(c) != d : isalnum(d)))
            return false;
    }
    return other[len] == '\0';
}

/* Headers by which servers and frameworks let a client override the request line or Host. */
static const struct {
    const char *name;
    enum { OVERRIDES_METHOD, OVERRIDES_PATH, OVERRIDES_HOST } what;
} overrides[] = {
    {"x-http-method-override", OVERRIDES_METHOD},
    {"x-http-method", OVERRIDES_METHOD},
    {"x-method-override", OVERRIDES_METHOD},
    {"x-original-method", OVERRIDES_METHOD},
    {"x-forwarded-method", OVERRIDES_METHOD},
    {"x-original-url", OVERRIDES_PATH},
    {"x-original-uri", OVERRIDES_PATH},
    {"x-rewrite-url", OVERRIDES_PATH},
    {"x-forwarded-uri", OVERRIDES_PATH},
    {"x-forwarded-path", OVERRIDES_PATH},
    {"x-forwarded-host", OVERRIDES_HOST},
    {"x-original-host", OVERRIDES_HOST},
    {"x-host", OVERRIDES_HOST},
    {"forwarded", OVERRIDES_HOST},
};

bool policy_rule_removes_header(const struct policy_rule *rule, const char *name, size_t len)
{
    for (size_t i = 0; i < rule->remove.count; i++)
        if (name_is(name, rule->remove.items[i], len))
            return true;
    for (size_t i = 0; i < rule->set_count; i++)
        if (name_is(name, rule->set[i].name, len))
            return true;
    for (size_t i = 0; i < ARRAY_LEN(overrides); i++)
        if (overrides[i].what == OVERRIDES_HOST && name_is(name, overrides[i].name, len))
            return true;
    return false;
}

bool policy_rule_refuses_header(const struct policy_rule *rule, const char *name, size_t len)
{
    if (policy_rule_removes_header(rule, name, len))
        return false;
    bool binds[] = {
        [OVERRIDES_METHOD] = rule->methods.count > 0 || rule->has_git,
        [OVERRIDES_PATH] = rule->path || rule->has_git,
        [OVERRIDES_HOST] = false,
    };
    for (size_t i = 0; i < ARRAY_LEN(overrides); i++)
        if (binds[overrides[i].what] && name_is(name, overrides[i].name, len))
            return true;
    return false;
}

const char *policy_rule_remove_name(const struct policy_rule *rule, size_t index)
{
    return index < rule->remove.count ? rule->remove.items[index] : NULL;
}

const char *policy_rule_ref(const struct policy_rule *rule, bool is_tag, size_t index)
{
    const struct policy_strings *list = is_tag ? &rule->git.tags : &rule->git.branches;
    return index < list->count ? list->items[index] : NULL;
}

size_t policy_rule_set_count(const struct policy_rule *rule)
{
    return rule->set_count;
}

const char *policy_rule_set_name(const struct policy_rule *rule, size_t index)
{
    assert(index < rule->set_count);
    return rule->set[index].name;
}

bool policy_rule_set_is_secret(const struct policy_rule *rule, size_t index)
{
    assert(index < rule->set_count);
    const struct policy_value *value = &rule->set[index].value;
    for (size_t i = 0; i < value->count; i++)
        if (value->parts[i].is_secret)
            return true;
    return false;
}

enum policy_usage policy_rule_usage(const struct policy_rule *rule)
{
    return rule->usage;
}

const char *policy_rule_upstream(const struct policy_rule *rule, uint16_t *ret_port)
{
    if (rule->upstream)
        *ret_port = rule->upstream_port;
    return rule->upstream;
}

const char *policy_rule_upstream_ca(const struct policy_rule *rule, size_t *ret_len)
{
    if (rule->upstream_ca)
        *ret_len = rule->upstream_ca_len;
    return rule->upstream_ca;
}

const char *policy_rule_upstream_cert(const struct policy_rule *rule, size_t *ret_len,
                                      const char **ret_key)
{
    if (!rule->upstream_cert)
        return NULL;
    *ret_len = rule->upstream_cert_len;
    *ret_key = rule->upstream_key;
    return rule->upstream_cert;
}
