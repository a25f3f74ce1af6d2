/* The outcome of a task that ended, as JSON; see agent.h. Runs in api, on files that an agent
 * wrote: bounded memory whatever is in them. Ends that are not the agent's own doing are told here;
 * what the agent said is judged by its adapter. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/adapter.h"
#include "agent/agent.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "util/utf8.h"
#include "json/json.h"

static const struct agent_adapter *const agent_adapters[] = {
    &agent_adapter_claude,
    &agent_adapter_exit_code,
};

const struct agent_adapter *agent_adapter_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(agent_adapters); i++)
        if (strcmp(agent_adapters[i]->name, name) == 0)
            return agent_adapters[i];
    return NULL;
}

void agent_adapter_names(char *ret, size_t size)
{
    size_t at = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(agent_adapters) && at < size; i++)
        at += (size_t)snprintf(ret + at, size - at, "%s%s", i ? ", " : "", agent_adapters[i]->name);
}

/* Start of the last `max` characters of valid UTF-8. */
static size_t agent_tail_start(const struct buf *text, size_t max)
{
    size_t at = text->len;
    for (size_t characters = 0; at && characters < max; characters++) {
        at--;
        while (at && ((unsigned char)text->data[at] & 0xc0) == 0x80)
            at--;
    }
    return at;
}

int agent_append_tail(int fd, size_t max, struct buf *ret, struct err *err)
{
    struct stat info;
    if (fd < 0)
        return 0;
    if (fstat(fd, &info) < 0)
        return err_errno(err, errno, "cannot look at the task's output");
    size_t len = 4 * max; /* a character has four bytes at most */
    if (info.st_size < (off_t)len)
        len = info.st_size > 0 ? (size_t)info.st_size : 0;
    cleanup_free char *bytes = malloc(len + 1);
    cleanup_buf struct buf text = BUF_INIT(3 * len + 1); /* U+FFFD for each byte */
    if (!bytes)
        return err_set(err, ENOMEM, "out of memory");
    ssize_t n = pread(fd, bytes, len, info.st_size - (off_t)len);
    if (n < 0)
        return err_errno(err, errno, "cannot read the task's output");
    int r = utf8_append_lossy(&text, bytes, (size_t)n);
    if (r == 0) {
        size_t start = agent_tail_start(&text, max);
        r = buf_append(ret, buf_text(&text) + start, text.len - start);
    }
    return r < 0 ? err_errno(err, -r, "cannot keep the task's output") : 0;
}

int agent_judge_by_stderr(const struct agent_ended *task, struct agent_verdict *ret,
                          struct err *err)
{
    int r = buf_appendf(&ret->text, "%s exited with %d: ", task->agent_name, task->end->code);
    if (r < 0)
        return err_errno(err, -r, "cannot keep the error");
    return agent_append_tail(task->stderr_fd, LIMIT_STDERR_TAIL, &ret->text, err);
}

static int agent_judge_signal(const struct agent_ended *task, struct agent_verdict *ret)
{
    const char *name = sigabbrev_np(task->end->code);
    return buf_appendf(&ret->text, "%s was ended by signal %d (SIG%s)", task->agent_name,
                       task->end->code, name ? name : "?");
}

static int agent_judge_oom(const struct agent_ended *task, struct agent_verdict *ret)
{
    int64_t limit = task->end->memory_limit;
    if (limit <= 0)
        return buf_appendf(&ret->text, "%s ran out of memory", task->agent_name);
    return buf_appendf(&ret->text, "%s ran out of memory: the sandbox's limit is %" PRId64 " MiB",
                       task->agent_name, limit >> 20);
}

/* Why the task failed where that is not for the adapter to say. */
static int agent_judge_end(const struct agent_ended *task, struct agent_verdict *ret,
                           struct err *err)
{
    int r = -EINVAL;
    switch ((enum task_end_kind)task->end->kind) {
    case TASK_END_SIGNALED:
        r = agent_judge_signal(task, ret);
        break;
    case TASK_END_CANCELLED:
        r = buf_appendf(&ret->text, "the task was cancelled");
        break;
    case TASK_END_DEADLINE:
        r = buf_appendf(&ret->text, "the task's deadline passed");
        break;
    case TASK_END_OOM:
        r = agent_judge_oom(task, ret);
        break;
    case TASK_END_DISK:
        r = buf_appendf(&ret->text, "the task was ended: its sandbox was over its limit of files "
                                    "(limits.disk_mib, limits.inodes): delete some");
        break;
    case TASK_END_FAILED:
        r = buf_appendf(&ret->text, "%s could not be started: %s", task->agent_name,
                        strerrordesc_np(task->end->code) ?: "unknown error");
        break;
    case TASK_END_NONE:
    case TASK_END_EXITED:
        break;
    }
    return r < 0 ? err_errno(err, -r, "cannot tell how the task ended") : 0;
}

/* What may be why the agent failed. */
static int agent_tell_hits(const struct task_end *end, struct agent_verdict *ret)
{
    int r = 0;
    if (end->oom_kills && end->memory_limit)
        r = buf_appendf(&ret->text,
                        "\nThe sandbox ran out of memory meanwhile: its limit is %" PRId64 " MiB",
                        end->memory_limit >> 20);
    if (r == 0 && end->hits & TASK_HIT_PIDS)
        r = buf_appendf(&ret->text,
                        "\nThe sandbox came to its limit of processes meanwhile (limits.pids)");
    if (r == 0 && end->hits & TASK_HIT_DISK)
        r = buf_appendf(&ret->text, "\nThe sandbox came to its limit of files meanwhile "
                                    "(limits.disk_mib, limits.inodes)");
    return r;
}

static void agent_write_time(struct json_writer *writer, const char *key, int64_t ms)
{
    time_t seconds = ms / 1000;
    struct tm tm;
    char date[32];
    char text[64];
    if (ms <= 0 || !gmtime_r(&seconds, &tm) || tm.tm_year > 8099)
        return; /* not known */
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, sizeof(text), "%s.%03dZ", date, (int)(ms % 1000));
    json_write_pair_string(writer, key, text);
}

/* The limits of its sandbox that were hit in the task's time; no member when there are none. */
static void agent_write_hits(struct json_writer *writer, const struct task_end *end)
{
    const struct {
        const char *name;
        bool is_hit;
    } limits[] = {
        {"memory", end->oom_kills && end->memory_limit},
        {"pids", end->hits & TASK_HIT_PIDS},
        {"disk", end->hits & TASK_HIT_DISK || end->kind == TASK_END_DISK},
        {"log", end->hits & TASK_HIT_LOG},
        {"deadline", end->kind == TASK_END_DEADLINE},
    };
    bool is_first = true;
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        if (!limits[i].is_hit)
            continue;
        if (is_first) {
            json_write_key(writer, "limitsHit");
            json_write_array_begin(writer);
        }
        is_first = false;
        json_write_string(writer, limits[i].name);
    }
    if (!is_first)
        json_write_array_end(writer);
}

static void agent_write_end(struct json_writer *writer, const struct task_end *end)
{
    json_write_pair_string(writer, "end", task_end_kind_name((enum task_end_kind)end->kind));
    if (end->kind == TASK_END_EXITED)
        json_write_pair_integer(writer, "exitCode", end->code);
    if (end->kind == TASK_END_SIGNALED)
        json_write_pair_integer(writer, "signal", end->code);
    json_write_pair_integer(writer, "oomKills", end->oom_kills);
    agent_write_time(writer, "startedAt", end->started_ms);
    agent_write_time(writer, "endedAt", end->ended_ms);
    if (end->hits & TASK_HIT_LOG)
        json_write_pair_bool(writer, "logCut", true);
    agent_write_hits(writer, end);
}

static int agent_write(const struct agent_verdict *verdict, size_t len, const struct task_end *end,
                       struct buf *ret)
{
    struct json_writer *writer = json_writer_new(ret, false);
    if (!writer)
        return -ENOMEM;
    json_write_object_begin(writer);
    json_write_pair_string(writer, "state", verdict->is_success ? "succeeded" : "failed");
    json_write_key(writer, verdict->is_success ? "result" : "error");
    json_write_bytes(writer, buf_text(&verdict->text), len);
    if (verdict->is_cut || len < verdict->text.len)
        json_write_pair_bool(writer, "cut", true);
    agent_write_end(writer, end);
    json_write_object_end(writer);
    return json_writer_end(writer);
}

/* Writes the outcome, with as much of the text as fits into it. */
static int agent_write_fitting(struct agent_verdict *verdict, const struct task_end *end,
                               struct buf *ret, struct err *err)
{
    cleanup_buf struct buf clean = BUF_INIT(3 * verdict->text.max);
    int r = utf8_append_lossy(&clean, buf_text(&verdict->text), verdict->text.len);
    if (r < 0)
        return err_errno(err, -r, "cannot keep what the agent said");
    struct agent_verdict fitting = *verdict;
    fitting.text = clean;
    size_t len = clean.len;
    for (;;) {
        cleanup_buf struct buf out = BUF_INIT(LIMIT_OUTCOME_BYTES);
        r = agent_write(&fitting, len, end, &out);
        if (r == 0)
            r = buf_append(ret, out.data, out.len);
        if (r != -EMSGSIZE || len == 0)
            break;
        len = len / 4 * 3;
        while (len && ((unsigned char)clean.data[len] & 0xc0) == 0x80)
            len--;
    }
    return r < 0 ? err_errno(err, -r, "cannot write the outcome") : 0;
}

int agent_outcome(const struct agent_ended *task, struct buf *ret, struct err *err)
{
    const struct agent_adapter *adapter = agent_adapter_find(task->adapter);
    if (!adapter)
        return err_set(err, ENOENT, "no outcome adapter is called \"%s\"", task->adapter);
    struct agent_verdict verdict = {.text = BUF_INIT(LIMIT_AGENT_VALUE_BYTES + ERR_MESSAGE_MAX)};
    bool is_own_end = task->end->kind == TASK_END_EXITED;
    int r = is_own_end ? adapter->judge(task, &verdict, err) : agent_judge_end(task, &verdict, err);
    if (r == 0 && !verdict.is_success && is_own_end && task->hint[0])
        r = buf_appendf(&verdict.text, "\n%s", task->hint);
    if (r == 0 && !verdict.is_success && is_own_end)
        r = agent_tell_hits(task->end, &verdict);
    if (r == 0)
        r = agent_write_fitting(&verdict, task->end, ret, err);
    buf_free(&verdict.text);
    return r;
}
