/*
 * The API's tokens: STATE/tokens.json holds their hashes, never a token. api makes them and checks
 * them; what it may not do is write them, which is done here.
 */
#include <fcntl.h>
#include <string.h>

#include "supervisor/supervisor.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/log.h"
#include "util/name.h"
#include "json/json.h"

#define TOKENS_FILE "tokens.json"
#define TOKENS_HEX "0123456789abcdef"

static bool tokens_is_hex(const char *text, size_t len)
{
    return strlen(text) == len && strspn(text, TOKENS_HEX) == len;
}

bool token_is_valid(const struct msg_api_token *token)
{
    const char *prefix = IPC_TEXT(token->prefix);
    return tokens_is_hex(IPC_TEXT(token->id), MSG_TOKEN_ID - 1) &&
           tokens_is_hex(IPC_TEXT(token->hash), MSG_TOKEN_HASH - 1) &&
           memchr(token->prefix, '\0', sizeof(token->prefix)) &&
           (!prefix[0] || name_prefix_is_valid(prefix, strlen(prefix))) && token->read_only <= 1 &&
           !token->removed && token->created_ms >= 0 && token->expires_ms >= 0;
}

void tokens_write(struct json_writer *writer, const struct supervisor *supervisor, bool with_hash)
{
    json_write_array_begin(writer);
    for (size_t i = 0; i < supervisor->token_count; i++) {
        const struct msg_api_token *token = &supervisor->tokens[i];
        if (token->removed && with_hash)
            continue;
        json_write_object_begin(writer);
        json_write_pair_string(writer, "id", token->id);
        if (with_hash)
            json_write_pair_string(writer, "hash", token->hash);
        json_write_pair_string(writer, "prefix", token->prefix);
        json_write_pair_bool(writer, "readOnly", token->read_only);
        json_write_pair_integer(writer, "created", token->created_ms);
        if (token->expires_ms)
            json_write_pair_integer(writer, "expires", token->expires_ms);
        if (token->removed)
            json_write_pair_bool(writer, "refused", true);
        json_write_object_end(writer);
    }
    json_write_array_end(writer);
}

static int tokens_save(const struct supervisor *supervisor, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    struct json_writer *writer = json_writer_new(&text, true);
    if (!writer)
        return err_set(err, ENOMEM, "no memory for " TOKENS_FILE);
    tokens_write(writer, supervisor, true);
    int result = json_writer_end(writer);
    if (result < 0)
        return err_errno(err, -result, "cannot write " TOKENS_FILE);
    return fd_write_file_atomic(supervisor->state_fd, TOKENS_FILE, 0600, text.data, text.len, err);
}

static bool tokens_take(const struct json *json, struct msg_api_token *ret)
{
    const char *id = json_text(json_get(json, "id"));
    const char *hash = json_text(json_get(json, "hash"));
    const char *prefix = json_text(json_get(json, "prefix"));
    if (!id || strlen(id) >= sizeof(ret->id) || !hash || strlen(hash) >= sizeof(ret->hash) ||
        !prefix || strlen(prefix) >= sizeof(ret->prefix) ||
        json_type(json_get(json, "readOnly")) != JSON_BOOL)
        return false;
    const struct json *expires = json_get(json, "expires");
    *ret = (struct msg_api_token){.read_only = json_bool(json_get(json, "readOnly")),
                                  .created_ms = json_integer(json_get(json, "created")),
                                  .expires_ms = json_integer(expires)};
    IPC_SET_TEXT(ret->id, id);
    IPC_SET_TEXT(ret->hash, hash);
    IPC_SET_TEXT(ret->prefix, prefix);
    return token_is_valid(ret) && (!expires || ret->expires_ms > 0);
}

int tokens_read(struct supervisor *supervisor, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    cleanup_json struct json *json = NULL;
    cleanup_fd int fd = fd_open_beneath(supervisor->state_fd, TOKENS_FILE, O_RDONLY, 0, true, err);
    if (fd == -ENOENT)
        return 0;
    if (fd < 0)
        return fd;
    int result = fd_read_all(fd, &text);
    if (result < 0)
        return err_errno(err, -result, "cannot read " TOKENS_FILE);
    bool is_good = json_parse(buf_text(&text), text.len, JSON_STRICT, &json, NULL) == 0 &&
                   json_type(json) == JSON_ARRAY && json_count(json) <= LIMIT_TOKENS;
    for (size_t i = 0; is_good && i < json_count(json); i++)
        is_good = tokens_take(json_at(json, i), &supervisor->tokens[i]);
    if (!is_good)
        return err_set(err, EINVAL, "%s/" TOKENS_FILE " is damaged: remove it, and make new tokens",
                       supervisor->config->state_dir);
    supervisor->token_count = json_count(json);
    return 0;
}

void tokens_tell(struct supervisor *supervisor, struct channel *channel)
{
    for (size_t i = 0; i < supervisor->token_count; i++)
        if (!supervisor->tokens[i].removed)
            channel_send(channel, IPC_API_TOKEN, 0, &supervisor->tokens[i], NULL, 0);
}

static void tokens_tell_one(struct supervisor *supervisor, struct msg_api_token token, bool removed)
{
    token.removed = removed;
    channel_send(supervisor->api.channel, IPC_API_TOKEN, 0, &token, NULL, 0);
}

/* What the disk does not have any more is forgotten. */
static void tokens_forget_removed(struct supervisor *supervisor)
{
    for (size_t i = supervisor->token_count; i-- > 0;)
        if (supervisor->tokens[i].removed)
            supervisor->tokens[i] = supervisor->tokens[--supervisor->token_count];
}

/* Those that are over make room; api refuses them already. */
static void tokens_drop_ended(struct supervisor *supervisor)
{
    int64_t now = clock_unix_ms();
    for (size_t i = supervisor->token_count; i-- > 0;) {
        struct msg_api_token token = supervisor->tokens[i];
        if (!token.expires_ms || token.expires_ms > now)
            continue;
        supervisor->tokens[i] = supervisor->tokens[--supervisor->token_count];
        tokens_tell_one(supervisor, token, true);
    }
}

static struct msg_api_token *tokens_find(struct supervisor *supervisor, const char *id)
{
    for (size_t i = 0; i < supervisor->token_count; i++)
        if (strcmp(supervisor->tokens[i].id, id) == 0)
            return &supervisor->tokens[i];
    return NULL;
}

void tokens_add(struct supervisor *supervisor, struct reply reply,
                const struct msg_api_token *token)
{
    struct err err = {0};
    tokens_drop_ended(supervisor);
    if (supervisor->token_count == LIMIT_TOKENS || tokens_find(supervisor, token->id)) {
        reply_status(supervisor, reply, IPC_STATUS_CONFLICT,
                     "There are %d tokens already: remove one", LIMIT_TOKENS);
        return;
    }
    supervisor->tokens[supervisor->token_count++] = *token;
    int result = tokens_save(supervisor, &err);
    if (result < 0) {
        supervisor->token_count--;
        reply_failure(supervisor, reply, result, err.message);
        return;
    }
    tokens_forget_removed(supervisor);
    log_info("token %s made", token->id);
    tokens_tell_one(supervisor, *token, false);
    reply_status(supervisor, reply, IPC_STATUS_OK, "%s", "");
}

void tokens_remove(struct supervisor *supervisor, struct reply reply, const char *id)
{
    struct err err = {0};
    struct msg_api_token *found = tokens_find(supervisor, id);
    if (!found) {
        reply_status(supervisor, reply, IPC_STATUS_NOT_FOUND, "There is no such token");
        return;
    }
    /* Refused from now on, whatever the disk says, by this api and the next one. */
    found->removed = true;
    tokens_tell_one(supervisor, *found, true);
    if (tokens_save(supervisor, &err) < 0) {
        log_error("token %s is refused, but still on the disk: %s", found->id, err.message);
        reply_status(supervisor, reply, IPC_STATUS_UNAVAILABLE,
                     "The token is refused from now on, but could not be taken off the disk, and "
                     "the daemon's next start would let it in again: %s. Cure that, and remove it "
                     "again",
                     err.message);
        return;
    }
    log_info("token %s removed", found->id);
    tokens_forget_removed(supervisor);
    reply_status(supervisor, reply, IPC_STATUS_OK, "%s", "");
}
