/* The keys of a rule, one reader each, and the table of them; those of "git" and of the upstream
 * are in fields_git.c and fields_upstream.c. Pure. */
#include <stdlib.h>
#include <string.h>

#include "policy/internal.h"
#include "util/cleanup.h"
#include "util/limits.h"

static int read_name(struct policy_parser *parser, struct policy_rule *rule,
                     const struct json *value)
{
    const char *text = json_text(value);
    size_t len = text ? strlen(text) : 0;
    if (len == 0 || len > LIMIT_POLICY_NAME_BYTES)
        return policy_refuse(parser, value, "a rule's name has 1 to %d characters",
                             LIMIT_POLICY_NAME_BYTES);
    for (size_t i = 0; i < len; i++)
        if (text[i] < 0x20 || text[i] > 0x7e)
            return policy_refuse(parser, value, "a rule's name is printable ASCII");
    free(rule->name);
    rule->name = strdup(text);
    return rule->name ? 0 : policy_refuse(parser, value, "out of memory");
}

/* "*.com" and "*.co.uk" would allow everybody who can register a name there. */
static bool is_registry(const char *base)
{
    static const char *const second[] = {"ac",  "co", "com", "edu", "go", "gov",
                                         "mil", "ne", "net", "nom", "or", "org"};
    const char *dot = strchr(base, '.');
    if (!dot)
        return true;
    if (strlen(dot + 1) != 2)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(second); i++)
        if (strlen(second[i]) == (size_t)(dot - base) &&
            strncmp(base, second[i], strlen(second[i])) == 0)
            return true;
    return false;
}

static int host_set(struct policy_parser *parser, struct policy_rule *rule,
                    const struct json *value, const char *text)
{
    char host[POLICY_HOST_MAX + 1] = ".";
    uint16_t port;
    struct err inner = {0};
    rule->is_wildcard = strncmp(text, "*.", 2) == 0;
    const char *name = rule->is_wildcard ? text + 2 : text;
    if (strstr(name, "://"))
        return policy_refuse(parser, value, "a host has no scheme: write the name alone");
    if (strchr(name, '*'))
        return policy_refuse(
            parser, value, "\"*\" stands only for whole labels in front, as in \"*.example.org\"");
    if (strchr(name, ':') && !strchr(name, '['))
        return policy_refuse(parser, value, "a host has no port: it stands in the rule's \"port\"");
    if (policy_canonical_host(name, strlen(name), 443, host + 1, &port, &inner) < 0)
        return policy_refuse(parser, value, "%s", inner.message);
    if (rule->is_wildcard && is_registry(host + 1))
        return policy_refuse(parser, value, "\"%s\" would allow everybody below \"%s\"", text,
                             host + 1);
    rule->host = strdup(rule->is_wildcard ? host : host + 1);
    return rule->host ? 0 : policy_refuse(parser, value, "out of memory");
}

static int read_host(struct policy_parser *parser, struct policy_rule *rule,
                     const struct json *value)
{
    cleanup_free char *text = NULL;
    if (policy_expand_text(parser, value, &text) < 0)
        return -EINVAL;
    return text ? host_set(parser, rule, value, text) : 0;
}

int policy_read_strings(struct policy_parser *parser, const struct json *list,
                        int (*check)(struct policy_parser *parser, const struct json *value,
                                     char *text),
                        struct policy_strings *ret)
{
    size_t count = json_count(list);
    int result = 0;
    if (count == 0)
        return policy_refuse(parser, list, "the list is empty: leave the key out instead");
    ret->items = calloc(count, sizeof(*ret->items));
    if (!ret->items)
        return policy_refuse(parser, list, "out of memory");
    for (size_t i = 0; i < count; i++) {
        char *text = NULL;
        if (policy_expand_text(parser, json_at(list, i), &text) < 0)
            result = -EINVAL;
        if (!text)
            continue;
        ret->items[ret->count++] = text;
        if (check(parser, json_at(list, i), text) < 0)
            result = -EINVAL;
    }
    return result;
}

static int read_port(struct policy_parser *parser, struct policy_rule *rule,
                     const struct json *value)
{
    int64_t port = json_integer(value);
    if (port < 1 || port > UINT16_MAX)
        return policy_refuse(parser, value, "\"port\" is a number from 1 to %d", UINT16_MAX);
    if (port == 53)
        return policy_refuse(parser, value, "port 53 is that of DNS, which egress answers itself");
    rule->port = (uint16_t)port;
    return 0;
}

static int read_plain_http(struct policy_parser *parser, struct policy_rule *rule,
                           const struct json *value)
{
    (void)parser;
    rule->plain_http = json_bool(value);
    return 0;
}

static int check_method(struct policy_parser *parser, const struct json *value, char *text)
{
    for (const char *c = text; *c; c++)
        if (*c < 'A' || *c > 'Z')
            return policy_refuse(parser, value, "a method is written in capital letters: \"GET\"");
    if (strcmp(text, "CONNECT") == 0 || strcmp(text, "TRACE") == 0)
        return policy_refuse(parser, value, "%s is never allowed", text);
    return 0;
}

static int read_methods(struct policy_parser *parser, struct policy_rule *rule,
                        const struct json *value)
{
    return policy_read_strings(parser, value, check_method, &rule->methods);
}

static int path_set(struct policy_parser *parser, struct policy_rule *rule,
                    const struct json *value, const char *text)
{
    cleanup_buf struct buf path = BUF_INIT(LIMIT_POLICY_STRING_BYTES);
    cleanup_buf struct buf query = BUF_INIT(LIMIT_POLICY_STRING_BYTES);
    struct err inner = {0};
    if (text[0] != '/')
        return policy_refuse(parser, value, "a path begins with \"/\"");
    if (strchr(text, '?'))
        return policy_refuse(parser, value, "a path has no query");
    if (policy_canonical_target(text, strlen(text), &path, &query, &inner) < 0)
        return policy_refuse(parser, value, "%s", inner.message);
    if (strstr(path.data, "//"))
        return policy_refuse(parser, value, "the path has an empty part (\"//\")");
    if (path.data[path.len - 1] == '/')
        path.data[--path.len] = '\0';
    rule->path = TAKE_PTR(path.data);
    return 0;
}

static int read_path(struct policy_parser *parser, struct policy_rule *rule,
                     const struct json *value)
{
    cleanup_free char *text = NULL;
    if (policy_expand_text(parser, value, &text) < 0)
        return -EINVAL;
    return text ? path_set(parser, rule, value, text) : 0;
}

/* Puts a header's name in lower case. Framing and routing are egress's own. */
static int check_header_name(struct policy_parser *parser, const struct json *value, char *name)
{
    static const char *const own[] = {
        "connection", "content-length",    "expect",  "host",    "keep-alive", "proxy-connection",
        "te",         "transfer-encoding", "trailer", "upgrade",
    };
    static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz";
    for (char *c = name; *c; c++)
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
    if (!name[0] || strspn(name, token) != strlen(name))
        return policy_refuse(parser, value, "\"%.80s\" is not a header's name", name);
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (strcmp(name, own[i]) == 0)
            return policy_refuse(parser, value, "header %s belongs to the connection", name);
    return 0;
}

static int read_headers_remove(struct policy_parser *parser, struct policy_rule *rule,
                               const struct json *value)
{
    return policy_read_strings(parser, value, check_header_name, &rule->remove);
}

static int read_header(struct policy_parser *parser, struct policy_rule *rule,
                       const struct json *value, const char *name)
{
    struct policy_header *header = &rule->set[rule->set_count];
    header->name = strdup(name);
    if (!header->name)
        return policy_refuse(parser, value, "out of memory");
    rule->set_count++;
    if (check_header_name(parser, value, header->name) < 0)
        return -EINVAL;
    for (struct policy_header *other = rule->set; other < header; other++)
        if (strcmp(other->name, header->name) == 0)
            return policy_refuse(parser, value, "header %s is set twice", header->name);
    return policy_expand_value(parser, value, &header->value);
}

static int read_headers_set(struct policy_parser *parser, struct policy_rule *rule,
                            const struct json *object)
{
    size_t count = json_count(object);
    int result = 0;
    rule->set = count ? calloc(count, sizeof(*rule->set)) : NULL;
    if (!rule->set)
        return policy_refuse(parser, object, count ? "out of memory" : "\"set\" is empty");
    for (size_t i = 0; i < count; i++)
        if (read_header(parser, rule, json_at(object, i), json_key_at(object, i)) < 0)
            result = -EINVAL;
    return result;
}

static int read_headers(struct policy_parser *parser, struct policy_rule *rule,
                        const struct json *value)
{
    static const struct policy_key keys[] = {
        {"remove", JSON_ARRAY, read_headers_remove},
        {"set", JSON_OBJECT, read_headers_set},
    };
    return policy_read_object(parser, value, keys, ARRAY_LEN(keys), rule);
}

static int read_usage(struct policy_parser *parser, struct policy_rule *rule,
                      const struct json *value)
{
    static const struct {
        const char *name;
        enum policy_usage usage;
    } usages[] = {{"anthropic", POLICY_USAGE_ANTHROPIC},
                  {"openai", POLICY_USAGE_OPENAI},
                  {"auto", POLICY_USAGE_AUTO}};
    for (size_t i = 0; i < ARRAY_LEN(usages); i++) {
        if (strcmp(json_text(value) ? json_text(value) : "", usages[i].name) != 0)
            continue;
        rule->usage = usages[i].usage;
        return 0;
    }
    return policy_refuse(parser, value, "\"usage\" is \"anthropic\", \"openai\" or \"auto\"");
}

const struct policy_key policy_rule_keys[] = {
    {"name", JSON_STRING, read_name},
    {"host", JSON_STRING, read_host},
    {"port", JSON_INTEGER, read_port},
    {"plain_http", JSON_BOOL, read_plain_http},
    {"methods", JSON_ARRAY, read_methods},
    {"path", JSON_STRING, read_path},
    {"git", JSON_OBJECT, policy_read_git},
    {"headers", JSON_OBJECT, read_headers},
    {"usage", JSON_STRING, read_usage},
    {"upstream", JSON_STRING, policy_read_upstream},
    {"upstream_ca", JSON_STRING, policy_read_upstream_ca},
    {"upstream_cert", JSON_STRING, policy_read_upstream_cert},
    {"upstream_key", JSON_STRING, policy_read_upstream_key},
};
const size_t policy_rule_key_count = ARRAY_LEN(policy_rule_keys);

/* What goes over plain HTTP can be read on its way. */
static int check_plain_secrets(struct policy_parser *parser, const struct policy_rule *rule,
                               const struct json *json)
{
    const struct json *set = json_get(json_get(json, "headers"), "set");
    for (size_t i = 0; i < rule->set_count; i++)
        if (policy_rule_set_is_secret(rule, i))
            return policy_refuse(parser, json_at(set, i), "a secret is never sent over plain HTTP");
    return 0;
}

int policy_rule_check(struct policy_parser *parser, struct policy_rule *rule,
                      const struct json *json)
{
    int result = 0;
    if (!json_get(json, "host"))
        result = policy_refuse(parser, json, "a rule must have a \"host\"");
    if (!json_get(json, "port"))
        rule->port = rule->plain_http ? POLICY_PORT_HTTP : POLICY_PORT_HTTPS;
    if (rule->plain_http && check_plain_secrets(parser, rule, json) < 0)
        result = -EINVAL;
    if (policy_check_git(parser, rule, json) < 0 || policy_check_upstream(parser, rule, json) < 0)
        result = -EINVAL;
    return result;
}
