/* Outcomes of tasks; see outcome.h. Runs in api: the files were written by init as the agent
 * printed, so nothing in them is believed but what adapters make of it. Invariants: a task is
 * judged by one job at a time; the thread of a job touches nothing but the job. */
#include "api/outcome.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent.h"
#include "task/record.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/log.h"
#include "json/json.h"

/* Descriptors of TASK_STATE and TASK_FINISHED. */
enum { OUTCOME_JSON, END_JSON, STDOUT_LOG, STDERR_LOG, OUTCOME_FILES };

struct outcome_job {
    uv_work_t work;
    struct outcome_job *next;
    struct stat task; /* of end.json, which each task has anew */
    struct msg_task_state state;
    int fds[OUTCOME_FILES];
    struct outcome_wait *waits;
    struct buf outcome;
    int result;
    int write_result; /* of outcome.json */
    struct err err;
};

static struct outcome_job *outcome_jobs; /* on the loop's thread */

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
static int outcome_write(int fd, const struct buf *text)
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
    return r;
}

/* On a thread of the pool. */
static void outcome_work(uv_work_t *work)
{
    struct outcome_job *job = work->data;
    job->result = outcome_judge(&job->state, job->fds, &job->outcome, &job->err);
    if (job->result == 0)
        job->write_result = outcome_write(job->fds[OUTCOME_JSON], &job->outcome);
}

static void outcome_job_free(struct outcome_job *job)
{
    for (size_t i = 0; i < OUTCOME_FILES; i++)
        cleanup_fd_at(&job->fds[i]);
    buf_free(&job->outcome);
    free(job);
}

static void outcome_worked(uv_work_t *work, int status)
{
    struct outcome_job *job = work->data;
    const char *name = IPC_TEXT(job->state.name);
    struct outcome_job **at = &outcome_jobs;
    (void)status; /* nothing is ever cancelled */
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    if (job->result < 0)
        log_error("sandbox=%s cannot judge the task: %s", name, job->err.message);
    else if (job->write_result < 0)
        log_warn("sandbox=%s cannot write outcome.json: %s", name, strerror(-job->write_result));
    while (job->waits) {
        struct outcome_wait *wait = job->waits;
        outcome_leave(wait);
        wait->done(wait->ctx, job->result < 0 ? NULL : &job->outcome, &job->err);
    }
    outcome_job_free(job);
}

void outcome_leave(struct outcome_wait *wait)
{
    if (!wait->job)
        return;
    struct outcome_wait **at = &wait->job->waits;
    while (*at != wait)
        at = &(*at)->next;
    *at = wait->next;
    wait->job = NULL;
}

static void outcome_join(struct outcome_job *job, struct outcome_wait *wait)
{
    if (!wait)
        return;
    wait->job = job;
    wait->next = job->waits;
    job->waits = wait;
}

static struct outcome_job *outcome_find_job(const struct stat *task)
{
    struct outcome_job *job = outcome_jobs;
    while (job && (job->task.st_dev != task->st_dev || job->task.st_ino != task->st_ino))
        job = job->next;
    return job;
}

static int outcome_start_job(uv_loop_t *loop, struct ipc_message *message, const struct stat *task,
                             struct outcome_job **ret, struct err *err)
{
    struct outcome_job *job = calloc(1, sizeof(*job));
    if (!job)
        return err_set(err, ENOMEM, "out of memory");
    job->work.data = job;
    job->task = *task;
    job->state = *IPC_BODY(message, msg_task_state);
    job->outcome = BUF_INIT(LIMIT_OUTCOME_BYTES);
    for (size_t i = 0; i < OUTCOME_FILES; i++)
        job->fds[i] = ipc_take_fd(message, i);
    int r = uv_queue_work(loop, &job->work, outcome_work, outcome_worked);
    if (r < 0) {
        outcome_job_free(job);
        return err_errno(err, -r, "cannot judge the task");
    }
    job->next = outcome_jobs;
    outcome_jobs = job;
    *ret = job;
    return 0;
}

int outcome_get(uv_loop_t *loop, struct ipc_message *message, struct outcome_wait *wait,
                struct buf *ret, struct err *err)
{
    if (message->fd_count != OUTCOME_FILES)
        return err_set(err, EPROTO, "the task's files did not come");
    cleanup_buf struct buf text = BUF_INIT(LIMIT_OUTCOME_BYTES);
    int r = outcome_read_file(message->fds[OUTCOME_JSON], &text);
    if (r == 0 && outcome_is_valid(buf_text(&text), text.len)) {
        r = buf_append(ret, text.data, text.len);
        return r < 0 ? err_errno(err, -r, "cannot keep the outcome") : 1;
    }
    struct stat task;
    if (fstat(message->fds[END_JSON], &task) < 0)
        return err_errno(err, errno, "cannot look at end.json");
    struct outcome_job *job = outcome_find_job(&task);
    r = job ? 0 : outcome_start_job(loop, message, &task, &job, err);
    if (r == 0)
        outcome_join(job, wait);
    return r;
}
