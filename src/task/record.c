/* How a task ended, as JSON; see record.h. init writes it with libc alone; api and the supervisor
 * read it back. The reader takes the writer's own text and nothing else, so it needs no JSON
 * parser, and a record that was tampered with or torn is refused. */
#include "task/record.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "util/cleanup.h"

static const char *const task_end_names[] = {
    [TASK_END_NONE] = "none",           [TASK_END_EXITED] = "exited",
    [TASK_END_SIGNALED] = "signaled",   [TASK_END_CANCELLED] = "cancelled",
    [TASK_END_DEADLINE] = "deadline",   [TASK_END_OOM] = "out-of-memory",
    [TASK_END_FAILED] = "start-failed", [TASK_END_DISK] = "disk-limit",
};

const char *task_end_kind_name(enum task_end_kind kind)
{
    return (unsigned)kind < ARRAY_LEN(task_end_names) ? task_end_names[kind] : "unknown";
}

size_t task_end_write(const struct task_end *end, char ret[TASK_END_JSON_MAX])
{
    int len = snprintf(ret, TASK_END_JSON_MAX,
                       "{\"kind\":\"%s\",\"code\":%" PRId32 ",\"oomKills\":%" PRIu32
                       ",\"logCut\":%" PRIu32 ",\"startedMs\":%" PRId64 ",\"endedMs\":%" PRId64
                       ",\"memoryLimit\":%" PRId64 "}\n",
                       task_end_kind_name((enum task_end_kind)end->kind), end->code, end->oom_kills,
                       end->hits, end->started_ms, end->ended_ms, end->memory_limit);
    assert(len > 0 && len < TASK_END_JSON_MAX);
    return (size_t)len;
}

struct task_reader {
    const char *data;
    size_t len;
    bool failed;
};

static void task_read_text(struct task_reader *reader, const char *text)
{
    size_t len = strlen(text);
    if (reader->len < len || memcmp(reader->data, text, len) != 0) {
        reader->failed = true;
        return;
    }
    reader->data += len;
    reader->len -= len;
}

/* A decimal integer within [min, max], in its one shortest form. */
static int64_t task_read_integer(struct task_reader *reader, int64_t min, int64_t max)
{
    bool negative = reader->len && reader->data[0] == '-';
    size_t start = negative;
    size_t digits = 0;
    int64_t value = 0;
    for (; start + digits < reader->len; digits++) {
        char c = reader->data[start + digits];
        if (c < '0' || c > '9')
            break;
        int digit = c - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, digit, &value)) { /* negative holds INT64_MIN too */
            reader->failed = true;
            return 0;
        }
    }
    bool has_zero_in_front = digits > 1 && reader->data[start] == '0';
    if (digits == 0 || has_zero_in_front || (negative && value == 0) ||
        (!negative && value == INT64_MIN)) {
        reader->failed = true;
        return 0;
    }
    if (!negative)
        value = -value;
    reader->failed |= value < min || value > max;
    reader->data += start + digits;
    reader->len -= start + digits;
    return value;
}

static int32_t task_read_kind(struct task_reader *reader)
{
    for (size_t i = 0; i < ARRAY_LEN(task_end_names); i++) {
        size_t len = strlen(task_end_names[i]);
        if (reader->len > len && memcmp(reader->data, task_end_names[i], len) == 0 &&
            reader->data[len] == '"') {
            reader->data += len;
            reader->len -= len;
            return (int32_t)i;
        }
    }
    reader->failed = true;
    return TASK_END_NONE;
}

int task_end_read(const char *data, size_t len, struct task_end *ret, struct err *err)
{
    struct task_reader reader = {.data = data, .len = len};
    struct task_end end = {0};
    task_read_text(&reader, "{\"kind\":\"");
    end.kind = task_read_kind(&reader);
    task_read_text(&reader, "\",\"code\":");
    end.code = (int32_t)task_read_integer(&reader, INT32_MIN, INT32_MAX);
    task_read_text(&reader, ",\"oomKills\":");
    end.oom_kills = (uint32_t)task_read_integer(&reader, 0, UINT32_MAX);
    task_read_text(&reader, ",\"logCut\":");
    end.hits = (uint32_t)task_read_integer(&reader, 0, UINT32_MAX);
    task_read_text(&reader, ",\"startedMs\":");
    end.started_ms = task_read_integer(&reader, INT64_MIN, INT64_MAX);
    task_read_text(&reader, ",\"endedMs\":");
    end.ended_ms = task_read_integer(&reader, INT64_MIN, INT64_MAX);
    task_read_text(&reader, ",\"memoryLimit\":");
    end.memory_limit = task_read_integer(&reader, INT64_MIN, INT64_MAX);
    task_read_text(&reader, "}\n");
    if (reader.failed || reader.len)
        return err_set(err, EINVAL, "end.json is not a record of a task's end");
    *ret = end;
    return 0;
}
