/* policy_parse on any bytes: no crash; a policy that was read decides every request, and its values
 * never hold a line end. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "policy/policy.h"
#include "util/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static const char *variable(void *ctx, const char *name)
{
    (void)ctx;
    return name[0] == 'N' ? NULL : "value";
}

static const char *secret_lack(void *ctx, const char *name)
{
    (void)ctx;
    return name[0] == 'N' ? "" : name[0] == 'R' ? "it is refused" : NULL;
}

/* An include is the text itself once more, under another name. */
struct text {
    const char *data;
    size_t len;
    size_t problems;
};

static int file(void *ctx, const char *name, struct buf *ret)
{
    const struct text *text = ctx;
    if (name[0] != 'n' && strstr(name, ".json"))
        return buf_append(ret, text->data, text->len);
    return name[0] == 'n' ? -ENOENT : buf_append_string(ret, "-----BEGIN CERTIFICATE-----\n");
}

static void problem(void *ctx, const char *message)
{
    struct text *text = ctx;
    assert(strchr(message, ':'));
    text->problems++;
}

static const struct secret *secret(void *ctx, const char *name)
{
    (void)name;
    return ctx;
}

static void check_rule(const struct policy_rule *rule)
{
    struct secret bytes = {.data = (char[]){"bytes"}, .len = 5};
    assert(policy_rule_name(rule)[0]);
    for (size_t i = 0; i < policy_rule_set_count(rule); i++) {
        struct secret value = {0};
        if (policy_rule_set_value(rule, i, secret, &bytes, &value, NULL) == 0)
            assert(value.len == 0 ||
                   (!memchr(value.data, '\n', value.len) && !memchr(value.data, '\r', value.len)));
        secret_free(&value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const struct policy_request requests[] = {
        {"GET", "a.test", 443, "/", "", true, NULL},
        {"POST", "git.test", 443, "/acme/demo.git/git-upload-pack", "", true, "acme/demo"},
        {"GET", "a.test", 80, "/", "", false, NULL},
    };
    struct text text = {(const char *)data, len, 0};
    struct policy_env env = {.ctx = &text,
                             .variable = variable,
                             .secret_lack = secret_lack,
                             .file = file,
                             .problem = problem};
    struct policy *policy = NULL;
    struct err err = {0};
    if (policy_parse("fuzz.json", (const char *)data, len, &env, &policy, &err) < 0) {
        assert(!policy && strstr(err.message, ".json:") && text.problems > 0);
        return 0;
    }
    struct policy_port ports[POLICY_PORTS_MAX];
    assert(text.problems == 0 && policy_ports(policy, ports) <= POLICY_PORTS_MAX);
    for (size_t i = 0; i < policy_rule_count(policy); i++)
        check_rule(policy_rule_at(policy, i));
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        struct policy_verdict verdict;
        policy_decide(policy, &requests[i], &verdict);
        assert(verdict.decision != POLICY_ALLOWED ||
               policy_rule_is_plain(verdict.rule) == !requests[i].is_tls);
        assert(!strpbrk(verdict.reason, "\r\n"));
    }
    policy_unref(policy);
    return 0;
}
