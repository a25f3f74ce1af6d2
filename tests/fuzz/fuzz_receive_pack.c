/* The list of refs of a push from any bytes: no crash; read in pieces it is what it is as a whole;
 * what is allowed holds a matching ref in each line, and what is refused has a report. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "policy/policy.h"
#include "util/cleanup.h"
#include "util/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static const char *no_variable(void *ctx, const char *name)
{
    (void)ctx, (void)name;
    return NULL;
}

static int no_file(void *ctx, const char *name, struct buf *ret)
{
    (void)ctx, (void)name, (void)ret;
    return -ENOENT;
}

static struct policy *policy_make(void)
{
    static const char text[] = "{\"rules\": [{\"host\": \"a.test\", \"git\": {\"push\": true, "
                               "\"branches\": [\"a*\", \"b/c\"], \"tags\": [\"v*1\"]}}]}";
    const struct policy_env env = {
        .variable = no_variable, .secret_lack = no_variable, .file = no_file};
    struct policy *policy = NULL;
    int result = policy_parse("fuzz.json", text, strlen(text), &env, &policy, NULL);
    assert(result == 0);
    return policy;
}

/* Every line of an allowed list but "shallow" must name one of the rule's refs. */
static void check_allowed(const struct policy_push *push, const char *body)
{
    size_t refs = 0;
    for (size_t i = 0; i + 11 <= push->read; i++)
        refs += memcmp(body + i, "refs/heads/", 11) == 0 || memcmp(body + i, "refs/tags/", 10) == 0;
    assert(refs >= push->commands);
    assert(push->read >= 4 && memcmp(body + push->read - 4, "0000", 4) == 0);
}

static void check_report(const struct policy_push *push, const struct policy_rule *rule,
                         const char *body)
{
    cleanup_buf struct buf report = BUF_INIT(2 * LIMIT_POLICY_PUSH_REPORT_BYTES);
    int result = policy_push_report(push, rule, body, &report);
    if (push->state != POLICY_PUSH_REFUSED) {
        assert(result == -EINVAL && report.len == 0);
        return;
    }
    assert(result == 0 || result == -EINVAL);
    assert(result < 0 || (report.len > 8 && strcmp(report.data + report.len - 4, "0000") == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct policy *policy; /* kept for the next input, and seen by the leak checker */
    const char *body = (const char *)data + 1;
    struct policy_push whole = {0};
    struct policy_push pieces = {0};
    if (len == 0)
        return 0;
    if (!policy)
        policy = policy_make();
    const struct policy_rule *rule = policy_rule_at(policy, 0);
    size_t piece = data[0] % 64U + 1;
    len--;
    policy_push_read(&whole, rule, body, len, true);
    assert(whole.state != POLICY_PUSH_MORE && whole.read <= len);
    assert((whole.state == POLICY_PUSH_ALLOWED) == !whole.reason[0]);
    for (size_t at = 0; pieces.state == POLICY_PUSH_MORE;) {
        at = len - at < piece ? len : at + piece;
        policy_push_read(&pieces, rule, body, at, at == len);
    }
    assert(whole.state == pieces.state && whole.read == pieces.read);
    assert(strcmp(whole.reason, pieces.reason) == 0);
    if (whole.state == POLICY_PUSH_ALLOWED)
        check_allowed(&whole, body);
    check_report(&whole, rule, body);
    return 0;
}
