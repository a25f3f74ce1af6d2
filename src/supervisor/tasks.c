/*
 * Tasks: start, end, cancel, state, log. init runs the task and writes what is in the folder task/;
 * the supervisor keeps the state (in meta.json before anything is told), opens files there and
 * passes them on, and reads none of them.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent.h"
#include "supervisor/table.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/log.h"

/* The first version of messages in which init takes pids.events. */
#define HITS_VERSION 10
/* Files of an ended task, in the order of TASK_STATE. */
#define TASK_FILES 4

const char *tasks_refusal(const struct sandbox *sandbox)
{
    if (sandbox->meta.task == TASK_RUNNING || sandbox->task_number)
        return "A task is already running";
    return sandbox->meta.is_cloned ? NULL : "Clone a repository first";
}

int supervisor_read_agent(struct supervisor *supervisor, const char *name, struct agent **ret,
                          struct err *err)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/agent.json", name);
    if (supervisor->recipes_fd < 0)
        return err_set(err, ENOENT, "there is no agent %s: recipes_dir %s cannot be opened", name,
                       supervisor->config->recipes_dir);
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    int result = fd_read_file(supervisor->recipes_fd, path, &text, err);
    if (result < 0)
        return err_context(err, result, "there is no agent %s in %s", name,
                           supervisor->config->recipes_dir);
    return agent_parse(path, buf_text(&text), text.len, ret, err);
}

/* Opens task/NAME of the sandbox; nothing that an agent could have put there is followed. */
static int tasks_open(const struct sandbox *sandbox, const char *name, int flags)
{
    char path[64];
    snprintf(path, sizeof(path), "task/%s", name);
    return fd_open_beneath(sandbox->folder_fd, path, flags, 0644, true, NULL);
}

/* --------------------------------------------------------------------------------- start */

static const char *tasks_lookup(void *ctx, const char *name)
{
    const struct supervisor *supervisor = ctx;
    return config_var(supervisor->config, name);
}

static int tasks_encode(struct sandbox *sandbox, struct err *err)
{
    struct supervisor *supervisor = sandbox->supervisor;
    struct agent *agent = NULL;
    int result = supervisor_read_agent(supervisor, sandbox->meta.agent, &agent, err);
    if (result < 0)
        return result;
    cleanup_buf struct buf spec = BUF_INIT(LIMIT_SPEC_BYTES);
    result = agent_encode_spec(agent, tasks_lookup, supervisor, &spec, err);
    agent_free(agent);
    return result < 0 ? result : fd_sealed("spec", spec.data, spec.len, err);
}

/* What the last task left must never be taken for this one's. */
static int tasks_clear_files(struct sandbox *sandbox, struct err *err)
{
    static const char *const files[] = {"task/exit-code", "task/end.json", "task/outcome.json"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (unlinkat(sandbox->folder_fd, files[i], 0) < 0 && errno != ENOENT)
            return err_errno(err, errno, "cannot remove %s of the last task", files[i]);
    return 0;
}

static int tasks_send(struct sandbox *sandbox, int spec, const struct op *op, struct err *err)
{
    struct sandbox_group group = SANDBOX_GROUP_NONE;
    /* That of the last task, when something of it lives on, is in the way; it is used again. */
    sandbox_group_remove(sandbox->supervisor->host, &sandbox->instance, "task", NULL);
    int result =
        sandbox_group_create(sandbox->supervisor->host, &sandbox->instance, "task", &group, err);
    if (result < 0)
        return result;
    struct msg_init_task body = {
        .deadline_ms = op->timeout_ms ? op->timeout_ms : sandbox->supervisor->config->deadline_ms,
        .memory_limit = table_memory_bytes(sandbox),
        .log_bytes = sandbox->supervisor->config->log_mib * 1024 * 1024,
        .open_files = (uint64_t)sandbox->supervisor->config->open_files};
    int fds[] = {spec, op->fd, group.procs_fd, group.kill_fd, group.oom_fd, group.pids_fd};
    size_t most = sandbox->init_version < HITS_VERSION ? ARRAY_LEN(fds) - 1 : ARRAY_LEN(fds);
    size_t count = 2;
    while (count < most && fds[count] >= 0)
        count++;
    channel_send(sandbox->init, IPC_INIT_TASK, sandbox->task_number, &body, fds, count);
    sandbox_group_close(&group);
    return 0;
}

/* init keeps the request: the state stays `running` until it says otherwise. */
static void tasks_on_start_late(void *ctx)
{
    struct sandbox *sandbox = ctx;
    event_free(&sandbox->task_late);
    log_warn("sandbox=%s its init has not started the task in %d ms", sandbox->meta.name,
             LIMIT_ANSWER_MS);
    sandbox->is_silent = true;
    table_tell_silent(sandbox, sandbox->task_reply);
    sandbox->task_reply = (struct reply){0};
    table_pump(sandbox);
}

void tasks_start(struct sandbox *sandbox, const struct op *op)
{
    struct supervisor *supervisor = sandbox->supervisor;
    struct err err = {0};
    cleanup_fd int spec = tasks_encode(sandbox, &err);
    if (spec < 0) {
        /* Something is not set, or the agent's recipe is not as it must be: told to the user. */
        log_error(REQUEST_FIELD "sandbox=%s %s", op->reply.id, sandbox->meta.name, err.message);
        reply_status(supervisor, op->reply, IPC_STATUS_UNAVAILABLE, "%s", err.message);
        return;
    }
    enum task_state before = sandbox->meta.task;
    int result = state_check_room(supervisor, &err);
    if (result < 0) {
        reply_status(supervisor, op->reply, IPC_STATUS_UNAVAILABLE, "%s", err.message);
        return;
    }
    result = tasks_clear_files(sandbox, &err);
    sandbox->meta.task = TASK_RUNNING;
    sandbox->meta.task_count++;
    sandbox->meta.task_usage = (struct model_usage){0};
    if (result == 0)
        result = meta_write(sandbox->folder_fd, &sandbox->meta, &err);
    if (result == 0) {
        sandbox->task_number = sandbox->next_number++;
        sandbox->task_reply = op->reply;
        egress_tell_task(supervisor, sandbox);
        result = tasks_send(sandbox, spec, op, &err);
    }
    if (result == 0) {
        sandbox->task_late =
            event_timer(&supervisor->loop, LIMIT_ANSWER_MS, 0, tasks_on_start_late, sandbox);
        return;
    }
    log_error(REQUEST_FIELD "sandbox=%s %s", op->reply.id, sandbox->meta.name, err.message);
    reply_failure(supervisor, op->reply, result, err.message);
    sandbox->task_number = 0;
    sandbox->meta.task = before == TASK_ENDED ? TASK_LOST : before;
    egress_tell_task(supervisor, sandbox);
    table_save(sandbox);
}

/* There is no task any more whose end somebody could wait for, or whose log somebody could follow.
 */
static void tasks_answer_waiters(struct sandbox *sandbox)
{
    while (sandbox->follower_count)
        close(sandbox->followers[--sandbox->follower_count]);
    while (sandbox->waiters) {
        struct waiter *waiter = sandbox->waiters;
        sandbox->waiters = waiter->next;
        event_free(&waiter->late);
        reply_status(sandbox->supervisor, waiter->reply, IPC_STATUS_OK, "%s", "");
        free(waiter);
    }
}

bool tasks_started(struct sandbox *sandbox, const struct ipc_message *message)
{
    const struct msg_init_started *body = IPC_BODY(message, msg_init_started);
    if (!sandbox->task_number || message->header.id != sandbox->task_number)
        return false;
    sandbox->task_number = 0;
    event_free(&sandbox->task_late);
    table_touch(sandbox);
    if (body->code == 0) {
        log_info(REQUEST_FIELD "sandbox=%s a task runs", sandbox->task_reply.id,
                 sandbox->meta.name);
        reply_status(sandbox->supervisor, sandbox->task_reply, IPC_STATUS_OK, "%s", "");
        return true;
    }
    const char *why = IPC_TEXT(body->text);
    log_error(REQUEST_FIELD "sandbox=%s the task cannot be started: %s", sandbox->task_reply.id,
              sandbox->meta.name, why);
    /* What the recipe names is not in the image, most often: told to the user. */
    reply_status(sandbox->supervisor, sandbox->task_reply, IPC_STATUS_UNAVAILABLE,
                 "The agent %s cannot be started: %s", sandbox->meta.agent, why);
    sandbox->meta.task = TASK_NONE;
    egress_tell_task(sandbox->supervisor, sandbox);
    table_save(sandbox);
    tasks_answer_waiters(sandbox);
    table_pump(sandbox);
    return true;
}

/* ----------------------------------------------------------------------- state and its files */

static void tasks_close_files(const int fds[TASK_FILES])
{
    for (size_t i = 0; i < TASK_FILES; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* outcome.json is made here when it is not there: api may write nothing but what it is given. Where
 * it cannot be made, the outcome is judged anew each time. */
static bool tasks_open_files(const struct sandbox *sandbox, int ret[TASK_FILES])
{
    ret[0] = tasks_open(sandbox, "outcome.json", O_RDWR | O_CREAT);
    if (ret[0] < 0)
        ret[0] = memfd_create("outcome", MFD_CLOEXEC);
    ret[1] = tasks_open(sandbox, "end.json", O_RDONLY);
    ret[2] = tasks_open(sandbox, "stdout.log", O_RDONLY);
    ret[3] = tasks_open(sandbox, "stderr.log", O_RDONLY);
    return ret[0] >= 0 && ret[1] >= 0 && ret[2] >= 0 && ret[3] >= 0;
}

static void tasks_fill_state(struct sandbox *sandbox, struct msg_task_state *ret)
{
    struct supervisor *supervisor = sandbox->supervisor;
    struct agent *agent = NULL;
    *ret = (struct msg_task_state){.state = (int32_t)sandbox->meta.task};
    IPC_SET_TEXT(ret->name, sandbox->meta.name);
    IPC_SET_TEXT(ret->agent, sandbox->meta.agent);
    ret->usage = sandbox->meta.task_usage;
    if (!spending_is_over(&sandbox->meta, ret->hint, sizeof(ret->hint)))
        IPC_SET_TEXT(ret->hint, egress_hint(supervisor, settings_policy(sandbox)));
    if (supervisor_read_agent(supervisor, sandbox->meta.agent, &agent, NULL) == 0)
        IPC_SET_TEXT(ret->adapter, agent_adapter(agent));
    else
        IPC_SET_TEXT(ret->adapter, "exit-code"); /* the recipe is gone: what can still be told */
    agent_free(agent);
}

/* Sends the state as a reply, or to tell api that a task ended. */
static void tasks_send_state(struct sandbox *sandbox, enum ipc_type type, struct reply reply)
{
    struct supervisor *supervisor = sandbox->supervisor;
    struct msg_task_state body;
    tasks_fill_state(sandbox, &body);
    int fds[TASK_FILES] = {-1, -1, -1, -1};
    if (sandbox->meta.task == TASK_ENDED && !tasks_open_files(sandbox, fds)) {
        tasks_close_files(fds);
        memset(fds, -1, sizeof(fds));
        body.state = TASK_LOST; /* its record is not whole */
    }
    size_t count = fds[0] >= 0 ? TASK_FILES : 0;
    if (type == IPC_TASK_STATE)
        reply_send(supervisor, reply, type, &body, fds, count);
    else if (count)
        channel_send(supervisor->api.channel, type, 0, &body, fds, count);
    tasks_close_files(fds);
}

void tasks_get(struct supervisor *supervisor, struct reply reply, const char *name)
{
    struct sandbox *sandbox = table_find(supervisor, name);
    if (sandbox) {
        table_touch(sandbox);
        tasks_send_state(sandbox, IPC_TASK_STATE, reply);
        return;
    }
    struct msg_task_state body = {.state = TASK_NONE};
    IPC_SET_TEXT(body.name, name);
    reply_send(supervisor, reply, IPC_TASK_STATE, &body, NULL, 0);
}

/* ----------------------------------------------------------------------------------- end */

static void tasks_set_state(struct sandbox *sandbox, enum task_state state)
{
    struct counters *counters = &sandbox->supervisor->counters;
    sandbox->meta.task = state;
    egress_tell_task(sandbox->supervisor, sandbox);
    *(state == TASK_ENDED ? &counters->tasks_ended : &counters->tasks_lost) += 1;
    table_save(sandbox);
    table_touch(sandbox);
    log_info("sandbox=%s its task %s", sandbox->meta.name,
             state == TASK_ENDED ? "has ended" : "is lost: its instance died before its end");
    if (state == TASK_ENDED)
        tasks_send_state(sandbox, IPC_TASK_FINISHED, (struct reply){0});
    tasks_answer_waiters(sandbox);
}

void tasks_ended(struct sandbox *sandbox, const struct task_end *end)
{
    /* After a look (tasks_learn) it may be known already. */
    if (sandbox->meta.task != TASK_RUNNING)
        return;
    hits_look(sandbox);
    if (end->hits & TASK_HIT_LOG)
        hits_note(sandbox, HIT_LOG);
    if (end->kind == TASK_END_DEADLINE)
        hits_note(sandbox, HIT_DEADLINE);
    tasks_set_state(sandbox, TASK_ENDED);
    /* What the agent left running in the group ends with it or keeps it; the next task sees. */
    sandbox_group_remove(sandbox->supervisor->host, &sandbox->instance, "task", NULL);
}

void tasks_learn(struct sandbox *sandbox, enum task_state state, const struct task_end *end)
{
    if (sandbox->task_number || state == sandbox->meta.task)
        return; /* its start is under way, or nothing is new */
    if (sandbox->meta.task == TASK_RUNNING && state == TASK_ENDED)
        tasks_ended(sandbox, end);
    else if (sandbox->meta.task == TASK_RUNNING && state == TASK_NONE)
        tasks_set_state(sandbox, TASK_LOST); /* noted, but init never got it */
}

void tasks_instance_gone(struct sandbox *sandbox)
{
    if (sandbox->task_number) {
        sandbox->task_number = 0;
        event_free(&sandbox->task_late);
        reply_status(sandbox->supervisor, sandbox->task_reply, IPC_STATUS_UNAVAILABLE,
                     "The sandbox ended while the task was starting");
    }
    if (sandbox->meta.task != TASK_RUNNING)
        return;
    /* init puts exit-code in its place as the last of what it records. */
    struct stat st;
    bool is_recorded =
        fstatat(sandbox->folder_fd, "task/exit-code", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(st.st_mode);
    tasks_set_state(sandbox, is_recorded ? TASK_ENDED : TASK_LOST);
}

static void tasks_on_cancel_late(void *ctx)
{
    struct waiter *late = ctx;
    struct waiter **at = &late->sandbox->waiters;
    while (*at != late)
        at = &(*at)->next;
    *at = late->next;
    event_free(&late->late);
    table_tell_silent(late->sandbox, late->reply);
    free(late);
}

void tasks_cancel(struct sandbox *sandbox, struct reply reply)
{
    if (sandbox->meta.task != TASK_RUNNING) {
        reply_status(sandbox->supervisor, reply, IPC_STATUS_CONFLICT, "No task is running");
        return;
    }
    struct waiter *waiter = must_alloc(sizeof(*waiter));
    *waiter = (struct waiter){.next = sandbox->waiters, .sandbox = sandbox, .reply = reply};
    waiter->late =
        event_timer(&sandbox->supervisor->loop, LIMIT_ANSWER_MS, 0, tasks_on_cancel_late, waiter);
    sandbox->waiters = waiter;
    struct msg_init_grace grace = {.grace_ms = LIMIT_STOP_GRACE_MS};
    channel_send(sandbox->init, IPC_INIT_TASK_CANCEL, sandbox->next_number++, &grace, NULL, 0);
}

/* ------------------------------------------------------------------------- log and timer */

/* Lets go of followers that have gone: nobody holds the other end of their pipe. */
static void tasks_count_followers(struct sandbox *sandbox)
{
    for (size_t i = 0; i < sandbox->follower_count;) {
        struct pollfd pipe = {.fd = sandbox->followers[i]};
        if (poll(&pipe, 1, 0) > 0 && (pipe.revents & POLLERR)) {
            close(pipe.fd);
            sandbox->followers[i] = sandbox->followers[--sandbox->follower_count];
        } else {
            i++;
        }
    }
}

/* A pipe that gets a byte at each append of init; its end tells the end. The writing end is kept
 * here too, for the count. */
static int tasks_watch(struct sandbox *sandbox, struct err *err)
{
    int ends[2];
    tasks_count_followers(sandbox);
    if (sandbox->follower_count == LIMIT_TASK_WATCHERS)
        return err_set(err, EAGAIN,
                       "%d clients follow the log of this task already: end one of them, or read "
                       "it without following",
                       LIMIT_TASK_WATCHERS);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    channel_send(sandbox->init, IPC_INIT_TASK_WATCH, 0, NULL, &ends[1], 1);
    sandbox->followers[sandbox->follower_count++] = ends[1];
    return ends[0];
}

void tasks_log(struct sandbox *sandbox, struct reply reply, const struct msg_task_log *log)
{
    struct supervisor *supervisor = sandbox->supervisor;
    const char *name = log->stream == TASK_LOG_STDERR ? "stderr.log" : "stdout.log";
    cleanup_fd int file = tasks_open(sandbox, name, O_RDONLY);
    if (file < 0) {
        reply_status(supervisor, reply, IPC_STATUS_NOT_FOUND, "No task was started");
        return;
    }
    struct msg_task_log_opened body = {.running = sandbox->meta.task == TASK_RUNNING};
    struct err err = {0};
    cleanup_fd int watch = log->follow && body.running ? tasks_watch(sandbox, &err) : -1;
    if (err.message[0]) {
        reply_status(supervisor, reply, IPC_STATUS_UNAVAILABLE, "%s", err.message);
        return;
    }
    int fds[2] = {file, watch};
    reply_send(supervisor, reply, IPC_TASK_LOG_OPENED, &body, fds, watch < 0 ? 1 : 2);
}

void tasks_check_all(void *ctx)
{
    struct supervisor *supervisor = ctx;
    for (struct sandbox *sandbox = supervisor->sandboxes; sandbox; sandbox = sandbox->next) {
        if (sandbox->state != SANDBOX_RUNNING || sandbox->meta.task != TASK_RUNNING)
            continue;
        table_touch(sandbox);
        channel_send(sandbox->init, IPC_INIT_HELLO, sandbox->next_number++, NULL, NULL, 0);
    }
}
