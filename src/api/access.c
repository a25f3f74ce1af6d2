/* Tokens of requests over TCP; see access.h. Runs in api on foreign bytes. */
#include "api/access.h"

#include <string.h>

#include "ipc/ipc.h"
#include "util/sha256.h"

void access_learn(struct access_tokens *tokens, const struct msg_api_token *token)
{
    size_t i = 0;
    while (i < tokens->count && strcmp(tokens->list[i].id, IPC_TEXT(token->id)) != 0)
        i++;
    if (token->removed) {
        if (i < tokens->count)
            tokens->list[i] = tokens->list[--tokens->count];
        return;
    }
    if (i == tokens->count && tokens->count < LIMIT_TOKENS)
        tokens->count++;
    if (i < tokens->count)
        tokens->list[i] = *token;
}

/* Whether the host, with or without a port, is this machine's own name for itself. A page of a
 * stranger whose name was made to point here (DNS rebinding) has the stranger's. */
static bool access_is_loopback(const struct http_field *host)
{
    static const char *const names[] = {"127.0.0.1", "[::1]", "localhost"};
    if (!host)
        return false;
    size_t len = host->value_len;
    size_t digits = 0;
    while (digits < len && host->value[len - digits - 1] >= '0' &&
           host->value[len - digits - 1] <= '9')
        digits++;
    if (digits > 0 && digits < len && host->value[len - digits - 1] == ':')
        len -= digits + 1;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (http_equals(host->value, len, names[i]))
            return true;
    return false;
}

/* Constant time: both have MSG_TOKEN_HASH bytes, all of which are looked at. */
static bool access_hash_equals(const char *a, const char *b)
{
    unsigned char difference = 0;
    for (size_t i = 0; i < MSG_TOKEN_HASH; i++)
        difference = (unsigned char)(difference | (a[i] ^ b[i]));
    return difference == 0;
}

static const struct msg_api_token *access_find(const struct access_tokens *tokens,
                                               const struct http_field *field, int64_t now_ms)
{
    static const char scheme[] = "Bearer ";
    size_t skip = sizeof(scheme) - 1;
    const struct msg_api_token *found = NULL;
    char hash[SHA256_HEX_SIZE];
    if (!field || field->value_len <= skip || !http_equals(field->value, skip, scheme))
        return NULL;
    struct sha256_part part = {field->value + skip, field->value_len - skip};
    sha256_hex(&part, 1, hash);
    for (size_t i = 0; i < tokens->count; i++)
        if (access_hash_equals(tokens->list[i].hash, hash))
            found = &tokens->list[i];
    return found && found->expires_ms && found->expires_ms <= now_ms ? NULL : found;
}

const struct msg_api_token *access_check(const struct access_tokens *tokens,
                                         const struct http_head *head, int64_t now_ms,
                                         int *ret_status, const char **ret_text)
{
    *ret_status = 403;
    *ret_text = "The Host must be 127.0.0.1, [::1] or localhost";
    if (!access_is_loopback(http_head_field(head, "Host")))
        return NULL;
    *ret_text = "Requests of web pages (with the header Origin) are refused";
    if (http_head_field(head, "Origin"))
        return NULL;
    *ret_status = 401;
    *ret_text = "Send a token";
    return access_find(tokens, http_head_field(head, "Authorization"), now_ms);
}

const char *access_refusal(const struct msg_api_token *token, const char *method,
                           const char *pattern, const char *name, size_t name_len)
{
    bool is_read = strcmp(method, "GET") == 0 && strcmp(pattern, ACCESS_TERMINAL) != 0;
    size_t prefix_len = strlen(token->prefix);
    if (token->read_only && !is_read)
        return "The token is read-only";
    if (strncmp(pattern, "/tokens", 7) == 0)
        return token->read_only || prefix_len || token->expires_ms
                   ? "Only the Unix socket or a token without any limit may manage tokens"
                   : NULL;
    if (prefix_len == 0)
        return NULL;
    if (strncmp(pattern, "/policies", 9) == 0 || strcmp(pattern, "/df") == 0)
        return "Only a token for all sandboxes may do this";
    if (strncmp(pattern, "/sandboxes/", 11) != 0)
        return is_read ? NULL : "The token is for some sandboxes only";
    return name && name_len >= prefix_len && memcmp(name, token->prefix, prefix_len) == 0
               ? NULL
               : "The token is not for this sandbox";
}
