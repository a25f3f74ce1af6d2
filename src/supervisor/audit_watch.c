/*
 * GET /sandboxes/NAME/egress: opens the audit's files for api, and makes the socket by which egress
 * sends the lines that follow. The sending ends are kept here too: the next egress gets them, so
 * that who follows notices nothing of its restart, and a sandbox's end ends them.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "supervisor/table.h"
#include "util/cleanup.h"

/* Of all that the reply may carry, one is the socket. */
#define AUDIT_FILES (LIMIT_IPC_DESCRIPTORS - 1)

static struct {
    struct audit_follower {
        char name[MSG_NAME];
        int fd; /* the sending end */
    } list[LIMIT_AUDIT_WATCHERS];
    size_t count;
} audit_followers;

static void audit_drop_follower(size_t index)
{
    close(audit_followers.list[index].fd);
    audit_followers.list[index] = audit_followers.list[--audit_followers.count];
}

/* Lets go of those that have gone: nobody holds the receiving end. */
static void audit_count_followers(void)
{
    for (size_t i = audit_followers.count; i-- > 0;) {
        struct pollfd other = {.fd = audit_followers.list[i].fd};
        if (poll(&other, 1, 0) > 0 && (other.revents & (POLLHUP | POLLERR)))
            audit_drop_follower(i);
    }
}

static void audit_tell_follower(const struct supervisor *supervisor,
                                const struct audit_follower *follower)
{
    struct msg_sandbox_name body = {0};
    IPC_SET_TEXT(body.name, follower->name);
    channel_send(supervisor->egress.channel, IPC_AUDIT_WATCH, 0, &body, &follower->fd, 1);
}

void audit_tell_followers(const struct supervisor *supervisor)
{
    audit_count_followers();
    for (size_t i = 0; i < audit_followers.count; i++)
        audit_tell_follower(supervisor, &audit_followers.list[i]);
}

void audit_end_followers(const struct supervisor *supervisor, const char *name)
{
    struct msg_sandbox_name body = {0};
    IPC_SET_TEXT(body.name, name);
    for (size_t i = audit_followers.count; i-- > 0;) {
        if (strcmp(audit_followers.list[i].name, name) != 0)
            continue;
        audit_drop_follower(i);
        channel_send(supervisor->egress.channel, IPC_AUDIT_WATCH, 0, &body, NULL, 0);
    }
}

static int audit_follow(const struct supervisor *supervisor, const char *name, struct err *err)
{
    int ends[2];
    audit_count_followers();
    if (audit_followers.count == LIMIT_AUDIT_WATCHERS)
        return err_set(err, EAGAIN,
                       "%d clients follow the requests of sandboxes already: end one of them, or "
                       "read without following",
                       LIMIT_AUDIT_WATCHERS);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        return err_errno(err, errno, "cannot make a socket");
    struct audit_follower *follower = &audit_followers.list[audit_followers.count++];
    *follower = (struct audit_follower){.fd = ends[1]};
    IPC_SET_TEXT(follower->name, name);
    audit_tell_follower(supervisor, follower);
    return ends[0];
}

/* The newest files, the present one first. */
static size_t audit_open_files(const struct supervisor *supervisor, int ret[AUDIT_FILES])
{
    size_t count = 0;
    char name[32];
    for (int64_t i = 0; count < AUDIT_FILES && i <= supervisor->config->audit_keep; i++) {
        ret[count] =
            openat(supervisor->state_fd, audit_name(i, name), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        count += ret[count] >= 0;
    }
    return count;
}

void audit_read(struct supervisor *supervisor, struct reply reply, const struct sandbox *sandbox,
                bool follow)
{
    struct err err = {0};
    int fds[1 + AUDIT_FILES];
    size_t first = follow ? 1 : 0;
    cleanup_fd int watch = follow ? audit_follow(supervisor, sandbox->meta.name, &err) : -1;
    if (follow && watch < 0) {
        reply_failure(supervisor, reply, watch, err.message);
        return;
    }
    fds[0] = watch;
    size_t count = first + audit_open_files(supervisor, fds + first);
    struct msg_egress_log_opened body = {.created_ms = sandbox->meta.created_ms};
    reply_send(supervisor, reply, IPC_EGRESS_LOG_OPENED, &body, fds, count);
    while (count > first)
        close(fds[--count]);
}
