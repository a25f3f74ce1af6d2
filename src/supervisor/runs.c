/*
 * Programs that are run for the API: execs and clones by init, diffs in a jail. Each is answered by
 * RUN_STARTED (with the read ends of its output) and RUN_ENDED, or by one STATUS. A clone that
 * ended well is told only after its commit was saved to base.git: a diff never depends on what the
 * agent leaves of the repository.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/inside.h"
#include "supervisor/jails.h"
#include "supervisor/outputs.h"
#include "supervisor/table.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/log.h"

#define BASE_FOLDER "base.git"
#define BASE_NEW "base.new"

void runs_tell_end(struct supervisor *supervisor, struct reply reply, const struct task_end *end,
                   const char *text)
{
    struct msg_run_ended body = {.end = *end};
    IPC_SET_TEXT(body.text, text);
    reply_send(supervisor, reply, IPC_RUN_ENDED, &body, NULL, 0);
}

bool runs_are_full(const struct sandbox *sandbox)
{
    size_t count = sandbox->foreign_runs;
    for (const struct run *run = sandbox->runs; run; run = run->next)
        count++;
    return count >= LIMIT_EXECS;
}

/* Takes the run out of the list; the caller frees it. NULL: there is none of that number. */
static struct run *runs_take(struct sandbox *sandbox, uint64_t number)
{
    struct run **at = &sandbox->runs;
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    struct run *run = *at;
    if (run)
        *at = run->next;
    return run;
}

/* --------------------------------------------------------------------------------- execs */

/* init keeps the request and may still run the program; who asked has gone. */
static void runs_on_late(void *ctx)
{
    struct run *run = ctx;
    struct sandbox *sandbox = run->sandbox;
    event_free(&run->late);
    log_warn("sandbox=%s its init has not started a program in %d ms", sandbox->meta.name,
             LIMIT_ANSWER_MS);
    sandbox->is_silent = true;
    table_tell_silent(sandbox, run->reply);
    run->reply = (struct reply){0};
    table_pump(sandbox); /* what waits for a place */
}

/* The first version of messages in which init ends a program apart and gives it an input. */
#define APART_VERSION 9
/* And a terminal. */
#define TERMINAL_VERSION 11
#define EXEC_GROUP "exec-"
#define EXEC_GROUP_MAX (sizeof(EXEC_GROUP) + 20)

static void runs_group_name(uint64_t number, char ret[EXEC_GROUP_MAX])
{
    snprintf(ret, EXEC_GROUP_MAX, EXEC_GROUP "%" PRIu64, number);
}

/* What ends apart from the rest has a group of its own; all else runs in init's, since to join a
 * group of the v2 tree takes an RCU grace period. */
static void runs_send(struct sandbox *sandbox, const struct run *run, const struct op *op,
                      const struct sandbox_group *group)
{
    struct msg_init_exec body = {.exec = run->number,
                                 .user = op->user,
                                 .has_stdin = op->has_stdin,
                                 .is_terminal = op->is_terminal,
                                 .rows = op->rows,
                                 .cols = op->cols,
                                 .is_ended_apart = op->is_ended_apart,
                                 .timeout_ms = op->timeout_ms,
                                 .open_files = (uint64_t)sandbox->supervisor->config->open_files};
    if (op->no_cwd && !sandbox->meta.is_cloned && !sandbox->meta.is_cloning)
        IPC_SET_TEXT(body.cwd, sandbox->workdir);
    int fds[3] = {op->fd, group->procs_fd, group->kill_fd};
    channel_send(sandbox->init, IPC_INIT_EXEC, run->number, &body, fds,
                 group->procs_fd < 0 ? 1 : 3);
}

/* -errno: it was answered. */
static int runs_make_group(struct sandbox *sandbox, const struct op *op, uint64_t number,
                           struct sandbox_group *ret)
{
    char name[EXEC_GROUP_MAX];
    struct err err = {0};
    if (!op->is_ended_apart && !op->has_stdin && !op->is_terminal)
        return 0;
    if (sandbox->init_version < (op->is_terminal ? TERMINAL_VERSION : APART_VERSION)) {
        reply_status(sandbox->supervisor, op->reply, IPC_STATUS_UNAVAILABLE,
                     "The sandbox %s was started by an older version, which knows no input, "
                     "terminal or time limit of a program: stop it, and it starts anew",
                     sandbox->meta.name);
        return -EPROTO;
    }
    if (!op->is_ended_apart)
        return 0;
    runs_group_name(number, name);
    int result =
        sandbox_group_create(sandbox->supervisor->host, &sandbox->instance, name, ret, &err);
    if (result < 0) {
        log_error(REQUEST_FIELD "sandbox=%s %s", op->reply.id, sandbox->meta.name, err.message);
        reply_failure(sandbox->supervisor, op->reply, result, err.message);
    }
    return result;
}

void runs_exec(struct sandbox *sandbox, const struct op *op)
{
    uint64_t number = sandbox->next_number++;
    struct sandbox_group group = SANDBOX_GROUP_NONE;
    if (runs_make_group(sandbox, op, number, &group) < 0)
        return;
    if (op->is_clone) {
        sandbox->meta.is_cloning = true; /* a next supervisor finishes what git began */
        IPC_SET_TEXT(sandbox->meta.repository, op->repository);
        table_save(sandbox);
        egress_set_policy(sandbox->supervisor,
                          sandbox); /* which may be for this repository alone */
    }
    struct run *run = must_alloc(sizeof(*run));
    *run = (struct run){.next = sandbox->runs,
                        .sandbox = sandbox,
                        .reply = op->reply,
                        .number = number,
                        .is_clone = op->is_clone,
                        .has_stdin = op->has_stdin,
                        .is_terminal = op->is_terminal,
                        .is_ended_apart = op->is_ended_apart,
                        .timeout_ms = op->timeout_ms};
    run->late = event_timer(&sandbox->supervisor->loop, LIMIT_ANSWER_MS, 0, runs_on_late, run);
    sandbox->runs = run;
    runs_send(sandbox, run, op, &group);
    sandbox_group_close(&group);
    table_touch(sandbox);
}

void runs_end(struct supervisor *supervisor, struct reply reply)
{
    for (struct sandbox *sandbox = supervisor->sandboxes; sandbox; sandbox = sandbox->next) {
        for (struct op *op = sandbox->queue; op; op = op->next)
            op->is_unwanted |= op->reply.id == reply.id &&
                               op->reply.generation == reply.generation && op->is_ended_apart;
        for (const struct run *run = sandbox->runs; run; run = run->next) {
            if (run->reply.id != reply.id || run->reply.generation != reply.generation ||
                !run->is_ended_apart || !sandbox->init)
                continue;
            struct msg_init_exec_end body = {.exec = run->number, .grace_ms = LIMIT_EXEC_GRACE_MS};
            channel_send(sandbox->init, IPC_INIT_EXEC_END, sandbox->next_number++, &body, NULL, 0);
        }
    }
}

/* Its own group, unless something of it lives on; and those that others left so, but only when no
 * other program has one: nobody is in a group that was just made. */
static void runs_remove_groups(const struct run *run)
{
    struct sandbox *sandbox = run->sandbox;
    bool is_alone = true;
    for (const struct run *other = sandbox->runs; other; other = other->next)
        is_alone = is_alone && !other->is_ended_apart;
    char name[EXEC_GROUP_MAX];
    runs_group_name(run->number, name);
    if (is_alone)
        sandbox_groups_remove(sandbox->supervisor->host, &sandbox->instance, EXEC_GROUP);
    else
        sandbox_group_remove(sandbox->supervisor->host, &sandbox->instance, name, NULL);
}

static void runs_free(struct run *run)
{
    if (run && run->is_ended_apart)
        runs_remove_groups(run);
    if (run)
        event_free(&run->late);
    free(run);
}

static struct run *runs_find(struct sandbox *sandbox, uint64_t number)
{
    struct run *run = sandbox->runs;
    while (run && run->number != number)
        run = run->next;
    return run;
}

/* A program that could not be executed ends as a shell tells it: 127 when it is not there, else
 * 126, with the reason where its standard error would be. */
static void runs_not_started(struct sandbox *sandbox, uint64_t number, int code, const char *why)
{
    int64_t now = clock_unix_ms();
    struct task_end end = {.kind = TASK_END_EXITED,
                           .code = code == ENOENT ? 127 : 126,
                           .started_ms = now,
                           .ended_ms = now};
    struct run *run = runs_take(sandbox, number);
    struct msg_run_started started = {0};
    reply_send(sandbox->supervisor, run->reply, IPC_RUN_STARTED, &started, NULL, 0);
    runs_tell_end(sandbox->supervisor, run->reply, &end, why);
    if (run->is_clone) {
        sandbox->meta.is_cloning = false;
        table_save(sandbox);
    }
    runs_free(run);
    table_pump(sandbox);
}

bool runs_started(struct sandbox *sandbox, struct ipc_message *message)
{
    const struct msg_init_started *body = IPC_BODY(message, msg_init_started);
    struct run *run = runs_find(sandbox, message->header.id);
    if (!run || run->is_started)
        return false;
    if (body->code != 0) {
        runs_not_started(sandbox, run->number, body->code, IPC_TEXT(body->text));
        return true;
    }
    size_t streams = run->has_stdin ? 3 : 2;
    if (message->fd_count != (run->is_terminal ? 1 : streams))
        return false;
    run->is_started = true;
    event_free(&run->late);
    reply_send(sandbox->supervisor, run->reply, IPC_RUN_STARTED, NULL, message->fds,
               message->fd_count);
    return true;
}

/* ------------------------------------------------------------- the clone's saved commit */

/* Whom the end of a clone is told to, after the jail. */
struct base_save {
    struct sandbox *sandbox;
    struct reply reply;
    struct task_end end;
};

/* An old one is exchanged: at no time, a loss of power included, is there none. */
static int base_put_in_place(struct sandbox *sandbox, struct err *err)
{
    struct supervisor *supervisor = sandbox->supervisor;
    int folder = sandbox->folder_fd;
    int result = renameat2(folder, BASE_NEW, folder, BASE_FOLDER, RENAME_EXCHANGE);
    if (result < 0 && errno == ENOENT) /* the first clone */
        result = renameat2(folder, BASE_NEW, folder, BASE_FOLDER, RENAME_NOREPLACE);
    else if (result == 0)
        state_to_trash(supervisor, folder, BASE_NEW, "base", NULL); /* else the next clone does */
    if (result < 0)
        return err_errno(err, errno, "cannot put base.git in its place");
    trash_empty(supervisor);
    sandbox->meta.is_cloned = true;
    sandbox->meta.is_cloning = false;
    return meta_write(sandbox->folder_fd, &sandbox->meta, err);
}

static void base_on_done(void *ctx, const struct task_end *end, const char *text)
{
    struct base_save *save = ctx;
    struct sandbox *sandbox = save->sandbox;
    struct err err = {0};
    sandbox->base_jail = NULL;
    int result = 0;
    if (end->kind != TASK_END_EXITED || end->code != 0)
        result = err_set(&err, EIO,
                         "The repository was cloned, but its commit could not be saved "
                         "for the diff%s%s: remove the sandbox and clone again",
                         text[0] ? ": " : "", text);
    else
        result = base_put_in_place(sandbox, &err);
    if (result < 0) {
        log_error("sandbox=%s %s", sandbox->meta.name, err.message);
        save->end.kind = TASK_END_FAILED;
        save->end.code = -result;
    }
    runs_tell_end(sandbox->supervisor, save->reply, &save->end, err.message);
    free(save);
    table_touch(sandbox);
    table_pump(sandbox);
}

static int base_start(struct sandbox *sandbox, struct base_save *save, struct err *err)
{
    /* What a supervisor that died left half made. */
    int result = state_to_trash(sandbox->supervisor, sandbox->folder_fd, BASE_NEW, "base", NULL);
    if (result < 0 && result != -ENOENT)
        return err_errno(err, -result, "cannot move the old " BASE_NEW " away");
    if (mkdirat(sandbox->folder_fd, BASE_NEW, 0755) < 0)
        return err_errno(err, errno, "cannot make " BASE_NEW);
    static const struct sandbox_gift gift = {BASE_NEW, 0, true};
    result = sandbox_give(sandbox->supervisor->host, sandbox->folder_fd, &gift, 1, err);
    if (result < 0)
        return result;
    int flags = O_PATH | O_DIRECTORY;
    cleanup_fd int out = fd_open_beneath(sandbox->folder_fd, BASE_NEW, flags, 0, false, err);
    if (out < 0)
        return out;
    cleanup_fd int in = fd_open_beneath(sandbox->folder_fd, "workspace", flags, 0, false, err);
    if (in < 0)
        return in;
    struct sandbox_jail_folder folders[] = {{in, "/in/workspace", false}, {out, "/out", true}};
    static const char *const argv[] = {"paddock-jail", "base", NULL};
    struct jail_job job = {.kind = SANDBOX_JAIL_JOB,
                           .argv = argv,
                           .folders = folders,
                           .folder_count = ARRAY_LEN(folders),
                           .stdout_fd = -1,
                           .stderr_fd = -1,
                           .done = base_on_done,
                           .ctx = save};
    return jails_start(sandbox->supervisor, &job, &sandbox->base_jail, err);
}

static void runs_save_base(struct sandbox *sandbox, struct reply reply, const struct task_end *end)
{
    struct base_save *save = must_alloc(sizeof(*save));
    *save = (struct base_save){.sandbox = sandbox, .reply = reply, .end = *end};
    struct err err = {0};
    int result = sandbox->base_jail ? err_set(&err, EBUSY, "another clone is being saved")
                                    : base_start(sandbox, save, &err);
    if (result == 0)
        return;
    log_error("sandbox=%s %s", sandbox->meta.name, err.message);
    save->end.kind = TASK_END_FAILED;
    save->end.code = -result;
    runs_tell_end(sandbox->supervisor, reply, &save->end, err.message);
    free(save);
}

void runs_resume_clone(struct sandbox *sandbox)
{
    struct task_end end = {0};
    if (!sandbox->meta.is_cloning || sandbox->base_jail)
        return;
    for (const struct run *run = sandbox->runs; run; run = run->next)
        if (run->is_clone)
            return; /* one of ours runs, and will do it */
    if (sandbox->meta.is_cloned) {
        /* A second clone, of which nobody knows whether git took it. To save HEAD now could take
         * the agent's own commits for the clone, and hide them from the diff: the first one stays.
         */
        sandbox->meta.is_cloning = false;
        table_save(sandbox);
        return;
    }
    log_info("sandbox=%s the commit of its clone was not saved yet; it is saved now",
             sandbox->meta.name);
    runs_save_base(sandbox, (struct reply){0}, &end);
}

/* ------------------------------------------------------------------------------- the end */

static void runs_clone_ended(struct sandbox *sandbox, const struct run *run,
                             const struct task_end *end)
{
    if (end->kind == TASK_END_EXITED && end->code == 0) {
        runs_save_base(sandbox, run->reply, end);
        return;
    }
    sandbox->meta.is_cloning = false;
    table_save(sandbox);
    runs_tell_end(sandbox->supervisor, run->reply, end,
                  sandbox->is_stopped_over_disk ? sandbox->failure : "");
}

/* The end of an exec, with the limit that was in its way. */
static void runs_tell_exec(struct sandbox *sandbox, const struct run *run,
                           const struct task_end *end, const struct hits *hits)
{
    char text[MSG_TEXT + 16] = "";
    bool is_killed = end->kind == TASK_END_SIGNALED && end->code == SIGKILL;
    bool has_failed = is_killed || (end->kind == TASK_END_EXITED && end->code != 0);
    if (end->kind == TASK_END_DEADLINE)
        hits_note(sandbox, HIT_DEADLINE);
    if (sandbox->is_stopped_over_disk)
        snprintf(text, sizeof(text), "paddock: %s", sandbox->failure);
    else if (has_failed && hits->memory)
        snprintf(text, sizeof(text),
                 "paddock: the sandbox ran out of memory: its limit is %" PRId64 " MiB",
                 table_memory_bytes(sandbox) >> 20);
    else if (has_failed && hits->pids)
        snprintf(text, sizeof(text), "paddock: the sandbox came to its limit of processes");
    else if (end->kind == TASK_END_DEADLINE)
        snprintf(text, sizeof(text), "paddock: the program was ended: its %" PRId64 " ms were over",
                 run->timeout_ms);
    runs_tell_end(sandbox->supervisor, run->reply, end, text);
}

void runs_ended(struct sandbox *sandbox, const struct msg_init_ended *body)
{
    struct run *run = runs_take(sandbox, body->exec);
    struct hits hits = hits_look(sandbox);
    table_touch(sandbox);
    if (run && run->is_clone)
        runs_clone_ended(sandbox, run, &body->end);
    else if (run)
        runs_tell_exec(sandbox, run, &body->end, &hits);
    else if (sandbox->foreign_runs && --sandbox->foreign_runs == 0)
        runs_resume_clone(sandbox);
    runs_free(run);
    table_pump(sandbox); /* one may have waited for a place */
}

void runs_fail_all(struct sandbox *sandbox, const char *why)
{
    struct task_end killed = {
        .kind = TASK_END_SIGNALED, .code = SIGKILL, .ended_ms = clock_unix_ms()};
    while (sandbox->runs) {
        struct run *run = sandbox->runs;
        sandbox->runs = run->next;
        if (run->is_clone)
            sandbox->meta.is_cloning = false; /* the caller saves */
        if (run->is_started)
            runs_tell_end(sandbox->supervisor, run->reply, &killed, why);
        else
            reply_status(sandbox->supervisor, run->reply, IPC_STATUS_UNAVAILABLE, "%s", why);
        runs_free(run);
    }
}

/* -------------------------------------------------------------------------------- a diff */

int outputs_open(struct outputs *ret, struct err *err)
{
    int out[2], errors[2];
    *ret = (struct outputs){{-1, -1}, {-1, -1}};
    if (pipe2(out, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    ret->read_fds[0] = out[0];
    ret->write_fds[0] = out[1];
    if (pipe2(errors, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    ret->read_fds[1] = errors[0];
    ret->write_fds[1] = errors[1];
    return 0;
}

void outputs_close(const struct outputs *outputs)
{
    for (int i = 0; i < 2; i++) {
        if (outputs->read_fds[i] >= 0)
            close(outputs->read_fds[i]);
        if (outputs->write_fds[i] >= 0)
            close(outputs->write_fds[i]);
    }
}

struct diff_run {
    struct supervisor *supervisor;
    struct reply reply;
};

static void diff_on_done(void *ctx, const struct task_end *end, const char *text)
{
    struct diff_run *run = ctx;
    run->supervisor->diff_count--;
    runs_tell_end(run->supervisor, run->reply, end, text);
    free(run);
}

static int diff_job(struct sandbox *sandbox, struct diff_run *run, const struct msg_diff *diff,
                    const int outputs[2], struct err *err)
{
    static const char *const against[] = {[DIFF_SINCE_CLONE] = "clone",
                                          [DIFF_INDEX] = "index",
                                          [DIFF_HEAD] = "head",
                                          [DIFF_REVISION] = "revision"};
    int flags = O_PATH | O_DIRECTORY;
    cleanup_fd int in = fd_open_beneath(sandbox->folder_fd, "workspace", flags, 0, false, err);
    if (in < 0)
        return in;
    cleanup_fd int base = fd_open_beneath(sandbox->folder_fd, BASE_FOLDER, flags, 0, false, NULL);
    struct sandbox_jail_folder folders[] = {{in, "/in/workspace", false},
                                            {base, "/in/base.git", false}};
    const char *revision = IPC_TEXT(diff->revision);
    const char *const argv[] = {"paddock-jail",
                                "diff",
                                against[diff->against],
                                diff->renames ? "1" : "0",
                                diff->binary ? "1" : "0",
                                diff->against == DIFF_REVISION ? revision : NULL,
                                NULL};
    struct jail_job job = {.kind = SANDBOX_JAIL_JOB,
                           .argv = argv,
                           .folders = folders,
                           .folder_count = base < 0 ? 1 : 2,
                           .stdout_fd = outputs[0],
                           .stderr_fd = outputs[1],
                           .done = diff_on_done,
                           .ctx = run};
    return jails_start(sandbox->supervisor, &job, NULL, err);
}

void runs_diff(struct supervisor *supervisor, struct reply reply, const struct msg_diff *diff)
{
    struct sandbox *sandbox = table_find(supervisor, IPC_TEXT(diff->name));
    if (!sandbox) {
        reply_status(supervisor, reply, IPC_STATUS_BAD_GATEWAY,
                     "There is no repository: clone one first");
        return;
    }
    table_touch(sandbox);
    if (supervisor->diff_count == LIMIT_DIFFS) {
        reply_status(supervisor, reply, IPC_STATUS_UNAVAILABLE,
                     "%d diffs are being made: try again", LIMIT_DIFFS);
        return;
    }
    struct err err = {0};
    cleanup_outputs struct outputs outputs;
    int result = outputs_open(&outputs, &err);
    struct diff_run *run = must_alloc(sizeof(*run));
    *run = (struct diff_run){supervisor, reply};
    if (result == 0)
        result = diff_job(sandbox, run, diff, outputs.write_fds, &err);
    if (result == 0) {
        supervisor->diff_count++;
        reply_send(supervisor, reply, IPC_RUN_STARTED, NULL, outputs.read_fds, 2);
        return;
    }
    log_error(REQUEST_FIELD "sandbox=%s %s", reply.id, sandbox->meta.name, err.message);
    reply_failure(supervisor, reply, result, err.message);
    free(run);
}
