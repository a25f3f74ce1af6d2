/* The decision: first rule that matches, else denied. Pure; runs in egress once per request. */
#include <stdio.h>
#include <string.h>

#include "policy/internal.h"
#include "util/hex.h"

static bool host_matches(const struct policy_rule *rule, const char *host)
{
    if (!rule->host)
        return false;
    if (!rule->is_wildcard)
        return strcmp(rule->host, host) == 0;
    size_t len = strlen(host);
    size_t suffix_len = strlen(rule->host); /* with its leading dot */
    return len > suffix_len && strcmp(host + len - suffix_len, rule->host) == 0;
}

static bool method_matches(const struct policy_rule *rule, const char *method)
{
    for (size_t i = 0; i < rule->methods.count; i++)
        if (strcmp(rule->methods.items[i], method) == 0)
            return true;
    return rule->methods.count == 0;
}

/* The character at *at as the most obliging server might read it: escapes decoded however often
 * they were escaped again, "\" as "/". Moves *at behind it. */
static int obliging_char(const char **at)
{
    const char *text = *at;
    int c = (unsigned char)*text++;
    if (c == '%') {
        while (text[0] == '2' && text[1] == '5')
            text += 2;
        int high = hex_digit(text[0]);
        int low = high < 0 ? -1 : hex_digit(text[1]);
        if (low >= 0) {
            c = high * 16 + low;
            text += 2;
        }
    }
    *at = text;
    return c == '\\' ? '/' : c;
}

bool policy_path_hides_dots(const char *path)
{
    size_t dots = 0;  /* of this segment */
    bool only = true; /* it holds nothing else so far */
    for (const char *at = path; *at;) {
        int c = obliging_char(&at);
        bool ends = c == '/' || c == ';' || c == '?' || c == '#' || c == '\0';
        if (ends && only && (dots == 1 || dots == 2))
            return true;
        if (c == '/') {
            dots = 0;
            only = true;
        } else if (c == '.') {
            dots++;
        } else {
            only = false;
        }
    }
    return only && (dots == 1 || dots == 2);
}

static enum policy_lack path_lack(const struct policy_rule *rule, const char *path)
{
    if (!rule->path)
        return POLICY_LACK_NONE;
    size_t len = strlen(rule->path);
    if (strncmp(path, rule->path, len) != 0 || (path[len] != '\0' && path[len] != '/'))
        return POLICY_LACK_PATH;
    return policy_path_hides_dots(path) ? POLICY_LACK_CLIMBS : POLICY_LACK_NONE;
}

enum policy_lack policy_rule_lack(const struct policy_rule *rule,
                                  const struct policy_request *request)
{
    if (!host_matches(rule, request->host))
        return POLICY_LACK_HOST;
    if (rule->plain_http == request->is_tls)
        return POLICY_LACK_PROTOCOL;
    if (rule->port != request->port)
        return POLICY_LACK_PORT;
    if (!method_matches(rule, request->method))
        return POLICY_LACK_METHOD;
    return path_lack(rule, request->path);
}

/* No rule matched. Over plain HTTP the text is the same for every host, unless some rule opens this
 * one, for other requests. */
static void deny(const struct policy *policy, const struct policy_request *request,
                 struct policy_verdict *ret)
{
    bool is_open = request->is_tls;
    for (size_t i = 0; i < policy->count && !is_open; i++)
        is_open = policy_rule_lack(&policy->rules[i], request) > POLICY_LACK_PORT;
    ret->decision = is_open ? POLICY_DENIED : POLICY_PLAIN_HTTP;
    snprintf(ret->reason, sizeof(ret->reason),
             is_open ? "%.253s is not reachable from this sandbox"
                     : "%.253s is reachable only over HTTPS",
             request->host);
}

void policy_decide(const struct policy *policy, const struct policy_request *request,
                   struct policy_verdict *ret)
{
    *ret = (struct policy_verdict){.decision = POLICY_DENIED};
    for (size_t i = 0; i < policy->count; i++) {
        const struct policy_rule *rule = &policy->rules[i];
        if (policy_rule_lack(rule, request) != POLICY_LACK_NONE)
            continue;
        ret->rule = rule;
        if (rule->inactive) {
            ret->decision = POLICY_INACTIVE;
            snprintf(ret->reason, sizeof(ret->reason), "rule %.100s is inactive: %.380s",
                     rule->name, rule->inactive);
        } else if (rule->has_git) {
            policy_git_decide(rule, request, ret);
        } else {
            ret->decision = POLICY_ALLOWED;
        }
        return;
    }
    deny(policy, request, ret);
}
