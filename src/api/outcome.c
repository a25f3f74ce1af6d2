/* Outcomes of tasks; see outcome.h. Runs in api: the files were written by init as the agent
 * printed, so nothing in them is believed but what adapters make of it. */
#include "api/outcome.h"

#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "task/record.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/log.h"
#include "json/json.h"

/* Descriptors of TASK_STATE and TASK_FINISHED. */
enum { OUTCOME_JSON, END_JSON, STDOUT_LOG, STDERR_LOG, OUTCOME_FILES };

bool outcome_is_valid(const char *data, size_t len)
{
    cleanup_json struct json *json = NULL;
    struct err err;
    if (json_parse(data, len, JSON_STRICT, &json, &err) < 0)
        return false;
    const char *state = json_text(json_get(json, "state"));
    if (!state)
        return false;
    if (strcmp(state, "succeeded") == 0)
        return json_type(json_get(json, "result")) == JSON_STRING;
    return strcmp(state, "failed") == 0 && json_type(json_get(json, "error")) == JSON_STRING;
}

/* The file from its start, without moving an offset that others share. */
static int outcome_read_file(int fd, struct buf *ret)
{
    off_t at = 0;
    for (;;) {
        char chunk[16384];
        ssize_t n = pread(fd, chunk, sizeof(chunk), at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        int r = buf_append(ret, chunk, (size_t)n);
        if (r < 0)
            return r;
        at += n;
    }
}

static int outcome_judge(const struct msg_task_state *state, const int *fds, struct buf *ret,
                         struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(TASK_END_JSON_MAX);
    struct task_end end;
    int r = outcome_read_file(fds[END_JSON], &text);
    if (r < 0)
        return err_errno(err, -r, "cannot read end.json");
    r = task_end_read(buf_text(&text), text.len, &end, err);
    if (r < 0)
        return r;
    struct agent_ended task = {
        .adapter = IPC_TEXT(state->adapter),
        .agent_name = IPC_TEXT(state->agent),
        .hint = IPC_TEXT(state->hint),
        .end = &end,
        .stdout_fd = fds[STDOUT_LOG],
        .stderr_fd = fds[STDERR_LOG],
    };
    return agent_outcome(&task, ret, err);
}

/* A write that is torn (full disk, power) leaves what does not parse, and is judged again. */
static void outcome_write(int fd, const struct buf *text)
{
    size_t at = 0;
    int r = ftruncate(fd, 0) < 0 ? -errno : 0;
    while (r == 0 && at < text->len) {
        ssize_t n = pwrite(fd, text->data + at, text->len - at, (off_t)at);
        if (n < 0 && errno != EINTR)
            r = -errno;
        if (n > 0)
            at += (size_t)n;
    }
    if (r < 0)
        log_warn("cannot write outcome.json: %s", strerror(-r));
}

int outcome_read(struct ipc_message *message, struct buf *ret, struct err *err)
{
    if (message->fd_count != OUTCOME_FILES)
        return err_set(err, EPROTO, "the task's files did not come");
    cleanup_buf struct buf text = BUF_INIT(LIMIT_OUTCOME_BYTES);
    int r = outcome_read_file(message->fds[OUTCOME_JSON], &text);
    if (r < 0 || !outcome_is_valid(buf_text(&text), text.len)) {
        buf_clear(&text);
        r = outcome_judge(IPC_BODY(message, msg_task_state), message->fds, &text, err);
        if (r < 0)
            return r;
        outcome_write(message->fds[OUTCOME_JSON], &text);
    }
    r = buf_append(ret, text.data, text.len);
    return r < 0 ? err_errno(err, -r, "cannot keep the outcome") : 0;
}
