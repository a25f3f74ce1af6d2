/* A parsed policy: its life, and what egress asks of a rule. No I/O; the only secrets seen here
 * pass through policy_rule_set_value into the caller's struct secret. */
#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "policy/internal.h"
#include "util/cleanup.h"

static void strings_free(struct policy_strings *strings)
{
    for (size_t i = 0; i < strings->count; i++)
        free(strings->items[i]);
    free(strings->items);
}

void policy_value_free(struct policy_value *value)
{
    for (size_t i = 0; i < value->count; i++)
        free(value->parts[i].text);
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
    strings_free(&rule->methods);
    strings_free(&rule->remove);
    strings_free(&rule->git.repositories);
    free(rule->name);
    free(rule->host);
    free(rule->path);
    free(rule->upstream);
    free(rule->upstream_ca);
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

size_t policy_rule_set_count(const struct policy_rule *rule)
{
    return rule->set_count;
}

const char *policy_rule_set_name(const struct policy_rule *rule, size_t index)
{
    assert(index < rule->set_count);
    return rule->set[index].name;
}

static bool is_header_text(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)text[i] < 0x20 && text[i] != '\t') || text[i] == 0x7f)
            return false;
    return true;
}

int policy_rule_set_value(const struct policy_rule *rule, size_t index,
                          const struct secret *(*secret)(void *ctx, const char *name), void *ctx,
                          struct secret *ret, struct err *err)
{
    assert(index < rule->set_count);
    const struct policy_header *header = &rule->set[index];
    struct secret value __attribute__((cleanup(secret_free))) = {0};
    for (size_t i = 0; i < header->value.count; i++) {
        const struct policy_part *part = &header->value.parts[i];
        const char *text = part->text;
        size_t len = strlen(text);
        if (part->is_secret) {
            const struct secret *bytes = secret(ctx, part->text);
            if (!bytes)
                return err_set(err, ENOENT, "secret %s is not set", part->text);
            text = bytes->data;
            len = bytes->len;
        }
        if (!is_header_text(text, len))
            return err_set(err, EINVAL, "the value of %s would hold a control character%s%s",
                           header->name, part->is_secret ? ", from secret " : "",
                           part->is_secret ? part->text : "");
        if (secret_append(&value, text, len) < 0)
            return err_set(err, ENOMEM, "out of memory");
    }
    secret_free(ret);
    *ret = value;
    value = (struct secret){0};
    return 0;
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
