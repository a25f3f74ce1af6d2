/* Programs that run beside the task. What they print goes straight to who asked: init hands the
 * pipes out and keeps nothing. The end is the main process's, whatever its children go on doing. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init/init.h"
#include "util/cleanup.h"

static struct {
    struct ending ending; /* of pid 0: the place is free */
    uint64_t exec;
    int64_t started_ms;
} programs[LIMIT_EXECS];

uint32_t exec_count(void)
{
    uint32_t count = 0;
    for (size_t i = 0; i < LIMIT_EXECS; i++)
        count += programs[i].ending.pid != 0;
    return count;
}

void end_from_status(int status, struct task_end *ret)
{
    ret->kind = WIFSIGNALED(status) ? TASK_END_SIGNALED : TASK_END_EXITED;
    ret->code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static size_t find_free(void)
{
    size_t i = 0;
    while (i < LIMIT_EXECS && programs[i].ending.pid)
        i++;
    return i;
}

static void answer_failure(uint64_t id, int result, const struct err *err)
{
    struct msg_init_started started = {.code = -result};
    IPC_SET_TEXT(started.text, err->message);
    link_send(IPC_INIT_STARTED, id, &started, NULL, 0);
}

void exec_start(struct ipc_message *message)
{
    const struct msg_init_exec *request = IPC_BODY(message, msg_init_exec);
    uint64_t id = message->header.id;
    struct err err = {0};
    size_t slot = find_free();
    if (slot == LIMIT_EXECS || loop_is_stopping()) {
        int result = err_set(&err, EAGAIN,
                             loop_is_stopping() ? "the sandbox is being stopped"
                                                : "too many programs run here");
        answer_failure(id, result, &err);
        return;
    }
    struct spawn_request spawn = {
        .spec_fd = message->fd_count > 0 ? message->fds[0] : -1,
        .prompt_fd = -1,
        .procs_fd = message->fd_count > 1 ? message->fds[1] : -1,
        .user = request->user == EXEC_AS_ROOT ? EXEC_AS_ROOT : EXEC_AS_AGENT,
        .open_files = request->open_files,
        .cwd = IPC_TEXT(request->cwd),
        .has_stdin = request->has_stdin,
        .is_terminal = request->is_terminal,
        .rows = request->rows,
        .cols = request->cols,
    };
    struct ending ending = ENDING_NONE;
    struct spawned program;
    int result = request->is_ended_apart ? ending_spawn(&spawn, &ending, &program, &err)
                                         : spawn_program(&spawn, &program, &err);
    if (result < 0) {
        answer_failure(id, result, &err);
        return;
    }
    ending.pid = program.pid;
    ending.kill_fd = ipc_take_fd(message, 2);
    ending.grace_ms = LIMIT_EXEC_GRACE_MS;
    if (request->timeout_ms > 0)
        ending.deadline_at_ms = clock_monotonic_ms() + request->timeout_ms;
    programs[slot].ending = ending;
    programs[slot].exec = request->exec;
    programs[slot].started_ms = clock_unix_ms();
    struct msg_init_started started = {.pid = program.pid};
    int fds[3] = {program.stdout_fd, program.stderr_fd, program.stdin_fd};
    size_t pipes = program.stdin_fd < 0 ? 2 : 3;
    link_send(IPC_INIT_STARTED, id, &started, fds, program.stderr_fd < 0 ? 1 : pipes);
    close(program.stdout_fd);
    cleanup_fd_at(&program.stderr_fd);
    cleanup_fd_at(&program.stdin_fd);
}

void exec_end(const struct ipc_message *message)
{
    uint64_t exec = IPC_BODY(message, msg_init_exec_end)->exec;
    loop_reap(); /* one that has ended by itself keeps its own outcome */
    for (size_t i = 0; i < LIMIT_EXECS; i++)
        if (programs[i].ending.pid && programs[i].exec == exec)
            ending_begin(&programs[i].ending, TASK_END_CANCELLED,
                         IPC_BODY(message, msg_init_exec_end)->grace_ms);
}

bool exec_has_ended(pid_t pid, int status)
{
    for (size_t i = 0; i < LIMIT_EXECS; i++) {
        struct ending *ending = &programs[i].ending;
        if (ending->pid != pid)
            continue;
        struct msg_init_ended ended = {
            .exec = programs[i].exec,
            .end = {.started_ms = programs[i].started_ms, .ended_ms = clock_unix_ms()}};
        end_from_status(status, &ended.end);
        if (ending->why != TASK_END_NONE)
            ended.end.kind = (int32_t)ending->why;
        ending_over(ending);
        ending_close(ending);
        link_send(IPC_INIT_EXEC_ENDED, 0, &ended, NULL, 0);
        return true;
    }
    return false;
}

int64_t exec_timer_ms(void)
{
    int64_t at = INT64_MAX;
    for (size_t i = 0; i < LIMIT_EXECS; i++)
        if (programs[i].ending.pid && ending_due_ms(&programs[i].ending) < at)
            at = ending_due_ms(&programs[i].ending);
    return at;
}

void exec_on_timer(int64_t now_ms)
{
    for (size_t i = 0; i < LIMIT_EXECS; i++)
        if (programs[i].ending.pid)
            ending_on_timer(&programs[i].ending, now_ms);
}
