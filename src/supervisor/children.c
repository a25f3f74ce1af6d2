/* Children that are kept running; see children.h. */
#include "supervisor/children.h"

#include <assert.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "supervisor/spawn.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/limits.h"
#include "util/log.h"

#define CHILD_FIRST_DELAY_MS 100
#define CHILD_END_MS 1000
/* Room for a burst of answers before the channel has to keep them. */
#define CHILD_SOCKET_BYTES (1024 * 1024)

static void child_start(void *ctx)
{
    struct child *child = ctx;
    event_free(&child->timer);
    struct err err = {0};
    child->started_ms = clock_monotonic_ms();
    int result = child->type->start(child->ctx, child, &err);
    if (result < 0 && result != -EINPROGRESS)
        child_failed(child, err.message);
}

static void child_start_later(struct child *child)
{
    if (clock_monotonic_ms() - child->started_ms > LIMIT_RESTART_MS)
        child->delay_ms = 0;
    int64_t delay = child->delay_ms;
    child->delay_ms = delay ? delay * 2 : CHILD_FIRST_DELAY_MS;
    if (child->delay_ms > LIMIT_RESTART_MS)
        child->delay_ms = LIMIT_RESTART_MS;
    event_free(&child->timer);
    child->timer = event_timer(child->loop, delay, 0, child_start, child);
}

void child_failed(struct child *child, const char *why)
{
    log_error("%s cannot be started: %s", child->type->name, why);
    child_start_later(child);
}

static void child_on_end(void *ctx)
{
    struct child *child = ctx;
    int code = spawn_reap(&child->process);
    log_warn("%s ended (%s %d); it is started again", child->type->name,
             code > 128 ? "signal" : "exit code", code > 128 ? code - 128 : code);
    event_free(&child->ended);
    channel_close(&child->channel);
    sandbox_process_release(&child->process);
    child->process = (struct sandbox_process){.pidfd = -1};
    if (child->type->gone)
        child->type->gone(child->ctx);
    child_start_later(child);
}

static void child_on_message(void *ctx, struct ipc_message *message)
{
    struct child *child = ctx;
    child->type->message(child->ctx, message);
}

static void child_on_broken(void *ctx, const char *why)
{
    child_kill(ctx, why);
}

void child_kill(struct child *child, const char *why)
{
    if (!child->process.pid)
        return;
    log_warn("%s is ended: %s", child->type->name, why);
    syscall(SYS_pidfd_send_signal, child->process.pidfd, SIGKILL, NULL, 0);
}

void child_open(struct child *child, const struct child_type *type, uv_loop_t *loop, void *ctx)
{
    *child = (struct child){.type = type, .ctx = ctx, .loop = loop, .process = {.pidfd = -1}};
    child_start(child);
}

int child_run(struct child *child, const struct spawn *spawn, struct err *err)
{
    assert(spawn->fd_count < LIMIT_IPC_DESCRIPTORS);
    int pair[2];
    int result = ipc_pair(pair, err);
    if (result < 0)
        return result;
    cleanup_fd int ours = pair[0];
    cleanup_fd int theirs = pair[1];
    int bytes = CHILD_SOCKET_BYTES;
    setsockopt(ours, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes));
    setsockopt(theirs, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes));
    int fds[LIMIT_IPC_DESCRIPTORS] = {theirs};
    memcpy(fds + 1, spawn->fds, sizeof(int) * spawn->fd_count);
    struct spawn whole = *spawn;
    whole.fds = fds;
    whole.fd_count = spawn->fd_count + 1;
    result = spawn_start(&whole, &child->process, err);
    if (result < 0)
        return result;
    struct channel_owner owner = {child, child_on_message, child_on_broken};
    child->channel = channel_open(child->loop, TAKE_FD(ours), child->type->peer, &owner);
    child->ended = event_watch(child->loop, child->process.pidfd, child_on_end, child);
    log_info("%s runs as process %d", child->type->name, child->process.pid);
    return 0;
}

void child_close(struct child *child)
{
    event_free(&child->timer);
    event_free(&child->ended);
    channel_close(&child->channel);
    if (child->process.pid) {
        /* It has lines of the audit to write, and may be killed as soon as this process is gone. */
        struct pollfd ended = {.fd = child->process.pidfd, .events = POLLIN};
        if (poll(&ended, 1, CHILD_END_MS) == 0)
            log_warn("%s has not ended yet", child->type->name);
        sandbox_process_release(&child->process);
    }
    child->process = (struct sandbox_process){.pidfd = -1};
}
