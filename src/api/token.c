/* Routes of the tokens. A token is made here; the supervisor and the disk get its hash alone. Runs
 * in api. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "api/call.h"
#include "api/request.h"
#include "util/clock.h"
#include "util/sha256.h"

#define TOKEN_SCHEME "paddock_"
#define TOKEN_BYTES 32
#define TOKEN_ID_BYTES 8

struct token_made {
    struct msg_api_token token;
    char text[sizeof(TOKEN_SCHEME) + 2 * (size_t)TOKEN_BYTES];
};

static void token_made_free(void *state)
{
    explicit_bzero(state, sizeof(struct token_made));
    free(state);
}

/* Appends `len` random bytes in hex, and a NUL. */
static int token_random(char *ret, size_t len)
{
    unsigned char bytes[TOKEN_BYTES];
    if (getrandom(bytes, len, 0) != (ssize_t)len)
        return -EIO;
    for (size_t i = 0; i < len; i++)
        snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
    explicit_bzero(bytes, sizeof(bytes));
    return 0;
}

static int token_fill(struct token_made *made)
{
    memcpy(made->text, TOKEN_SCHEME, sizeof(TOKEN_SCHEME));
    int r = token_random(made->text + sizeof(TOKEN_SCHEME) - 1, TOKEN_BYTES);
    if (r == 0)
        r = token_random(made->token.id, TOKEN_ID_BYTES);
    struct sha256_part part = {made->text, strlen(made->text)};
    sha256_hex(&part, 1, made->token.hash);
    return r;
}

static void token_on_added(struct api_call *call, struct ipc_message *message)
{
    const struct token_made *made = call->state;
    char json[256];
    if (!call_is_ok(call, message))
        return;
    int len = snprintf(json, sizeof(json), "{\"id\":\"%s\",\"token\":\"%s\"}\n", made->token.id,
                       made->text);
    call_answer(call, 200, "application/json", json, (size_t)len);
    explicit_bzero(json, sizeof(json));
}

void api_token_create(struct api_call *call)
{
    const struct buf *body = http_exchange_body(call->exchange);
    struct err err;
    struct token_made *made = calloc(1, sizeof(*made));
    if (!made) {
        call_text(call, 503, "Out of memory");
        return;
    }
    call->state = made;
    call->state_free = token_made_free;
    if (request_token(buf_text(body), body->len, clock_unix_ms(), &made->token, &err) < 0)
        call_text(call, 400, err.message);
    else if (token_fill(made) < 0)
        call_failed(call, "the kernel gave no random bytes");
    else
        call_send(call, IPC_TOKEN_ADD, &made->token, NULL, 0, token_on_added);
}

void api_token_list(struct api_call *call)
{
    call_send(call, IPC_TOKEN_LIST, NULL, NULL, 0, call_pass_document);
}

void api_token_remove(struct api_call *call)
{
    struct msg_token_id body = {0};
    IPC_SET_TEXT(body.id, call->name);
    call_send(call, IPC_TOKEN_REMOVE, &body, NULL, 0, call_pass_done);
}
