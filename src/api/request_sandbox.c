/* What clients set of sandboxes, and which ones they list; see request.h. Runs in api on foreign
 * bytes. What only the supervisor knows (agents, policies, the daemon's limits) is checked there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/request.h"
#include "http/router.h"
#include "ipc/ipc.h"
#include "util/cleanup.h"
#include "util/name.h"
#include "json/json.h"

#define REQUEST_PUT                                                                                \
    "Send {\"agent\": \"AGENT\", \"policy\": \"POLICY\", \"size\": \"SIZE\", \"limits\": "         \
    "{\"memory_mib\": 1024, "                                                                      \
    "\"cpus\": 1.5, \"pids\": 256}, \"budget\": {\"output_tokens\": 100000, \"requests\": 200}, "  \
    "\"env\": {\"NAME\": \"VALUE\"}, \"labels\": {\"NAME\": "                                      \
    "\"VALUE\"}}, each of which may be left out"
#define REQUEST_LIST                                                                               \
    "The query may have state=stopped, starting, running or stopping, and label=NAME=VALUE or "    \
    "label=NAME, up to 8 times"
#define REQUEST_LIMIT_MAX (1LL << 40)
#define REQUEST_CPUS_MAX 65536.0
#define REQUEST_LABEL_BYTES 512

static int put_refuse(struct err *err)
{
    return err_set(err, EINVAL, "%s", REQUEST_PUT);
}

static int put_name(const struct json *value, const char *key, char ret[MSG_NAME], struct err *err)
{
    const char *name = json_text(value);
    if (!name || !name_is_valid(name, strlen(name)))
        return err_set(err, EINVAL,
                       "\"%s\" must be a name: 1-63 lowercase letters, digits or "
                       "hyphens, with no hyphen at either end",
                       key);
    memcpy(ret, name, strlen(name) + 1);
    return 0;
}

static int put_limit(const struct json *value, const char *key, int64_t *ret, struct err *err)
{
    int64_t number = json_integer(value);
    if (json_type(value) != JSON_INTEGER || number < 1 || number > REQUEST_LIMIT_MAX)
        return err_set(err, EINVAL, "limits.%s must be a whole number above 0", key);
    *ret = number;
    return 0;
}

static int put_cpus(const struct json *value, int64_t *ret, struct err *err)
{
    double cpus = json_real(value);
    bool is_number = json_type(value) == JSON_INTEGER || json_type(value) == JSON_REAL;
    if (!is_number || !(cpus >= 0.001 && cpus <= REQUEST_CPUS_MAX))
        return err_set(err, EINVAL, "limits.cpus must be a number above 0, as 1.5");
    *ret = (int64_t)(cpus * 1000 + 0.5);
    return 0;
}

/* What a body says, as it is read. */
struct put {
    bool is_patch;
    struct msg_sandbox_put message;
    struct settings lists, gone;
};

/* Of a patch: null takes it away. */
static bool put_is_null(const struct put *put, const struct json *value)
{
    return put->is_patch && json_type(value) == JSON_NULL;
}

/* Notes what a patch names. */
static void put_name_it(struct put *put, uint32_t what)
{
    if (put->is_patch)
        put->message.named |= what;
}

static int put_one_limit(const char *key, const struct json *value, struct put *put,
                         struct err *err)
{
    struct msg_sandbox_put *message = &put->message;
    bool is_null = put_is_null(put, value);
    if (strcmp(key, "memory_mib") == 0) {
        put_name_it(put, PATCH_MEMORY);
        return is_null ? 0 : put_limit(value, key, &message->memory_mib, err);
    }
    if (strcmp(key, "pids") == 0) {
        put_name_it(put, PATCH_PIDS);
        return is_null ? 0 : put_limit(value, key, &message->pids, err);
    }
    if (strcmp(key, "disk_mib") == 0) {
        put_name_it(put, PATCH_DISK);
        return is_null ? 0 : put_limit(value, key, &message->disk_mib, err);
    }
    if (strcmp(key, "inodes") == 0) {
        put_name_it(put, PATCH_INODES);
        return is_null ? 0 : put_limit(value, key, &message->inodes, err);
    }
    if (strcmp(key, "cpus") == 0) {
        put_name_it(put, PATCH_CPUS);
        return is_null ? 0 : put_cpus(value, &message->cpu_millis, err);
    }
    return err_set(err, EINVAL, "limits may have memory_mib, cpus, pids, disk_mib and inodes");
}

static int put_limits(const struct json *limits, struct put *put, struct err *err)
{
    int r = 0;
    if (put_is_null(put, limits))
        put_name_it(put, PATCH_MEMORY | PATCH_CPUS | PATCH_PIDS | PATCH_DISK | PATCH_INODES);
    else if (json_type(limits) != JSON_OBJECT)
        return put_refuse(err);
    for (size_t i = 0; r == 0 && i < json_count(limits); i++)
        r = put_one_limit(json_key_at(limits, i), json_at(limits, i), put, err);
    return r;
}

static int put_one_budget(const char *key, const struct json *value, struct put *put,
                          struct err *err)
{
    struct msg_sandbox_put *message = &put->message;
    bool is_tokens = strcmp(key, "output_tokens") == 0;
    int64_t number = json_integer(value);
    if (!is_tokens && strcmp(key, "requests") != 0)
        return err_set(err, EINVAL, "budget may have output_tokens and requests");
    put_name_it(put, is_tokens ? PATCH_OUTPUT_TOKENS : PATCH_REQUESTS);
    if (put_is_null(put, value))
        return 0;
    if (json_type(value) != JSON_INTEGER || number < 1 || number > LIMIT_BUDGET)
        return err_set(err, EINVAL, "budget.%s must be a whole number above 0", key);
    *(is_tokens ? &message->budget_output_tokens : &message->budget_requests) = number;
    return 0;
}

static int put_budget(const struct json *budget, struct put *put, struct err *err)
{
    int r = 0;
    if (put_is_null(put, budget))
        put_name_it(put, PATCH_OUTPUT_TOKENS | PATCH_REQUESTS);
    else if (json_type(budget) != JSON_OBJECT)
        return put_refuse(err);
    for (size_t i = 0; r == 0 && i < json_count(budget); i++)
        r = put_one_budget(json_key_at(budget, i), json_at(budget, i), put, err);
    return r;
}

/* One member of env or labels. */
static int put_text(const char *name, const struct json *member, enum settings_list kind,
                    struct put *put, struct err *err)
{
    bool is_env = kind == SETTINGS_ENV;
    bool is_gone = put_is_null(put, member);
    struct settings *to = is_gone ? &put->gone : &put->lists;
    struct buf *list = is_env ? &to->env : &to->labels;
    const char *key = is_env ? "env" : "labels";
    const char *value = is_gone ? "" : json_text(member);
    const char *why =
        value ? settings_refusal(kind, name, value) : "must have a text without NUL as its value";
    if (why)
        return err_set(err, EINVAL, "%s: \"%.80s\" %s", key, name, why);
    if (settings_add(list, name, value) < 0)
        return err_set(err, EINVAL, "\"%s\" is over %zu bytes in all", key, list->max);
    return 0;
}

static int put_list(const struct json *object, enum settings_list kind, struct put *put,
                    struct err *err)
{
    bool is_env = kind == SETTINGS_ENV;
    size_t most = is_env ? LIMIT_ENV : LIMIT_LABELS;
    int r = 0;
    if (put_is_null(put, object))
        put_name_it(put, is_env ? PATCH_NO_ENV : PATCH_NO_LABELS);
    else if (json_type(object) != JSON_OBJECT)
        return put_refuse(err);
    if (json_count(object) > most)
        return err_set(err, EINVAL, "\"%s\" may have at most %zu members",
                       is_env ? "env" : "labels", most);
    for (size_t i = 0; r == 0 && i < json_count(object); i++)
        r = put_text(json_key_at(object, i), json_at(object, i), kind, put, err);
    return r;
}

static int put_member(const char *key, const struct json *value, struct put *put, struct err *err)
{
    if (strcmp(key, "agent") == 0)
        return put_name(value, key, put->message.agent, err);
    if (strcmp(key, "policy") == 0) {
        put_name_it(put, PATCH_POLICY);
        return put_is_null(put, value) ? 0 : put_name(value, key, put->message.policy, err);
    }
    if (strcmp(key, "size") == 0) {
        put_name_it(put, PATCH_SIZE);
        return put_is_null(put, value) ? 0 : put_name(value, key, put->message.size, err);
    }
    if (strcmp(key, "limits") == 0)
        return put_limits(value, put, err);
    if (strcmp(key, "budget") == 0)
        return put_budget(value, put, err);
    if (strcmp(key, "env") == 0)
        return put_list(value, SETTINGS_ENV, put, err);
    if (strcmp(key, "labels") == 0)
        return put_list(value, SETTINGS_LABELS, put, err);
    return put_refuse(err);
}

static int put_finish(struct put *put, struct buf *ret_lists, struct err *err)
{
    struct msg_sandbox_put *message = &put->message;
    const struct {
        const struct buf *list;
        uint32_t *bytes;
    } lists[] = {
        {&put->lists.env, &message->env_bytes},
        {&put->lists.labels, &message->label_bytes},
        {&put->gone.env, &message->env_gone_bytes},
        {&put->gone.labels, &message->label_gone_bytes},
    };
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        *lists[i].bytes = (uint32_t)lists[i].list->len;
        if (buf_append(ret_lists, lists[i].list->data, lists[i].list->len) < 0)
            return err_set(err, ENOMEM, "out of memory");
    }
    message->is_patch = put->is_patch;
    return 0;
}

int request_sandbox_put(const char *data, size_t len, bool is_patch, struct msg_sandbox_put *ret,
                        struct buf *ret_lists, struct err *err)
{
    cleanup_json struct json *json = NULL;
    struct put put = {.is_patch = is_patch, .lists = SETTINGS_INIT, .gone = SETTINGS_INIT};
    struct err ignored;
    int r = 0;
    if (len &&
        (json_parse(data, len, JSON_STRICT, &json, &ignored) < 0 || json_type(json) != JSON_OBJECT))
        r = put_refuse(err);
    for (size_t i = 0; r == 0 && i < json_count(json); i++)
        r = put_member(json_key_at(json, i), json_at(json, i), &put, err);
    if (r == 0)
        r = put_finish(&put, ret_lists, err);
    if (r == 0)
        *ret = put.message;
    settings_free(&put.lists);
    settings_free(&put.gone);
    return r;
}

/* ------------------------------------------------------------------------------- the list */

static bool list_state(const char *value, uint32_t *ret)
{
    static const char *const states[] = {"stopped", "starting", "running", "stopping"};
    for (uint32_t i = 0; i < ARRAY_LEN(states); i++) {
        if (strcmp(value, states[i]) != 0)
            continue;
        bool is_first = *ret == 0;
        *ret = i + 1; /* the order of enum sandbox_state */
        return is_first;
    }
    return false;
}

/* "NAME=VALUE" or "NAME", by the same rules as a label that is set. */
static bool list_label(const char *value, size_t *used, struct msg_sandbox_list *ret)
{
    char name[REQUEST_LABEL_BYTES + 1];
    const char *equals = strchr(value, '=');
    size_t len = strlen(value);
    size_t name_len = equals ? (size_t)(equals - value) : len;
    if (len > REQUEST_LABEL_BYTES || ret->label_count == LIMIT_LABEL_FILTERS)
        return false;
    memcpy(name, value, name_len);
    name[name_len] = '\0';
    if (settings_refusal(SETTINGS_LABELS, name, equals ? equals + 1 : "") ||
        len >= sizeof(ret->labels) - *used)
        return false;
    memcpy(ret->labels + *used, value, len + 1);
    *used += len + 1;
    ret->label_count++;
    return true;
}

int request_sandbox_list(const char *query, size_t len, struct msg_sandbox_list *ret,
                         struct err *err)
{
    cleanup_buf struct buf name = BUF_INIT(REQUEST_LABEL_BYTES);
    cleanup_buf struct buf value = BUF_INIT(REQUEST_LABEL_BYTES);
    struct msg_sandbox_list list = {0};
    size_t used = 0;
    int r;
    while ((r = http_query_next(&query, &len, &name, &value)) == 1) {
        bool is_state = strcmp(buf_text(&name), "state") == 0;
        bool is_label = strcmp(buf_text(&name), "label") == 0;
        if (!(is_state && list_state(buf_text(&value), &list.state)) &&
            !(is_label && list_label(buf_text(&value), &used, &list)))
            return err_set(err, EINVAL, "%s", REQUEST_LIST);
    }
    if (r < 0)
        return err_set(err, EINVAL, "%s", REQUEST_LIST);
    *ret = list;
    return 0;
}

int request_only(const char *query, size_t len, const char *name, const char *value, bool *ret_has,
                 struct err *err)
{
    size_t name_len = strlen(name);
    bool is_it = len == name_len + 1 + strlen(value) && strncmp(query, name, name_len) == 0 &&
                 query[name_len] == '=' && strncmp(query + name_len + 1, value, strlen(value)) == 0;
    *ret_has = is_it;
    return len == 0 || is_it ? 0 : err_set(err, EINVAL, "The query may be %s=%s", name, value);
}
