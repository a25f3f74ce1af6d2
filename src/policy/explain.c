/* What people are told about a rule: why it does not match a request. Pure; for `paddock policy
 * explain`. */
#include "policy/internal.h"

static int append_host(const struct policy_rule *rule, struct buf *ret)
{
    if (!rule->host)
        return buf_append_string(ret, "its host names a variable that is not set");
    return buf_appendf(ret, "it is for another host: %s%s", rule->is_wildcard ? "*" : "",
                       rule->host);
}

static int append_methods(const struct policy_rule *rule, struct buf *ret)
{
    int result = buf_append_string(ret, "it is for other methods:");
    for (size_t i = 0; result == 0 && i < rule->methods.count; i++)
        result = buf_appendf(ret, "%s %s", i ? "," : "", rule->methods.items[i]);
    return result;
}

int policy_rule_explain(const struct policy_rule *rule, enum policy_lack lack, struct buf *ret)
{
    switch (lack) {
    case POLICY_LACK_HOST:
        return append_host(rule, ret);
    case POLICY_LACK_PORT:
        return buf_appendf(ret, "it is for port %u", rule->port);
    case POLICY_LACK_PROTOCOL:
        return buf_appendf(ret, "it is for %s alone", rule->plain_http ? "plain HTTP" : "HTTPS");
    case POLICY_LACK_METHOD:
        return append_methods(rule, ret);
    case POLICY_LACK_PATH:
        return buf_appendf(ret, "it is for %s, or below it", rule->path[0] ? rule->path : "/");
    case POLICY_LACK_CLIMBS:
        return buf_append_string(ret, "a server could take the path for one that climbs out of its "
                                      "own");
    case POLICY_LACK_NONE:
        return buf_append_string(ret, "it matches");
    }
    return 0;
}
