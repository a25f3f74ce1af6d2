/* See upgrade.h. Runs in api on a client's bytes. */
#include "http/upgrade.h"

#include <string.h>

static bool has_token(const struct http_head *head, const char *name, const char *token)
{
    const struct http_field *field = http_head_field(head, name);
    return field && http_list_has(field, token, strlen(token));
}

int http_upgrade_check(const struct http_head *head, char ret[WEBSOCKET_ACCEPT_SIZE],
                       const char **ret_why)
{
    const struct http_field *version = http_head_field(head, "Sec-WebSocket-Version");
    const struct http_field *key = http_head_field(head, "Sec-WebSocket-Key");
    *ret_why = "This is a WebSocket: ask with Upgrade: websocket and Sec-WebSocket-Version: 13";
    if (head->minor == 0 || !has_token(head, "Upgrade", "websocket") ||
        !has_token(head, "Connection", "upgrade") || !version ||
        !http_equals(version->value, version->value_len, "13"))
        return 426;
    *ret_why = "Sec-WebSocket-Key must be 16 bytes in base64";
    if (!key || !websocket_key_is_valid(key->value, key->value_len))
        return 400;
    websocket_accept(key->value, ret);
    return 0;
}
