/*
 * The one task of a sandbox: its process, its logs, its end. Everything is recorded in the task
 * folder, through a mount that only this process has, before the supervisor is told: whoever comes
 * later finds on disk what was true. The order of the files is exit-code last, since it is the one
 * that says that the task has ended.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init/init.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"

#define LOGS 2
/* "oom_kill N" of memory.events (v2) or memory.oom_control (v1), "max N" of pids.events. */
#define OOM_KILLS "oom_kill"
#define REFUSED_FORKS "max"
#define EXIT_CODE_MAX 16
/* At the end of a task, more than a pipe can hold: a child that goes on printing holds up nothing.
 */
#define DRAIN_TURNS 4

static struct {
    enum task_state state;
    struct task_end end;
    struct ending ending;
    int oom_fd, pids_fd;
    uint64_t oom_before, pids_before;
    struct init_log logs[LOGS];
    int watchers[LIMIT_TASK_WATCHERS];
    size_t watcher_count;
} task = {.state = TASK_NONE,
          .ending = ENDING_NONE,
          .oom_fd = -1,
          .pids_fd = -1,
          .logs = {{.pipe_fd = -1, .file_fd = -1}, {.pipe_fd = -1, .file_fd = -1}}};

static const char *const log_names[LOGS] = {"stdout.log", "stderr.log"};

void task_fill_state(struct msg_init_state *ret)
{
    ret->task = task.state;
    ret->end = task.end;
    ret->task_pid = task.state == TASK_RUNNING ? task.ending.pid : 0;
}

static uint64_t read_oom_kills(void)
{
    return fd_read_count(task.oom_fd, OOM_KILLS);
}

static uint64_t read_refused_forks(void)
{
    return fd_read_count(task.pids_fd, REFUSED_FORKS);
}

static void close_watchers(void)
{
    for (size_t i = 0; i < task.watcher_count; i++)
        close(task.watchers[i]);
    task.watcher_count = 0;
}

/* A byte for each watcher; a full pipe has bytes enough, one that nobody reads any more goes. */
static void tell_watchers(void)
{
    for (size_t i = 0; i < task.watcher_count;) {
        if (write(task.watchers[i], "", 1) < 0 && errno == EPIPE) {
            close(task.watchers[i]);
            task.watchers[i] = task.watchers[--task.watcher_count];
        } else {
            i++;
        }
    }
}

void task_pump(enum init_source source)
{
    if (log_pump(&task.logs[source == SOURCE_STDERR]))
        tell_watchers();
}

/* What the last task left: its files would be taken for the new one's, its pipes may still be held
 * by processes that it left behind. */
static int clear_last(struct err *err)
{
    static const char *const names[] = {"exit-code",  "end.json",   "pid",
                                        "stdout.log", "stderr.log", "outcome.json"};
    for (size_t i = 0; i < LOGS; i++)
        log_close(&task.logs[i]);
    ending_close(&task.ending);
    cleanup_fd_at(&task.oom_fd);
    cleanup_fd_at(&task.pids_fd);
    task.oom_fd = task.pids_fd = -1;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (unlinkat(INIT_FD_TASK_FOLDER, names[i], 0) < 0 && errno != ENOENT)
            return err_errno(err, errno, "cannot remove the last task's %s", names[i]);
    return 0;
}

/* Without O_APPEND, which splice(2) refuses. */
static int open_logs(int64_t max_bytes, struct err *err)
{
    for (size_t i = 0; i < LOGS; i++) {
        int fd = openat(INIT_FD_TASK_FOLDER, log_names[i],
                        O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd < 0)
            return err_errno(err, errno, "cannot create %s", log_names[i]);
        task.logs[i] = (struct init_log){.pipe_fd = -1, .file_fd = fd, .max_bytes = max_bytes};
    }
    return 0;
}

/* The end must be recorded on a full disk too, which the task itself can make. */
static int reserve_record(struct err *err)
{
    int result = fd_reserve_file(INIT_FD_TASK_FOLDER, "end.json", 0644, TASK_END_JSON_MAX, err);
    return result < 0 ? result
                      : fd_reserve_file(INIT_FD_TASK_FOLDER, "exit-code", 0644, EXIT_CODE_MAX, err);
}

static int watch_pipes(const struct spawned *program, struct err *err)
{
    task.logs[0].pipe_fd = program->stdout_fd;
    task.logs[1].pipe_fd = program->stderr_fd;
    for (size_t i = 0; i < LOGS; i++) {
        int fd = task.logs[i].pipe_fd;
        fd_set_nonblock(fd, true);
        int result = loop_watch(fd, i ? SOURCE_STDERR : SOURCE_STDOUT, EPOLLIN, err);
        if (result < 0)
            return result;
    }
    return 0;
}

static int write_pid(struct err *err)
{
    char text[64];
    int len = snprintf(text, sizeof(text), "%d %s\n", (int)task.ending.pid, loop_boot_id());
    return fd_write_file_atomic(INIT_FD_TASK_FOLDER, "pid", 0644, text, (size_t)len, err);
}

/* Starts it and fills in what is known of it. On error nothing runs. */
static int run(struct spawn_request *request, const struct msg_init_task *body, struct err *err)
{
    int result = clear_last(err);
    if (result == 0)
        result = reserve_record(err);
    if (result == 0)
        result = open_logs(body->log_bytes > 0 ? body->log_bytes : LIMIT_TASK_LOG_BYTES, err);
    struct spawned program = {0};
    if (result == 0)
        result = ending_spawn(request, &task.ending, &program, err);
    if (result < 0)
        return result;
    task.state = TASK_RUNNING;
    task.ending.grace_ms = LIMIT_STOP_GRACE_MS;
    if (body->deadline_ms > 0)
        task.ending.deadline_at_ms = clock_monotonic_ms() + body->deadline_ms;
    result = watch_pipes(&program, err);
    if (result == 0)
        result = write_pid(err);
    if (result < 0) {
        ending_abort(&task.ending);
        task.state = TASK_NONE;
    }
    return result;
}

static const char *refusal(void)
{
    if (task.state == TASK_RUNNING)
        return "a task is already running";
    return loop_is_stopping() ? "the sandbox is being stopped" : NULL;
}

void task_start(struct ipc_message *message)
{
    const struct msg_init_task *body = IPC_BODY(message, msg_init_task);
    struct msg_init_started started = {0};
    struct err err = {0};
    const char *why_not = refusal();
    int result = why_not ? err_set(&err, EBUSY, "%s", why_not) : 0;
    if (result == 0) {
        struct spawn_request request = {
            .spec_fd = message->fd_count > 0 ? message->fds[0] : -1,
            .prompt_fd = message->fd_count > 1 ? message->fds[1] : -1,
            .procs_fd = message->fd_count > 2 ? message->fds[2] : -1,
            .user = EXEC_AS_AGENT,
            .open_files = body->open_files,
        };
        int64_t started_ms = clock_unix_ms();
        int oom_fd = ipc_take_fd(message, 4);
        int pids_fd = ipc_take_fd(message, 5);
        /* before it runs: it may hit them at once */
        uint64_t oom_before = fd_read_count(oom_fd, OOM_KILLS);
        uint64_t pids_before = fd_read_count(pids_fd, REFUSED_FORKS);
        result = run(&request, body, &err);
        task.end = (struct task_end){.started_ms = started_ms, .memory_limit = body->memory_limit};
        if (result == 0)
            task.ending.kill_fd = ipc_take_fd(message, 3);
        task.oom_fd = oom_fd;
        task.oom_before = oom_before;
        task.pids_fd = pids_fd;
        task.pids_before = pids_before;
    }
    started.code = -result;
    started.pid = result == 0 ? task.ending.pid : 0;
    IPC_SET_TEXT(started.text, err.message);
    link_send(IPC_INIT_STARTED, message->header.id, &started, NULL, 0);
}

/* How it ended, from the wait status and why it was being ended. */
static void judge(int status)
{
    struct task_end *end = &task.end;
    end_from_status(status, end);
    end->ended_ms = clock_unix_ms();
    end->oom_kills = (uint32_t)(read_oom_kills() - task.oom_before);
    end->hits = (task.logs[0].is_cut ? TASK_HIT_STDOUT : 0U) |
                (task.logs[1].is_cut ? TASK_HIT_STDERR : 0U) |
                (read_refused_forks() > task.pids_before ? TASK_HIT_PIDS : 0U);
    if (task.ending.why != TASK_END_NONE)
        end->kind = (int32_t)task.ending.why;
    else if (end->kind == TASK_END_SIGNALED && end->code == SIGKILL && end->oom_kills)
        end->kind = TASK_END_OOM;
}

/* Into the room that was kept at the start (reserve_record). */
static void record(int status)
{
    char json[TASK_END_JSON_MAX];
    char code[EXIT_CODE_MAX];
    size_t json_len = task_end_write(&task.end, json);
    int shell_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    int code_len = snprintf(code, sizeof(code), "%d\n", shell_code);
    if (fd_write_file_atomic(INIT_FD_TASK_FOLDER, "end.json", 0644, json, json_len, NULL) == 0)
        fd_write_file_atomic(INIT_FD_TASK_FOLDER, "exit-code", 0644, code, (size_t)code_len, NULL);
}

bool task_has_ended(pid_t pid, int status)
{
    if (task.state != TASK_RUNNING || pid != task.ending.pid)
        return false;
    /* All that it wrote itself is in the pipes. What a child of its writes later is still taken
     * until the next task, but nobody waits for it. */
    for (size_t i = 0; i < LOGS; i++)
        for (int turn = 0; turn < DRAIN_TURNS && log_pump(&task.logs[i]); turn++)
            ;
    ending_over(&task.ending);
    judge(status);
    record(status);
    task.state = TASK_ENDED;
    struct msg_init_ended ended = {.end = task.end};
    link_send(IPC_INIT_TASK_ENDED, 0, &ended, NULL, 0);
    close_watchers(); /* after the message: who saw the end of the log asks for the state */
    return true;
}

void task_cancel(const struct ipc_message *message)
{
    loop_reap(); /* one that has ended by itself keeps its own outcome */
    if (task.state != TASK_RUNNING) {
        link_send_status(message->header.id, ESRCH, "no task is running");
        return;
    }
    const struct msg_init_grace *body = IPC_BODY(message, msg_init_grace);
    ending_begin(&task.ending, body->is_over_disk ? TASK_END_DISK : TASK_END_CANCELLED,
                 body->grace_ms);
    link_send_status(message->header.id, 0, "");
}

void task_stop(int64_t grace_ms)
{
    loop_reap();
    if (task.state == TASK_RUNNING)
        ending_begin(&task.ending, TASK_END_CANCELLED, grace_ms);
}

int64_t task_timer_ms(void)
{
    return task.state == TASK_RUNNING ? ending_due_ms(&task.ending) : INT64_MAX;
}

void task_on_timer(int64_t now_ms)
{
    ending_on_timer(&task.ending, now_ms);
}

void task_watch(struct ipc_message *message)
{
    cleanup_fd int fd = ipc_take_fd(message, 0);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode) || fd_set_nonblock(fd, true) < 0)
        return;
    if (task.state != TASK_RUNNING)
        return; /* the pipe closes: there is nothing to wait for */
    if (task.watcher_count == LIMIT_TASK_WATCHERS)
        tell_watchers(); /* the supervisor has counted: some of them have gone */
    if (task.watcher_count == LIMIT_TASK_WATCHERS)
        return;
    /* Its first byte at once: what was appended since it read the log, before it was known here,
     * would else be told with the next append alone. */
    if (write(fd, "", 1) == 1)
        task.watchers[task.watcher_count++] = TAKE_FD(fd);
}
