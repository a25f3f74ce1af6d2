/*
 * Who may do what over TCP, where every request needs a token. Over the Unix socket nothing of this
 * is asked: its file mode is the wall. Pure functions on foreign bytes, inside src/api only.
 */
#pragma once

/* The one GET that runs a program. */
#define ACCESS_TERMINAL "/sandboxes/{name}/terminal"

#include <stddef.h>
#include <stdint.h>

#include "http/head.h"
#include "ipc/messages.h"

/* What the supervisor told of the tokens: their hashes, never their texts. */
struct access_tokens {
    struct msg_api_token list[LIMIT_TOKENS];
    size_t count;
};

/* Adds the token, or forgets it when it is marked so. */
void access_learn(struct access_tokens *tokens, const struct msg_api_token *token);

/* The token of the request. NULL: *ret_status (401, or 403 for a page in a browser that was led
 * here) and *ret_text tell why not. Takes as long for a wrong token as for a right one. */
const struct msg_api_token *access_check(const struct access_tokens *tokens,
                                         const struct http_head *head, int64_t now_ms,
                                         int *ret_status, const char **ret_text);

/* NULL when the token may use the route on the name (NULL: the route has none), else why not. */
const char *access_refusal(const struct msg_api_token *token, const char *method,
                           const char *pattern, const char *name, size_t name_len);
