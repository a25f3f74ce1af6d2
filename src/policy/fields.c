/* The keys of a rule, one reader each, and the table of them. Pure: files beside the policy come
 * through policy_env. */
#include <arpa/inet.h>
#include <stdio.h>
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
        return policy_refuse(parser, value, "a host has no port here: rules are for port 443");
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

/* Reads an array of strings, each given to `check`, which refuses or returns 0. */
static int read_strings(struct policy_parser *parser, const struct json *list,
                        int (*check)(struct policy_parser *parser, const struct json *value,
                                     char *text),
                        struct policy_strings *ret)
{
    size_t count = json_count(list);
    if (count == 0)
        return policy_refuse(parser, list, "the list is empty: leave the key out instead");
    ret->items = calloc(count, sizeof(*ret->items));
    if (!ret->items)
        return policy_refuse(parser, list, "out of memory");
    for (size_t i = 0; i < count; i++) {
        const struct json *value = json_at(list, i);
        char *text = NULL;
        if (policy_expand_text(parser, value, &text) < 0)
            return -EINVAL;
        if (!text)
            continue;
        ret->items[ret->count++] = text;
        if (check(parser, value, text) < 0)
            return -EINVAL;
    }
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
    return read_strings(parser, value, check_method, &rule->methods);
}

static int path_set(struct policy_parser *parser, struct policy_rule *rule,
                    const struct json *value, const char *text)
{
    cleanup_buf struct buf path = BUF_INIT(LIMIT_POLICY_STRING_BYTES);
    cleanup_buf struct buf query = BUF_INIT(LIMIT_POLICY_STRING_BYTES);
    struct err inner = {0};
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

static int check_repository(struct policy_parser *parser, const struct json *value, char *text)
{
    if (policy_git_pattern_is_valid(text))
        return 0;
    return policy_refuse(parser, value,
                         "\"%s\" is not OWNER/REPOSITORY (\"*\" may stand in either), as in "
                         "\"acme/*\"",
                         text);
}

static int read_git_fetch(struct policy_parser *parser, struct policy_rule *rule,
                          const struct json *value)
{
    (void)parser;
    rule->git.fetch = json_bool(value);
    return 0;
}

static int read_git_push(struct policy_parser *parser, struct policy_rule *rule,
                         const struct json *value)
{
    (void)parser;
    rule->git.push = json_bool(value);
    return 0;
}

static int read_git_lfs(struct policy_parser *parser, struct policy_rule *rule,
                        const struct json *value)
{
    (void)parser;
    rule->git.lfs = json_bool(value);
    return 0;
}

static int read_git_repositories(struct policy_parser *parser, struct policy_rule *rule,
                                 const struct json *value)
{
    return read_strings(parser, value, check_repository, &rule->git.repositories);
}

static int read_git(struct policy_parser *parser, struct policy_rule *rule,
                    const struct json *value)
{
    static const struct policy_key keys[] = {
        {"fetch", JSON_BOOL, read_git_fetch},
        {"push", JSON_BOOL, read_git_push},
        {"lfs", JSON_BOOL, read_git_lfs},
        {"repositories", JSON_ARRAY, read_git_repositories},
    };
    rule->has_git = true;
    return policy_read_object(parser, value, keys, ARRAY_LEN(keys), rule);
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
    return read_strings(parser, value, check_header_name, &rule->remove);
}

static int read_headers_set(struct policy_parser *parser, struct policy_rule *rule,
                            const struct json *object)
{
    size_t count = json_count(object);
    rule->set = count ? calloc(count, sizeof(*rule->set)) : NULL;
    if (!rule->set)
        return policy_refuse(parser, object, count ? "out of memory" : "\"set\" is empty");
    for (size_t i = 0; i < count; i++) {
        const struct json *value = json_at(object, i);
        struct policy_header *header = &rule->set[i];
        header->name = strdup(json_key_at(object, i));
        if (!header->name)
            return policy_refuse(parser, value, "out of memory");
        rule->set_count++;
        if (check_header_name(parser, value, header->name) < 0)
            return -EINVAL;
        for (size_t j = 0; j < i; j++)
            if (strcmp(rule->set[j].name, header->name) == 0)
                return policy_refuse(parser, value, "header %s is set twice", header->name);
        if (policy_expand_value(parser, value, &header->value) < 0)
            return -EINVAL;
    }
    return 0;
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

/* Splits "HOST:PORT" or "[V6]:PORT"; the host may be an address. The port may be absent only when
 * default_port is not 0. */
static bool upstream_split(const char *text, uint16_t default_port, char host[POLICY_HOST_MAX],
                           uint16_t *ret_port)
{
    bool is_v6 = text[0] == '[';
    const char *end = is_v6 ? strchr(text, ']') : text + strcspn(text, ":");
    const char *start = is_v6 ? text + 1 : text;
    if (!end || end == start || end - start >= POLICY_HOST_MAX)
        return false;
    memcpy(host, start, (size_t)(end - start));
    host[end - start] = '\0';
    end += is_v6;
    unsigned char address[sizeof(struct in6_addr)];
    bool is_v4 = !is_v6 && inet_pton(AF_INET, host, address) == 1;
    if (is_v6 && inet_pton(AF_INET6, host, address) != 1)
        return false;
    if (*end ? *end != ':' : !default_port)
        return false;
    /* a stand-in name lets the reader of names check the port that follows an address */
    char name[POLICY_HOST_MAX + 8];
    int len = snprintf(name, sizeof(name), "%s%.7s", is_v6 || is_v4 ? "a" : host, end);
    char canonical[POLICY_HOST_MAX];
    if (policy_canonical_host(name, (size_t)len, default_port, canonical, ret_port, NULL) < 0 ||
        strlen(end) > strlen(":65535"))
        return false;
    if (!is_v6 && !is_v4)
        memcpy(host, canonical, sizeof(canonical));
    return true;
}

static int read_upstream(struct policy_parser *parser, struct policy_rule *rule,
                         const struct json *value)
{
    static const char https[] = "https://";
    cleanup_free char *text = NULL;
    if (policy_expand_text(parser, value, &text) < 0)
        return -EINVAL;
    if (!text)
        return 0;
    bool has_scheme = strncmp(text, https, strlen(https)) == 0;
    if (!has_scheme && strstr(text, "://"))
        return policy_refuse(parser, value, "an upstream is reached over HTTPS only");
    char host[POLICY_HOST_MAX] = "";
    if (!upstream_split(has_scheme ? text + strlen(https) : text, has_scheme ? 443 : 0, host,
                        &rule->upstream_port))
        return policy_refuse(parser, value,
                             "\"%.200s\" is neither HOST:PORT nor https://HOST[:PORT]", text);
    rule->upstream = strdup(host);
    return rule->upstream ? 0 : policy_refuse(parser, value, "out of memory");
}

static int read_upstream_ca(struct policy_parser *parser, struct policy_rule *rule,
                            const struct json *value)
{
    cleanup_free char *name = NULL;
    cleanup_buf struct buf pem = BUF_INIT(LIMIT_CONFIG_BYTES);
    if (policy_expand_text(parser, value, &name) < 0)
        return -EINVAL;
    if (!name)
        return 0;
    size_t len = strlen(name);
    if (strchr(name, '/') || name[0] == '.' || len < 5 || strcmp(name + len - 4, ".pem") != 0)
        return policy_refuse(parser, value,
                             "upstream_ca is the name of a *.pem file beside the policy");
    int result = parser->env->file(parser->env->ctx, name, &pem);
    if (result < 0)
        return policy_refuse(parser, value, "%s beside the policy: %s", name, strerror(-result));
    if (!strstr(buf_text(&pem), "-----BEGIN CERTIFICATE-----"))
        return policy_refuse(parser, value, "%s holds no certificate in PEM", name);
    rule->upstream_ca_len = pem.len;
    rule->upstream_ca = TAKE_PTR(pem.data);
    return 0;
}

const struct policy_key policy_rule_keys[] = {
    {"name", JSON_STRING, read_name},         {"host", JSON_STRING, read_host},
    {"methods", JSON_ARRAY, read_methods},    {"path", JSON_STRING, read_path},
    {"git", JSON_OBJECT, read_git},           {"headers", JSON_OBJECT, read_headers},
    {"upstream", JSON_STRING, read_upstream}, {"upstream_ca", JSON_STRING, read_upstream_ca},
};
const size_t policy_rule_key_count = ARRAY_LEN(policy_rule_keys);

int policy_rule_check(struct policy_parser *parser, const struct policy_rule *rule,
                      const struct json *json)
{
    if (!json_get(json, "host"))
        return policy_refuse(parser, json, "a rule must have a \"host\"");
    if (rule->has_git && (json_get(json, "path") || json_get(json, "methods")))
        return policy_refuse(parser, json_get(json, "git"),
                             "\"git\" decides paths and methods itself: leave \"path\" and "
                             "\"methods\" out");
    if (json_get(json, "upstream_ca") && !json_get(json, "upstream"))
        return policy_refuse(parser, json_get(json, "upstream_ca"),
                             "\"upstream_ca\" is for a rule with an \"upstream\"");
    return 0;
}
