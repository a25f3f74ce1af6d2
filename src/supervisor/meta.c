/*
 * meta.json; see meta.h. The file lies beside what the sandbox can write, never below it, and is
 * opened without following links all the same.
 */
#include "supervisor/meta.h"

#include <fcntl.h>
#include <string.h>

#include "agent/usage.h"
#include "supervisor/settings.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/name.h"
#include "json/json.h"

static const char *const meta_tasks[] = {
    [TASK_NONE] = "none", [TASK_RUNNING] = "running", [TASK_ENDED] = "ended", [TASK_LOST] = "lost"};

static void meta_write_lease(struct json_writer *writer, const struct meta_lease *lease)
{
    json_write_key(writer, "lease");
    json_write_object_begin(writer);
    json_write_pair_integer(writer, "pid", lease->pid);
    json_write_pair_integer(writer, "start_time", (int64_t)lease->start_time);
    json_write_pair_integer(writer, "block", lease->block);
    json_write_pair_string(writer, "boot_id", lease->boot_id);
    json_write_object_end(writer);
}

int meta_encode(const struct meta *meta, struct buf *ret, struct err *err)
{
    struct json_writer *writer = json_writer_new(ret, true);
    if (!writer)
        return err_set(err, ENOMEM, "no memory for the meta.json of %s", meta->name);
    json_write_object_begin(writer);
    json_write_pair_integer(writer, "schema", META_SCHEMA);
    json_write_pair_string(writer, "name", meta->name);
    json_write_pair_string(writer, "agent", meta->agent);
    json_write_pair_string(writer, "image", meta->image);
    json_write_pair_integer(writer, "created_ms", meta->created_ms);
    json_write_pair_integer(writer, "stopped_ms", meta->stopped_ms);
    json_write_pair_integer(writer, "latest_ms", meta->latest_ms);
    json_write_pair_bool(writer, "started", meta->was_started);
    json_write_pair_bool(writer, "cloned", meta->is_cloned);
    json_write_pair_bool(writer, "cloning", meta->is_cloning);
    if (meta->is_over_disk)
        json_write_pair_bool(writer, "over_disk", true);
    if (meta->repository[0])
        json_write_pair_string(writer, "repository", meta->repository);
    json_write_pair_string(writer, "task", meta_tasks[meta->task]);
    json_write_pair_integer(writer, "task_count", meta->task_count);
    model_usage_write(writer, "usage", &meta->usage);
    model_usage_write(writer, "task_usage", &meta->task_usage);
    settings_write(writer, &meta->settings, true);
    if (meta->lease.pid)
        meta_write_lease(writer, &meta->lease);
    json_write_object_end(writer);
    int result = json_writer_end(writer);
    return result < 0 ? err_errno(err, -result, "cannot write the meta.json of %s", meta->name) : 0;
}

/* Copies a text that must be there and fit; false otherwise. */
static bool meta_take_text(const struct json *object, const char *key, char *ret, size_t size)
{
    const char *text = json_text(json_get(object, key));
    if (!text || strlen(text) >= size)
        return false;
    memcpy(ret, text, strlen(text) + 1);
    return true;
}

static bool meta_take_name(const struct json *object, const char *key,
                           char ret[LIMIT_NAME_BYTES + 1])
{
    return meta_take_text(object, key, ret, LIMIT_NAME_BYTES + 1) &&
           name_is_valid(ret, strlen(ret));
}

static bool meta_take_task(const struct json *object, enum task_state *ret)
{
    const char *text = json_text(json_get(object, "task"));
    for (size_t i = 0; text && i < ARRAY_LEN(meta_tasks); i++) {
        if (strcmp(meta_tasks[i], text) == 0) {
            *ret = (enum task_state)i;
            return true;
        }
    }
    return false;
}

static bool meta_take_lease(const struct json *lease, struct meta_lease *ret)
{
    if (json_type(lease) == JSON_NULL)
        return true;
    int64_t pid = json_integer(json_get(lease, "pid"));
    int64_t block = json_integer(json_get(lease, "block"));
    int64_t start_time = json_integer(json_get(lease, "start_time"));
    if (pid <= 1 || pid > INT32_MAX || block < 1 || block > UINT16_MAX || start_time <= 0)
        return false;
    ret->pid = (pid_t)pid;
    ret->block = (uint32_t)block;
    ret->start_time = (uint64_t)start_time;
    return meta_take_text(lease, "boot_id", ret->boot_id, sizeof(ret->boot_id));
}

/* A record of an older Paddock has none. */
static bool meta_take_repository(const struct json *object, char ret[LIMIT_REPOSITORY_BYTES + 1])
{
    return !json_get(object, "repository") ||
           (meta_take_text(object, "repository", ret, LIMIT_REPOSITORY_BYTES + 1) &&
            name_is_repository(ret));
}

int meta_parse(const char *name, const char *text, size_t len, struct meta *ret, struct err *err)
{
    cleanup_json struct json *json = NULL;
    int result = json_parse(text, len, JSON_STRICT, &json, err);
    if (result < 0)
        return err_context(err, result, "%s of %s", META_FILE, name);
    int64_t schema = json_integer(json_get(json, "schema"));
    if (schema > META_SCHEMA)
        return err_set(err, EPROTONOSUPPORT,
                       "%s of sandbox %s has schema %lld and this paddockd knows %d: it was "
                       "written by a newer Paddock; start that one, or use another state_dir",
                       META_FILE, name, (long long)schema, META_SCHEMA);
    struct meta meta = {.created_ms = json_integer(json_get(json, "created_ms")),
                        .stopped_ms = json_integer(json_get(json, "stopped_ms")),
                        .latest_ms = json_integer(json_get(json, "latest_ms")),
                        .task_count = json_integer(json_get(json, "task_count")),
                        .was_started = schema == 1 || json_bool(json_get(json, "started")),
                        .is_cloned = json_bool(json_get(json, "cloned")),
                        .is_cloning = json_bool(json_get(json, "cloning")),
                        .is_over_disk = json_bool(json_get(json, "over_disk"))};
    model_usage_read(json_get(json, "usage"), &meta.usage);
    model_usage_read(json_get(json, "task_usage"), &meta.task_usage);
    bool is_good =
        (schema == 1 || schema == META_SCHEMA) && meta_take_name(json, "name", meta.name) &&
        strcmp(meta.name, name) == 0 && meta_take_name(json, "agent", meta.agent) &&
        meta_take_name(json, "image", meta.image) && meta_take_task(json, &meta.task) &&
        meta_take_lease(json_get(json, "lease"), &meta.lease) &&
        meta_take_repository(json, meta.repository) && settings_read(json, &meta.settings);
    if (!is_good)
        return err_set(err, EINVAL, "%s of sandbox %s is damaged", META_FILE, name);
    *ret = meta;
    return 0;
}

int meta_write(int folder_fd, const struct meta *meta, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    int result = meta_encode(meta, &text, err);
    if (result == 0)
        result = fd_write_file_atomic(folder_fd, META_FILE, 0600, text.data, text.len, err);
    return result < 0 ? err_context(err, result, "sandbox %s", meta->name) : 0;
}

int meta_read(int folder_fd, const char *name, struct meta *ret, struct err *err)
{
    cleanup_fd int fd = fd_open_beneath(folder_fd, META_FILE, O_RDONLY, 0, true, err);
    if (fd < 0)
        return err_context(err, fd, "sandbox %s", name);
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    int result = fd_read_all(fd, &text);
    if (result < 0)
        return err_errno(err, -result, "cannot read %s of sandbox %s", META_FILE, name);
    return meta_parse(name, buf_text(&text), text.len, ret, err);
}
