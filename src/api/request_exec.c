/* The request that runs a program; see request.h. */
#include <stdlib.h>
#include <string.h>

#include "api/request.h"
#include "util/cleanup.h"
#include "json/json.h"

#define REQUEST_EXEC                                                                               \
    "Send {\"argv\": [\"PROGRAM\", ...], \"cwd\": \"/FOLDER\", \"user\": \"agent\" or \"root\", "  \
    "\"env\": {\"NAME\": \"VALUE\"}, \"stdin\": \"TEXT\", \"timeout_ms\": N, "                     \
    "\"end_with_client\": BOOL}, all but argv optional"

static int refuse(struct err *err)
{
    return err_set(err, EINVAL, "%s", REQUEST_EXEC);
}

static bool request_argv(const struct json *argv, struct spec *spec)
{
    const char *program = json_text(json_at(argv, 0));
    if (json_type(argv) != JSON_ARRAY || json_count(argv) > LIMIT_SPEC_STRINGS || !program ||
        !program[0])
        return false;
    for (size_t i = 0; i < json_count(argv); i++) {
        spec->argv[i] = json_text(json_at(argv, i));
        if (!spec->argv[i])
            return false;
    }
    spec->argc = (uint32_t)json_count(argv);
    return true;
}

static bool request_user(const struct json *user, uint32_t *ret)
{
    const char *name = user ? json_text(user) : "agent";
    *ret = name && strcmp(name, "root") == 0 ? EXEC_AS_ROOT : EXEC_AS_AGENT;
    return name && (*ret == EXEC_AS_ROOT || strcmp(name, "agent") == 0);
}

static int request_env(const struct json *object, struct buf *list, struct spec *spec,
                       struct err *err)
{
    if (!object)
        return 0;
    if (json_type(object) != JSON_OBJECT || json_count(object) > LIMIT_ENV)
        return err_set(err, EINVAL, "\"env\" must be an object of at most %d members", LIMIT_ENV);
    for (size_t i = 0; i < json_count(object); i++) {
        const char *name = json_key_at(object, i), *value = json_text(json_at(object, i));
        const char *why = value ? settings_refusal(SETTINGS_ENV, name, value)
                                : "must have a text without NUL as its value";
        if (why)
            return err_set(err, EINVAL, "env: \"%.80s\" %s", name, why);
        if (settings_add(list, name, value) < 0)
            return err_set(err, EINVAL, "\"env\" is over %zu bytes in all", list->max);
    }
    for (const char *at = buf_text(list); at < buf_text(list) + list->len; at += strlen(at) + 1)
        spec->envp[spec->envc++] = at;
    return 0;
}

static bool request_options(const struct json *json, struct request_exec *ret)
{
    const struct json *input = json_get(json, "stdin");
    const struct json *timeout = json_get(json, "timeout_ms");
    const struct json *ends = json_get(json, "end_with_client");
    size_t len = 0;
    const char *text = json_string(input, &len);
    ret->body.timeout_ms = timeout ? json_integer(timeout) : 0;
    ret->body.is_ended_apart = json_bool(ends);
    ret->body.has_stdin = input != NULL;
    if ((timeout && (json_type(timeout) != JSON_INTEGER || ret->body.timeout_ms < 1 ||
                     ret->body.timeout_ms > LIMIT_EXEC_TIMEOUT_MS)) ||
        (ends && json_type(ends) != JSON_BOOL) || (input && !text))
        return false;
    ret->input = BUF_INIT(LIMIT_API_JSON_BYTES);
    return !input || buf_append(&ret->input, text, len) == 0;
}

int request_exec(const char *data, size_t len, struct request_exec *ret, struct err *err)
{
    static const char *const keys[] = {"argv",  "cwd",        "user",           "env",
                                       "stdin", "timeout_ms", "end_with_client"};
    cleanup_json struct json *json = NULL;
    cleanup_free struct spec *spec = calloc(1, sizeof(*spec));
    cleanup_buf struct buf env = BUF_INIT(LIMIT_ENV_BYTES);
    struct err ignored;
    *ret = (struct request_exec){.spec = BUF_INIT(LIMIT_SPEC_BYTES)};
    if (!spec)
        return err_set(err, ENOMEM, "out of memory");
    if (json_parse(data, len, JSON_STRICT, &json, &ignored) < 0 ||
        !request_has_only(json, keys, ARRAY_LEN(keys)))
        return refuse(err);
    const struct json *cwd = json_get(json, "cwd");
    spec->cwd = cwd ? json_text(cwd) : "/workspace";
    spec->prompt = SPEC_NO_PROMPT;
    if (!request_argv(json_get(json, "argv"), spec) || !spec->cwd || spec->cwd[0] != '/' ||
        !request_user(json_get(json, "user"), &ret->body.user) || !request_options(json, ret))
        return refuse(err);
    ret->body.no_cwd = !cwd;
    int result = request_env(json_get(json, "env"), &env, spec, err);
    return result < 0 ? result : spec_encode(spec, &ret->spec, err);
}

void request_exec_free(struct request_exec *request)
{
    buf_free(&request->spec);
    buf_free(&request->input);
}
