/* Programs that run beside the task. What they print goes straight to who asked: init hands the
 * pipes out and keeps nothing. The end is the main process's, whatever its children go on doing. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init/init.h"
#include "util/cleanup.h"

static struct {
    pid_t pid; /* 0: free */
    uint64_t exec;
    int64_t started_ms;
} programs[LIMIT_EXECS];

uint32_t exec_count(void)
{
    uint32_t count = 0;
    for (size_t i = 0; i < LIMIT_EXECS; i++)
        count += programs[i].pid != 0;
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
    while (i < LIMIT_EXECS && programs[i].pid)
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
        .cwd = IPC_TEXT(request->cwd),
    };
    struct spawned program;
    int result = spawn_program(&spawn, &program, &err);
    if (result < 0) {
        answer_failure(id, result, &err);
        return;
    }
    programs[slot].pid = program.pid;
    programs[slot].exec = request->exec;
    programs[slot].started_ms = clock_unix_ms();
    struct msg_init_started started = {.pid = program.pid};
    int fds[2] = {program.stdout_fd, program.stderr_fd};
    link_send(IPC_INIT_STARTED, id, &started, fds, 2);
    close(program.stdout_fd);
    close(program.stderr_fd);
}

bool exec_has_ended(pid_t pid, int status)
{
    for (size_t i = 0; i < LIMIT_EXECS; i++) {
        if (programs[i].pid != pid)
            continue;
        struct msg_init_ended ended = {
            .exec = programs[i].exec,
            .end = {.started_ms = programs[i].started_ms, .ended_ms = clock_unix_ms()}};
        end_from_status(status, &ended.end);
        programs[i].pid = 0;
        link_send(IPC_INIT_EXEC_ENDED, 0, &ended, NULL, 0);
        return true;
    }
    return false;
}
