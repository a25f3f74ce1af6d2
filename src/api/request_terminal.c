/* The request for a terminal, and its control messages; see request.h. */
#include <stdlib.h>
#include <string.h>

#include "api/request.h"
#include "http/router.h"
#include "util/cleanup.h"
#include "json/json.h"

#define REQUEST_TERMINAL                                                                           \
    "The query of a terminal is command=WORD (again for more), cwd=/FOLDER, user=agent or root, "  \
    "env=NAME=VALUE, term=TERM, rows=N, cols=N, all optional"
#define SIZE_MAX_CELLS 10000

/* Which shell there is, only the sandbox knows. */
static const char *const shell[] = {"/bin/sh", "-c", "exec \"$(command -v bash || echo sh)\""};

struct terminal_query {
    struct buf strings; /* never grows: what points into it stays */
    struct spec *spec;
    struct msg_exec *body;
};

static const char *keep(struct terminal_query *query, const char *before, const struct buf *value)
{
    size_t at = query->strings.len;
    if (query->strings.capacity - at < strlen(before) + value->len + 1 ||
        buf_append_string(&query->strings, before) < 0 ||
        buf_append(&query->strings, buf_text(value), value->len) < 0 ||
        buf_append(&query->strings, "", 1) < 0)
        return NULL;
    return query->strings.data + at;
}

static bool read_count(const char *text, uint32_t *ret)
{
    size_t digits = strspn(text, "0123456789");
    long value = digits && digits < 6 && !text[digits] ? strtol(text, NULL, 10) : -1;
    *ret = (uint32_t)value;
    return value >= 1 && value <= SIZE_MAX_CELLS;
}

static bool add_env(struct terminal_query *query, const char *before, const struct buf *value)
{
    struct spec *spec = query->spec;
    const char *entry = spec->envc < LIMIT_ENV ? keep(query, before, value) : NULL;
    const char *equals = entry ? strchr(entry, '=') : NULL;
    char name[LIMIT_ENV_NAME_BYTES + 1];
    if (!equals || (size_t)(equals - entry) >= sizeof(name))
        return false;
    memcpy(name, entry, (size_t)(equals - entry));
    name[equals - entry] = '\0';
    spec->envp[spec->envc++] = entry;
    return !settings_refusal(SETTINGS_ENV, name, equals + 1);
}

static bool read_user(const char *name, uint32_t *ret)
{
    *ret = strcmp(name, "root") == 0 ? EXEC_AS_ROOT : EXEC_AS_AGENT;
    return *ret == EXEC_AS_ROOT || strcmp(name, "agent") == 0;
}

static bool read_parameter(struct terminal_query *query, const char *name, const struct buf *value)
{
    struct spec *spec = query->spec;
    if (strcmp(name, "command") == 0)
        return spec->argc < LIMIT_SPEC_STRINGS &&
               (spec->argv[spec->argc++] = keep(query, "", value)) != NULL;
    if (strcmp(name, "cwd") == 0)
        return (spec->cwd = keep(query, "", value)) && spec->cwd[0] == '/';
    if (strcmp(name, "user") == 0)
        return read_user(buf_text(value), &query->body->user);
    if (strcmp(name, "env") == 0)
        return add_env(query, "", value);
    if (strcmp(name, "term") == 0)
        return add_env(query, "TERM=", value);
    if (strcmp(name, "rows") == 0)
        return read_count(buf_text(value), &query->body->rows);
    return strcmp(name, "cols") == 0 && read_count(buf_text(value), &query->body->cols);
}

static bool read_all(struct terminal_query *query, const char *text, size_t len)
{
    cleanup_buf struct buf name = BUF_INIT(16);
    cleanup_buf struct buf value = BUF_INIT(len + 1);
    int r;
    while ((r = http_query_next(&text, &len, &name, &value)) == 1)
        if (!read_parameter(query, buf_text(&name), &value))
            return false;
    return r == 0;
}

int request_terminal(const char *query, size_t len, struct buf *ret_spec, struct msg_exec *ret,
                     struct err *err)
{
    cleanup_free struct spec *spec = calloc(1, sizeof(*spec));
    cleanup_buf struct buf strings = BUF_INIT(len + 64);
    if (!spec || !buf_reserve(&strings, len + 64))
        return err_set(err, ENOMEM, "out of memory");
    *ret = (struct msg_exec){.is_terminal = 1, .is_ended_apart = 1};
    spec->prompt = SPEC_NO_PROMPT;
    struct terminal_query parts = {strings, spec, ret};
    bool is_good = read_all(&parts, query, len);
    strings.len = parts.strings.len;
    if (!is_good || (spec->argc && !spec->argv[0][0]))
        return err_set(err, EINVAL, "%s", REQUEST_TERMINAL);
    ret->no_cwd = !spec->cwd;
    if (!spec->cwd)
        spec->cwd = "/workspace";
    if (!spec->argc) {
        memcpy(spec->argv, shell, sizeof(shell));
        spec->argc = ARRAY_LEN(shell);
    }
    return spec_encode(spec, ret_spec, err);
}

int request_resize(const char *data, size_t len, uint16_t *ret_rows, uint16_t *ret_cols)
{
    cleanup_json struct json *json = NULL;
    if (json_parse(data, len, JSON_STRICT, &json, NULL) < 0)
        return -EINVAL;
    const struct json *size = json_get(json, "resize");
    int64_t rows = json_integer(json_get(size, "rows")),
            cols = json_integer(json_get(size, "cols"));
    if (json_type(size) != JSON_OBJECT || rows < 1 || cols < 1 || rows > SIZE_MAX_CELLS ||
        cols > SIZE_MAX_CELLS)
        return -EINVAL;
    *ret_rows = (uint16_t)rows;
    *ret_cols = (uint16_t)cols;
    return 0;
}
