/*
 * The child paddock-api: started with its seccomp filter, told its listening sockets. It may not
 * open files: whatever it reads or writes comes from here as a descriptor. Its requests go to
 * dispatch.c.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "supervisor/spawn.h"
#include "supervisor/supervisor.h"
#include "util/cleanup.h"
#include "util/log.h"

static int api_run(void *ctx, struct child *child, struct err *err)
{
    struct supervisor *supervisor = ctx;
    int filter = sandbox_host_seccomp_fd(supervisor->host, SECCOMP_API);
    if (filter < 0)
        return err_errno(err, -filter, "there is no seccomp filter for api");
    const char *const argv[] = {"paddock-api", log_style_argument(), NULL};
    struct spawn spawn = {
        .path = supervisor->paths->api,
        .argv = argv,
        .id = ids_daemon(sandbox_host_ids(supervisor->host), IDS_API_OFFSET),
        .is_user = sandbox_host_row(supervisor->host)->kind != ROW_ROOT,
        .fds = &filter,
        .fd_count = 1,
    };
    int result = child_run(child, &spawn, err);
    if (result < 0)
        return result;
    supervisor->api_generation++;
    tokens_tell(supervisor, child->channel);
    for (size_t i = 0; i < supervisor->listener_count; i++)
        channel_send(child->channel, IPC_API_LISTEN, 0, &supervisor->listeners[i].body,
                     &supervisor->listeners[i].fd, 1);
    return 0;
}

static void api_on_message(void *ctx, struct ipc_message *message)
{
    struct supervisor *supervisor = ctx;
    if (!dispatch_api(supervisor, message))
        child_kill(&supervisor->api, "it sent a message that makes no sense");
}

void api_start(struct supervisor *supervisor)
{
    static const struct child_type type = {"paddock-api", IPC_API, api_run, api_on_message, NULL};
    child_open(&supervisor->api, &type, &supervisor->loop, supervisor);
}

void reply_send(struct supervisor *supervisor, struct reply reply, enum ipc_type type,
                const void *body, const int *fds, size_t fd_count)
{
    if (reply.id && reply.generation == supervisor->api_generation)
        channel_send(supervisor->api.channel, type, reply.id, body, fds, fd_count);
}

void reply_status(struct supervisor *supervisor, struct reply reply, enum ipc_status status,
                  const char *format, ...)
{
    struct msg_status body = {.code = (int32_t)status};
    va_list args;
    va_start(args, format);
    vsnprintf(body.text, sizeof(body.text), format, args);
    va_end(args);
    reply_send(supervisor, reply, IPC_STATUS, &body, NULL, 0);
}

void reply_failure(struct supervisor *supervisor, struct reply reply, int result, const char *why)
{
    struct err room = {0};
    bool is_full = state_check_room(supervisor, &room) < 0;
    bool is_told =
        is_full || result == -EAGAIN || result == -EBUSY || result == -ENOSPC || result == -EDQUOT;
    reply_status(supervisor, reply, is_told ? IPC_STATUS_UNAVAILABLE : IPC_STATUS_FAILED, "%s",
                 is_full ? room.message : why);
}
