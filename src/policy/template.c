/*
 * "${NAME}", "${secret:NAME}" and "${basic:USER:NAME}" in the strings of a policy. A "$" that no
 * "{" follows is itself. Variables are put in when the policy is loaded, secrets only at a request;
 * neither is looked into for more "${".
 */
#include <stdlib.h>
#include <string.h>

#include "policy/internal.h"
#include "util/cleanup.h"
#include "util/limits.h"

enum piece_kind { PIECE_TEXT, PIECE_VARIABLE, PIECE_SECRET, PIECE_BASIC };

struct piece {
    enum piece_kind kind;
    char name[LIMIT_POLICY_NAME_BYTES + 1]; /* of a variable or a secret */
    const char *text;                       /* of a literal */
    size_t len;
    char user[LIMIT_POLICY_NAME_BYTES + 1]; /* of PIECE_BASIC */
};

static bool is_name_char(char c, bool is_first, bool is_secret)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_')
        return true;
    if (c >= '0' && c <= '9')
        return is_secret || !is_first;
    return is_secret && (c == '-' || (c == '.' && !is_first));
}

static bool name_read(const char *text, size_t len, bool is_secret, char *ret)
{
    if (len == 0 || len > LIMIT_POLICY_NAME_BYTES)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!is_name_char(text[i], i == 0, is_secret))
            return false;
    memcpy(ret, text, len);
    ret[len] = '\0';
    return true;
}

/* What "${" begins; *name is moved behind its prefix. */
static enum piece_kind kind_take(const char **name)
{
    static const char secret[] = "secret:";
    static const char basic[] = "basic:";
    if (strncmp(*name, secret, strlen(secret)) == 0) {
        *name += strlen(secret);
        return PIECE_SECRET;
    }
    if (strncmp(*name, basic, strlen(basic)) == 0) {
        *name += strlen(basic);
        return PIECE_BASIC;
    }
    return PIECE_VARIABLE;
}

/* The user in front of a ":" (RFC 7617: it has none itself); moves *name behind that. */
static bool user_take(const char **name, const char *end, char *ret)
{
    size_t len = strcspn(*name, ":");
    if (len == 0 || len > LIMIT_POLICY_NAME_BYTES || *name + len >= end)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((*name)[i] < 0x21 || (*name)[i] > 0x7e)
            return false;
    memcpy(ret, *name, len);
    ret[len] = '\0';
    *name += len + 1;
    return true;
}

/* Reads the piece at *at and moves *at behind it. */
static int piece_next(struct policy_parser *parser, const struct json *json, const char **at,
                      struct piece *ret)
{
    const char *text = *at;
    if (strncmp(text, "${", 2) != 0) {
        const char *next = strstr(text + 1, "${");
        *ret = (struct piece){.kind = PIECE_TEXT, .text = text};
        ret->len = next ? (size_t)(next - text) : strlen(text);
        *at = text + ret->len;
        return 0;
    }
    const char *name = text + 2;
    const char *end = strchr(name, '}');
    if (!end)
        return policy_refuse(parser, json, "\"${\" without its \"}\"");
    *at = end + 1;
    ret->kind = kind_take(&name);
    if (ret->kind == PIECE_BASIC && !user_take(&name, end, ret->user))
        return policy_refuse(parser, json,
                             "expected ${basic:USER:SECRET}, with a user of 1 to %d "
                             "visible characters of ASCII",
                             LIMIT_POLICY_NAME_BYTES);
    bool is_secret = ret->kind != PIECE_VARIABLE;
    if (!name_read(name, (size_t)(end - name), is_secret, ret->name))
        return policy_refuse(parser, json, "\"%.*s\" is not a name for a %s",
                             (int)(end - name > 80 ? 80 : end - name), name,
                             is_secret ? "secret" : "variable");
    return 0;
}

/* The reason is cut when it names too much. */
static void note_missing(struct policy_parser *parser, const char *kind, const char *name,
                         const char *why)
{
    cleanup_buf struct buf note = BUF_INIT(LIMIT_POLICY_REASON_BYTES);
    if (buf_appendf(&note, "%s %s %s", kind, name, why) < 0)
        return;
    if (strstr(buf_text(&parser->missing), buf_text(&note)))
        return;
    if (parser->missing.len)
        (void)buf_append_string(&parser->missing, "; ");
    (void)buf_append_string(&parser->missing, buf_text(&note));
}

/* The variable's value, or NULL with the lack noted. An empty value is as good as none. */
static const char *variable_value(struct policy_parser *parser, const char *name)
{
    const char *value = parser->env->variable(parser->env->ctx, name);
    if (value && value[0])
        return value;
    note_missing(parser, "variable", name,
                 "is not set: set it in \"vars\" of the daemon's configuration");
    return NULL;
}

static void check_secret(struct policy_parser *parser, const char *name)
{
    const char *lack = parser->env->secret_lack(parser->env->ctx, name);
    char why[LIMIT_POLICY_REASON_BYTES];
    if (!lack)
        return;
    if (lack[0])
        snprintf(why, sizeof(why), "cannot be used: %s", lack);
    note_missing(parser, "secret", name,
                 lack[0] ? why
                         : "is not set: put it in a file of that name in secrets_dir (mode 0600), "
                           "or in the daemon's environment");
}

static const char *string_of(struct policy_parser *parser, const struct json *json)
{
    const char *text = json_text(json);
    if (!text || !text[0])
        policy_refuse(parser, json, "expected a string that is not empty");
    return text && text[0] ? text : NULL;
}

int policy_expand_text(struct policy_parser *parser, const struct json *json, char **ret_text)
{
    cleanup_buf struct buf out = BUF_INIT(LIMIT_POLICY_STRING_BYTES);
    bool is_whole = true;
    const char *text = string_of(parser, json);
    if (!text)
        return -EINVAL;
    for (const char *at = text; *at;) {
        struct piece piece = {0};
        if (piece_next(parser, json, &at, &piece) < 0)
            return -EINVAL;
        if (piece.kind == PIECE_SECRET || piece.kind == PIECE_BASIC)
            return policy_refuse(parser, json,
                                 "a secret may be used only in the values of \"headers\".\"set\"");
        if (piece.kind == PIECE_VARIABLE) {
            piece.text = variable_value(parser, piece.name);
            piece.len = piece.text ? strlen(piece.text) : 0;
            is_whole = is_whole && piece.text;
        }
        if (piece.text && buf_append(&out, piece.text, piece.len) < 0)
            return policy_refuse(parser, json, "the string is longer than %d bytes",
                                 LIMIT_POLICY_STRING_BYTES);
    }
    if (is_whole)
        *ret_text = TAKE_PTR(out.data);
    return 0;
}

static int value_add(struct policy_value *value, const struct piece *piece)
{
    struct policy_part *parts = reallocarray(value->parts, value->count + 1, sizeof(*parts));
    if (!parts)
        return -ENOMEM;
    value->parts = parts;
    struct policy_part part = {.is_secret =
                                   piece->kind == PIECE_SECRET || piece->kind == PIECE_BASIC};
    part.text = strndup(piece->text, piece->len);
    if (piece->kind == PIECE_BASIC)
        part.basic_user = strdup(piece->user);
    parts[value->count++] = part;
    return !part.text || (piece->kind == PIECE_BASIC && !part.basic_user) ? -ENOMEM : 0;
}

int policy_expand_value(struct policy_parser *parser, const struct json *json,
                        struct policy_value *ret)
{
    struct policy_value value __attribute__((cleanup(policy_value_free))) = {0};
    const char *text = string_of(parser, json);
    if (!text)
        return -EINVAL;
    for (const char *at = text; *at;) {
        struct piece piece = {0};
        if (piece_next(parser, json, &at, &piece) < 0)
            return -EINVAL;
        if (piece.kind == PIECE_VARIABLE)
            piece.text = variable_value(parser, piece.name);
        if (piece.kind == PIECE_SECRET || piece.kind == PIECE_BASIC) {
            piece.text = piece.name;
            check_secret(parser, piece.name);
        }
        if (piece.kind != PIECE_TEXT)
            piece.len = piece.text ? strlen(piece.text) : 0;
        for (size_t i = 0; i < piece.len; i++)
            if ((unsigned char)piece.text[i] < 0x20 || piece.text[i] == 0x7f)
                return policy_refuse(parser, json, "a header's value with a control character");
        if (piece.text && value_add(&value, &piece) < 0)
            return policy_refuse(parser, json, "out of memory");
    }
    *ret = value;
    value = (struct policy_value){0};
    return 0;
}
