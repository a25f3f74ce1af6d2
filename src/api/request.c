/* Bodies and queries of clients; see request.h. Runs in api on foreign bytes. */
#include "api/request.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http/router.h"
#include "ipc/ipc.h"
#include "util/cleanup.h"
#include "util/name.h"
#include "util/utf8.h"
#include "json/json.h"

#define REQUEST_CLONE "Send {\"url\": \"https://github.com/OWNER/REPOSITORY\"}"
#define REQUEST_IMAGE "Send {\"name\": \"IMAGE\"}"
#define REQUEST_TOKEN                                                                              \
    "Send {\"prefix\": \"BEGINNING OF NAMES\", \"readOnly\": true, \"expiresIn\": SECONDS}, each " \
    "of "                                                                                          \
    "which may be left out; the seconds are 1 to 315360000"
#define REQUEST_EGRESS "The query may have limit=LINES, up to 1000, and follow=1"
#define REQUEST_TASK "The query may have deadline_ms=MILLISECONDS, 1 to 604800000"
#define REQUEST_LOG "The query may have from=OFFSET, follow=1 and stream=stdout or stream=stderr"
#define REQUEST_DIFF "The query may have against=index, head or a revision, renames=1 and binary=1"
#define REQUEST_QUERY_BYTES 512
#define REQUEST_REF_BYTES 255

static int request_refuse(struct err *err, const char *text)
{
    return err_set(err, EINVAL, "%s", text);
}

/* Nothing a program could take for an option, or that is not one line. */
static bool request_is_word(const char *text, size_t max)
{
    size_t len = strlen(text);
    if (len == 0 || len > max || text[0] == '-')
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return false;
    return true;
}

/* A segment of OWNER/REPOSITORY: GitHub's own alphabet. */
static size_t request_segment(const char *text, const char *end)
{
    const char *at = text;
    while (at < end && *at && (isalnum((unsigned char)*at) || strchr("-_.", *at)))
        at++;
    size_t len = (size_t)(at - text);
    bool is_dots = (len == 1 && text[0] == '.') || (len == 2 && memcmp(text, "..", 2) == 0);
    return is_dots || (len && text[0] == '-') ? 0 : len;
}

bool request_url(const char *url, size_t len, struct buf *ret_url)
{
    static const char origin[] = "https://github.com/";
    const char *end = url + len;
    if (len < sizeof(origin) - 1 || strncasecmp(url, origin, sizeof(origin) - 1) != 0)
        return false;
    const char *owner = url + sizeof(origin) - 1;
    size_t owner_len = request_segment(owner, end);
    const char *slash = owner + owner_len;
    if (owner_len == 0 || slash == end || *slash != '/')
        return false;
    size_t repository_len = request_segment(slash + 1, end);
    const char *rest = slash + 1 + repository_len;
    if (rest < end && *rest == '/')
        rest++;
    if (repository_len == 0 || rest != end)
        return false;
    return buf_appendf(ret_url, "%s%.*s/%.*s", origin, (int)owner_len, owner, (int)repository_len,
                       slash + 1) == 0;
}

static int request_clone_spec(const char *url, const char *ref, bool tells, struct buf *ret_spec,
                              struct err *err)
{
    cleanup_free struct spec *spec = calloc(1, sizeof(*spec));
    if (!spec)
        return err_set(err, ENOMEM, "out of memory");
    static const char *const begin[] = {"git", "clone", "--depth", "1"};
    for (size_t i = 0; i < ARRAY_LEN(begin); i++)
        spec->argv[spec->argc++] = begin[i];
    if (tells)
        spec->argv[spec->argc++] = "--progress"; /* git tells it to terminals alone else */
    if (ref) {
        spec->argv[spec->argc++] = "--branch";
        spec->argv[spec->argc++] = ref;
    }
    spec->argv[spec->argc++] = "--";
    spec->argv[spec->argc++] = url;
    spec->argv[spec->argc++] = "/workspace/repo";
    spec->envp[spec->envc++] = "GIT_TERMINAL_PROMPT=0"; /* there is nobody to ask */
    spec->cwd = "/workspace";
    spec->prompt = SPEC_NO_PROMPT;
    return spec_encode(spec, ret_spec, err);
}

/* Of a URL that request_url made. */
static void request_repository(const char *url, char ret[LIMIT_REPOSITORY_BYTES + 1])
{
    const char *name = url + strlen("https://github.com/");
    size_t len = strlen(name);
    if (len > 4 && strcmp(name + len - 4, ".git") == 0)
        len -= 4;
    snprintf(ret, LIMIT_REPOSITORY_BYTES + 1, "%.*s", (int)len, name);
    if (len > LIMIT_REPOSITORY_BYTES || !name_is_repository(ret))
        ret[0] = '\0';
}

int request_clone(const char *data, size_t len, bool tells, struct buf *ret_spec,
                  char ret_repository[LIMIT_REPOSITORY_BYTES + 1], struct err *err)
{
    cleanup_json struct json *json = NULL;
    cleanup_buf struct buf url = BUF_INIT(REQUEST_QUERY_BYTES);
    struct err ignored;
    if (json_parse(data, len, JSON_STRICT, &json, &ignored) < 0 || json_type(json) != JSON_OBJECT)
        return request_refuse(err, REQUEST_CLONE);
    const char *given = json_text(json_get(json, "url"));
    if (!given || !request_url(given, strlen(given), &url))
        return request_refuse(err, REQUEST_CLONE);
    const struct json *ref = json_get(json, "ref");
    if (ref && (!json_text(ref) || !json_text(ref)[0]))
        return request_refuse(err, REQUEST_CLONE);
    if (ref && !request_is_word(json_text(ref), REQUEST_REF_BYTES))
        return request_refuse(err,
                              "The ref must be a branch or tag: no hyphen in front, no control "
                              "characters, 255 bytes at most");
    int result = request_clone_spec(buf_text(&url), json_text(ref), tells, ret_spec, err);
    if (result == 0)
        request_repository(buf_text(&url), ret_repository);
    return result;
}

bool request_has_only(const struct json *json, const char *const *keys, size_t count)
{
    if (json_type(json) != JSON_OBJECT)
        return false;
    for (size_t i = 0; i < json_count(json); i++) {
        bool is_known = false;
        for (size_t k = 0; k < count; k++)
            is_known |= strcmp(json_key_at(json, i), keys[k]) == 0;
        if (!is_known)
            return false;
    }
    return true;
}

int request_image(const char *data, size_t len, struct msg_image_name *ret, struct err *err)
{
    static const char *const keys[] = {"name", "rebuild"};
    cleanup_json struct json *json = NULL;
    struct err ignored;
    if (json_parse(data, len, JSON_STRICT, &json, &ignored) < 0 ||
        !request_has_only(json, keys, ARRAY_LEN(keys)))
        return request_refuse(err, REQUEST_IMAGE);
    const char *name = json_text(json_get(json, "name"));
    const struct json *rebuild = json_get(json, "rebuild");
    if (!name || !name_is_valid(name, strlen(name)) || (rebuild && json_type(rebuild) != JSON_BOOL))
        return request_refuse(err, REQUEST_IMAGE);
    struct msg_image_name body = {.rebuild = json_bool(rebuild)};
    IPC_SET_TEXT(body.name, name);
    *ret = body;
    return 0;
}

int request_token(const char *data, size_t len, int64_t now_ms, struct msg_api_token *ret,
                  struct err *err)
{
    static const char *const keys[] = {"prefix", "readOnly", "expiresIn"};
    cleanup_json struct json *json = NULL;
    struct err ignored;
    if (json_parse(data, len, JSON_STRICT, &json, &ignored) < 0 ||
        !request_has_only(json, keys, ARRAY_LEN(keys)))
        return request_refuse(err, REQUEST_TOKEN);
    const struct json *prefix = json_get(json, "prefix");
    const struct json *read_only = json_get(json, "readOnly");
    const struct json *seconds = json_get(json, "expiresIn");
    const char *text = prefix ? json_text(prefix) : "";
    if (!text || (prefix && !name_prefix_is_valid(text, strlen(text))) ||
        (read_only && json_type(read_only) != JSON_BOOL) ||
        (seconds && (json_integer(seconds) < 1 || json_integer(seconds) > LIMIT_TOKEN_SECONDS)))
        return request_refuse(err, REQUEST_TOKEN);
    struct msg_api_token token = {.read_only = json_bool(read_only), .created_ms = now_ms};
    token.expires_ms = seconds ? now_ms + json_integer(seconds) * 1000 : 0;
    IPC_SET_TEXT(token.prefix, text);
    *ret = token;
    return 0;
}

/* White space as JavaScript's trim() knows it; returns the length of the character, or 0. */
static size_t request_blank(const char *data, size_t len)
{
    static const char *const wide[] = {
        "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82",
        "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86", "\xe2\x80\x87",
        "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8", "\xe2\x80\xa9",
        "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80", "\xef\xbb\xbf"};
    if (data[0] == ' ' || (data[0] >= '\t' && data[0] <= '\r'))
        return 1;
    for (size_t i = 0; i < ARRAY_LEN(wide); i++) {
        size_t wide_len = strlen(wide[i]);
        if (len >= wide_len && memcmp(data, wide[i], wide_len) == 0)
            return wide_len;
    }
    return 0;
}

int request_prompt(const char *data, size_t len, struct err *err)
{
    size_t at = 0;
    size_t step = 1;
    while (at < len && (step = request_blank(data + at, len - at)))
        at += step;
    if (at == len)
        return request_refuse(err, "Send a prompt");
    if (!utf8_is_valid(data, len) || memchr(data, '\0', len))
        return request_refuse(err, "Send the prompt as UTF-8 text without NUL bytes");
    return 0;
}

static bool request_flag(const char *value, bool *ret)
{
    *ret = strcmp(value, "1") == 0;
    return *ret || strcmp(value, "0") == 0;
}

static bool request_offset(const char *value, int64_t *ret)
{
    size_t len = strspn(value, "0123456789");
    if (len == 0 || len > 18 || value[len])
        return false;
    *ret = strtoll(value, NULL, 10);
    return true;
}

int request_task(const char *query, size_t len, int64_t *ret_deadline_ms, struct err *err)
{
    cleanup_buf struct buf name = BUF_INIT(REQUEST_QUERY_BYTES);
    cleanup_buf struct buf value = BUF_INIT(REQUEST_QUERY_BYTES);
    int64_t deadline_ms = 0;
    int r;
    while ((r = http_query_next(&query, &len, &name, &value)) == 1)
        if (strcmp(buf_text(&name), "deadline_ms") != 0 ||
            !request_offset(buf_text(&value), &deadline_ms) || deadline_ms < 1 ||
            deadline_ms > LIMIT_EXEC_TIMEOUT_MS)
            return request_refuse(err, REQUEST_TASK);
    if (r < 0)
        return request_refuse(err, REQUEST_TASK);
    *ret_deadline_ms = deadline_ms;
    return 0;
}

static bool request_log_parameter(const char *name, const char *value, struct request_log *ret)
{
    if (strcmp(name, "from") == 0)
        return request_offset(value, &ret->from);
    if (strcmp(name, "follow") == 0)
        return request_flag(value, &ret->follow);
    if (strcmp(name, "stream") != 0)
        return false;
    ret->stream = strcmp(value, "stderr") == 0 ? TASK_LOG_STDERR : TASK_LOG_STDOUT;
    return ret->stream == TASK_LOG_STDERR || strcmp(value, "stdout") == 0;
}

int request_log(const char *query, size_t len, struct request_log *ret, struct err *err)
{
    cleanup_buf struct buf name = BUF_INIT(REQUEST_QUERY_BYTES);
    cleanup_buf struct buf value = BUF_INIT(REQUEST_QUERY_BYTES);
    struct request_log log = {0};
    int r;
    while ((r = http_query_next(&query, &len, &name, &value)) == 1)
        if (!request_log_parameter(buf_text(&name), buf_text(&value), &log))
            return request_refuse(err, REQUEST_LOG);
    if (r < 0)
        return request_refuse(err, REQUEST_LOG);
    *ret = log;
    return 0;
}

static bool request_egress_parameter(const char *name, const char *value,
                                     struct request_egress *ret)
{
    if (strcmp(name, "follow") == 0)
        return request_flag(value, &ret->follow);
    return strcmp(name, "limit") == 0 && request_offset(value, &ret->limit) &&
           ret->limit <= LIMIT_AUDIT_LINES;
}

int request_egress(const char *query, size_t len, struct request_egress *ret, struct err *err)
{
    cleanup_buf struct buf name = BUF_INIT(REQUEST_QUERY_BYTES);
    cleanup_buf struct buf value = BUF_INIT(REQUEST_QUERY_BYTES);
    struct request_egress egress = {.limit = LIMIT_AUDIT_LINES_DEFAULT};
    int r;
    while ((r = http_query_next(&query, &len, &name, &value)) == 1)
        if (!request_egress_parameter(buf_text(&name), buf_text(&value), &egress))
            return request_refuse(err, REQUEST_EGRESS);
    if (r < 0)
        return request_refuse(err, REQUEST_EGRESS);
    *ret = egress;
    return 0;
}

static bool request_diff_parameter(const char *name, const char *value, struct msg_diff *ret)
{
    bool is_set = false;
    uint32_t *flag = strcmp(name, "renames") == 0  ? &ret->renames
                     : strcmp(name, "binary") == 0 ? &ret->binary
                                                   : NULL;
    if (flag) {
        bool is_flag = request_flag(value, &is_set);
        *flag = is_set;
        return is_flag;
    }
    if (strcmp(name, "against") != 0 || !request_is_word(value, sizeof(ret->revision) - 1))
        return false;
    ret->against = DIFF_REVISION;
    if (strcmp(value, "index") == 0)
        ret->against = DIFF_INDEX;
    else if (strcmp(value, "head") == 0)
        ret->against = DIFF_HEAD;
    IPC_SET_TEXT(ret->revision, ret->against == DIFF_REVISION ? value : "");
    return true;
}

int request_diff(const char *query, size_t len, struct msg_diff *ret, struct err *err)
{
    cleanup_buf struct buf name = BUF_INIT(REQUEST_QUERY_BYTES);
    cleanup_buf struct buf value = BUF_INIT(REQUEST_QUERY_BYTES);
    struct msg_diff diff = {.against = DIFF_SINCE_CLONE};
    int r;
    while ((r = http_query_next(&query, &len, &name, &value)) == 1)
        if (!request_diff_parameter(buf_text(&name), buf_text(&value), &diff))
            return request_refuse(err, REQUEST_DIFF);
    if (r < 0)
        return request_refuse(err, REQUEST_DIFF);
    *ret = diff;
    return 0;
}
