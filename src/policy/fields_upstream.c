/* The keys of a rule that say where and how egress connects: "upstream", its CA, the certificate
 * that is shown to it. Pure: files beside the policy come through policy_env. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/internal.h"
#include "util/cleanup.h"
#include "util/limits.h"

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

/* The scheme in front of an upstream, which *text is moved behind. */
static enum policy_scheme scheme_take(const char **text)
{
    static const char https[] = "https://";
    static const char http[] = "http://";
    if (strncmp(*text, https, strlen(https)) == 0) {
        *text += strlen(https);
        return POLICY_SCHEME_HTTPS;
    }
    if (strncmp(*text, http, strlen(http)) == 0) {
        *text += strlen(http);
        return POLICY_SCHEME_HTTP;
    }
    return POLICY_SCHEME_NONE;
}

int policy_read_upstream(struct policy_parser *parser, struct policy_rule *rule,
                         const struct json *value)
{
    static const uint16_t default_port[] = {
        [POLICY_SCHEME_NONE] = 0, [POLICY_SCHEME_HTTPS] = 443, [POLICY_SCHEME_HTTP] = 80};
    cleanup_free char *text = NULL;
    if (policy_expand_text(parser, value, &text) < 0)
        return -EINVAL;
    if (!text)
        return 0;
    const char *place = text;
    rule->upstream_scheme = scheme_take(&place);
    char host[POLICY_HOST_MAX] = "";
    if (!upstream_split(place, default_port[rule->upstream_scheme], host, &rule->upstream_port))
        return policy_refuse(parser, value,
                             "\"%.200s\" is neither HOST:PORT nor https://HOST[:PORT]", text);
    rule->upstream = strdup(host);
    return rule->upstream ? 0 : policy_refuse(parser, value, "out of memory");
}

/* Reads the *.pem file that `value` names; *ret stays NULL when a variable is not set. */
static int read_pem(struct policy_parser *parser, const struct json *value, const char *key,
                    char **ret, size_t *ret_len)
{
    cleanup_free char *name = NULL;
    cleanup_buf struct buf pem = BUF_INIT(LIMIT_CONFIG_BYTES);
    if (policy_expand_text(parser, value, &name) < 0)
        return -EINVAL;
    if (!name)
        return 0;
    size_t len = strlen(name);
    if (strchr(name, '/') || name[0] == '.' || len < 5 || strcmp(name + len - 4, ".pem") != 0)
        return policy_refuse(parser, value, "%s is the name of a *.pem file beside the policy",
                             key);
    int result = parser->env->file(parser->env->ctx, name, &pem);
    if (result < 0)
        return policy_refuse(parser, value, "%s beside the policy: %s", name, strerror(-result));
    if (!strstr(buf_text(&pem), "-----BEGIN CERTIFICATE-----"))
        return policy_refuse(parser, value, "%s holds no certificate in PEM", name);
    *ret_len = pem.len;
    *ret = TAKE_PTR(pem.data);
    return 0;
}

int policy_read_upstream_ca(struct policy_parser *parser, struct policy_rule *rule,
                            const struct json *value)
{
    return read_pem(parser, value, "upstream_ca", &rule->upstream_ca, &rule->upstream_ca_len);
}

int policy_read_upstream_cert(struct policy_parser *parser, struct policy_rule *rule,
                              const struct json *value)
{
    return read_pem(parser, value, "upstream_cert", &rule->upstream_cert, &rule->upstream_cert_len);
}

/* A key is never in a file that lies open beside the policy. */
int policy_read_upstream_key(struct policy_parser *parser, struct policy_rule *rule,
                             const struct json *value)
{
    struct policy_value key __attribute__((cleanup(policy_value_free))) = {0};
    const char *text = json_text(value);
    if (!text || strncmp(text, "${secret:", 9) != 0 || strchr(text, '}') != text + strlen(text) - 1)
        return policy_refuse(parser, value,
                             "upstream_key names a secret that holds the key in PEM, as in "
                             "\"${secret:CLIENT_KEY}\"");
    if (policy_expand_value(parser, value, &key) < 0)
        return -EINVAL;
    rule->upstream_key = TAKE_PTR(key.parts[0].text);
    return 0;
}

int policy_check_upstream(struct policy_parser *parser, const struct policy_rule *rule,
                          const struct json *json)
{
    static const char *const tls_keys[] = {"upstream_ca", "upstream_cert", "upstream_key"};
    for (size_t i = 0; i < ARRAY_LEN(tls_keys) && rule->plain_http; i++)
        if (json_get(json, tls_keys[i]))
            return policy_refuse(parser, json_get(json, tls_keys[i]),
                                 "\"%s\" is for TLS, and this rule is for plain HTTP", tls_keys[i]);
    if (rule->upstream_scheme == (rule->plain_http ? POLICY_SCHEME_HTTPS : POLICY_SCHEME_HTTP))
        return policy_refuse(
            parser, json_get(json, "upstream"), "%s",
            rule->plain_http ? "the upstream of a rule for plain HTTP is HOST:PORT or http://..."
                             : "an upstream is reached over HTTPS only");
    if (json_get(json, "upstream_ca") && !json_get(json, "upstream"))
        return policy_refuse(parser, json_get(json, "upstream_ca"),
                             "\"upstream_ca\" is for a rule with an \"upstream\"");
    const struct json *cert = json_get(json, "upstream_cert");
    const struct json *key = json_get(json, "upstream_key");
    if (!cert != !key)
        return policy_refuse(parser, cert ? cert : key,
                             "\"upstream_cert\" and \"upstream_key\" need each other");
    return 0;
}
