/* GET /df; see usage.h. Runs in api. A job in a jail prints "disk TOTAL FREE" and then du(1)'s
 * lines, "BYTES<tab>/in/KIND/NAME/PART", each folder behind those in it. */
#include "api/usage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/run.h"
#include "util/cleanup.h"
#include "util/name.h"

/* Some 300 bytes for each sandbox. */
#define USAGE_BYTES ((size_t)16 * 1024 * 1024)
#define USAGE_PARTS 4
#define DIGITS "0123456789"
#define PLACE "\t/in/"

static const struct {
    const char *folder;
    const char *key;
} usage_parts[USAGE_PARTS] = {
    {"workspace", "workspaceBytes"},
    {"overlay", "overlayBytes"},
    {"task", "taskBytes"},
    {"base.git", "baseBytes"},
};

/* A line; its texts lie in the bytes that were given. */
struct usage_line {
    int64_t bytes;
    const char *name, *part; /* NULL: there is none */
    size_t name_len, part_len;
};

/* Takes one line of this kind ("sandboxes"). */
static bool usage_take(const char *line, size_t len, const char *kind, struct usage_line *ret)
{
    char text[160];
    *ret = (struct usage_line){0};
    if (len >= sizeof(text))
        return false;
    memcpy(text, line, len);
    text[len] = '\0';
    size_t digits = strspn(text, DIGITS);
    size_t kind_len = strlen(kind);
    if (digits == 0 || digits > 18 || strncmp(text + digits, PLACE, strlen(PLACE)) != 0 ||
        strncmp(text + digits + strlen(PLACE), kind, kind_len) != 0)
        return false;
    const char *rest = line + digits + strlen(PLACE) + kind_len;
    const char *end = line + len;
    ret->bytes = strtoll(text, NULL, 10);
    if (rest == end)
        return true;
    if (*rest != '/')
        return false;
    ret->name = rest + 1;
    const char *slash = memchr(ret->name, '/', (size_t)(end - ret->name));
    ret->name_len = (size_t)((slash ? slash : end) - ret->name);
    ret->part = slash ? slash + 1 : NULL;
    ret->part_len = slash ? (size_t)(end - ret->part) : 0;
    return true;
}

static void usage_note_part(const struct usage_line *line, int64_t parts[USAGE_PARTS])
{
    for (size_t i = 0; i < USAGE_PARTS; i++)
        if (strlen(usage_parts[i].folder) == line->part_len &&
            memcmp(usage_parts[i].folder, line->part, line->part_len) == 0)
            parts[i] = line->bytes;
}

static void usage_write_one(struct json_writer *writer, const struct usage_line *line,
                            const int64_t *parts)
{
    json_write_object_begin(writer);
    json_write_key(writer, "name");
    json_write_bytes(writer, line->name, line->name_len);
    json_write_pair_integer(writer, "bytes", line->bytes);
    for (size_t i = 0; parts && i < USAGE_PARTS; i++)
        json_write_pair_integer(writer, usage_parts[i].key, parts[i]);
    json_write_object_end(writer);
}

/* An array of what there is of a kind; returns the bytes of all. */
static int64_t usage_write_kind(struct json_writer *writer, const char *data, size_t len,
                                const char *kind, bool with_parts)
{
    int64_t parts[USAGE_PARTS] = {0};
    int64_t all = 0;
    json_write_key(writer, kind);
    json_write_array_begin(writer);
    for (const char *end = data + len, *next; data < end; data = next) {
        const char *newline = memchr(data, '\n', (size_t)(end - data));
        struct usage_line line;
        next = newline ? newline + 1 : end;
        if (!usage_take(data, (size_t)((newline ? newline : end) - data), kind, &line))
            continue;
        if (line.part) {
            usage_note_part(&line, parts);
        } else if (!line.name) {
            all = line.bytes;
        } else {
            if (name_is_valid(line.name, line.name_len))
                usage_write_one(writer, &line, with_parts ? parts : NULL);
            memset(parts, 0, sizeof(parts));
        }
    }
    json_write_array_end(writer);
    return all;
}

/* The trash has entries without names that mean something. */
static int64_t usage_trash(const char *data, size_t len)
{
    for (const char *end = data + len, *next; data < end; data = next) {
        const char *newline = memchr(data, '\n', (size_t)(end - data));
        struct usage_line line;
        next = newline ? newline + 1 : end;
        if (usage_take(data, (size_t)((newline ? newline : end) - data), "trash", &line) &&
            !line.name)
            return line.bytes;
    }
    return 0;
}

static void usage_write_disk(struct json_writer *writer, const char *data, size_t len)
{
    char text[96];
    snprintf(text, sizeof(text), "%.*s", len < sizeof(text) ? (int)len : (int)sizeof(text) - 1,
             data);
    char *end = NULL;
    if (strncmp(text, "disk ", 5) != 0 || !strchr(DIGITS, text[5]))
        return;
    int64_t total = strtoll(text + 5, &end, 10);
    int64_t left = *end == ' ' ? strtoll(end, NULL, 10) : 0;
    json_write_key(writer, "disk");
    json_write_object_begin(writer);
    json_write_pair_integer(writer, "totalBytes", total);
    json_write_pair_integer(writer, "freeBytes", left);
    json_write_object_end(writer);
}

int usage_json(const char *data, size_t len, struct buf *ret)
{
    struct json_writer *writer = json_writer_new(ret, false);
    if (!writer)
        return -ENOMEM;
    json_write_object_begin(writer);
    usage_write_disk(writer, data, len);
    int64_t sandboxes = usage_write_kind(writer, data, len, "sandboxes", true);
    json_write_pair_integer(writer, "sandboxesBytes", sandboxes);
    int64_t images = usage_write_kind(writer, data, len, "images", false);
    json_write_pair_integer(writer, "imagesBytes", images);
    json_write_pair_integer(writer, "trashBytes", usage_trash(data, len));
    json_write_object_end(writer);
    return json_writer_end(writer);
}

/* -------------------------------------------------------------------------------- the route */

static bool usage_on_data(struct run *run, int stream, const char *data, size_t len)
{
    struct buf *tail = &run->tails[stream];
    tail->max = stream == RUN_STDOUT ? USAGE_BYTES : LIMIT_EXEC_OUTPUT_BYTES;
    if (buf_append(tail, data, len) < 0)
        run->is_cut[stream] = true;
    return true;
}

static void usage_done(struct run *run)
{
    const struct buf *out = &run->tails[RUN_STDOUT];
    cleanup_buf struct buf json = BUF_INIT(USAGE_BYTES);
    int r = usage_json(buf_text(out), out->len, &json);
    if (run->end.kind != TASK_END_EXITED || run->end.code > 1 || run->is_cut[RUN_STDOUT] || r < 0)
        call_failed(run->call, "cannot measure the disk: %s%s", run->reason,
                    buf_text(&run->tails[RUN_STDERR])); /* 1: something went away meanwhile */
    else
        call_json(run->call, 200, &json);
}

void api_disk_usage(struct api_call *call)
{
    static const struct run_ops ops = {usage_on_data, usage_done, NULL};
    run_start(call, &ops, IPC_DISK_USAGE, NULL, -1);
}
