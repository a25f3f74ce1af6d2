/* See audit_watch.h. Runs in paddock-egress. A line goes to the watchers of its own sandbox and to
 * nobody else; one that does not read loses lines, and holds nothing up. */
#include "egress/audit_watch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* 0, -EAGAIN, or an error at which the watcher is gone. */
static int send_packet(int fd, const char *data, size_t len)
{
    ssize_t n;
    do
        n = send(fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

static void forget_at(struct audit_watchers *watchers, size_t index)
{
    close(watchers->list[index].fd);
    watchers->list[index] = watchers->list[--watchers->count];
}

void audit_watchers_add(struct audit_watchers *watchers, const char *sandbox, int fd, ino_t inode,
                        off_t size)
{
    char place[96];
    int len = snprintf(place, sizeof(place), "{\"inode\":%" PRIuMAX ",\"size\":%" PRIdMAX "}",
                       (uintmax_t)inode, (intmax_t)size);
    if (watchers->count == LIMIT_AUDIT_WATCHERS || send_packet(fd, place, (size_t)len)) {
        close(fd);
        return;
    }
    struct audit_watcher *watcher = &watchers->list[watchers->count++];
    *watcher = (struct audit_watcher){.fd = fd};
    snprintf(watcher->sandbox, sizeof(watcher->sandbox), "%s", sandbox);
}

void audit_watchers_forget(struct audit_watchers *watchers, const char *sandbox)
{
    for (size_t i = watchers->count; i-- > 0;)
        if (!sandbox || strcmp(watchers->list[i].sandbox, sandbox) == 0)
            forget_at(watchers, i);
}

static int tell_lost(struct audit_watcher *watcher)
{
    char text[48];
    if (!watcher->lost)
        return 0;
    int len = snprintf(text, sizeof(text), "{\"lost\":%lu}", watcher->lost);
    int result = send_packet(watcher->fd, text, (size_t)len);
    if (!result)
        watcher->lost = 0;
    return result;
}

void audit_watchers_tell(struct audit_watchers *watchers, const char *sandbox, const char *line,
                         size_t len)
{
    for (size_t i = watchers->count; i-- > 0;) {
        struct audit_watcher *watcher = &watchers->list[i];
        if (strcmp(watcher->sandbox, sandbox) != 0)
            continue;
        int result = tell_lost(watcher);
        if (!result)
            result = send_packet(watcher->fd, line, len);
        if (result == -EAGAIN)
            watcher->lost++;
        else if (result)
            forget_at(watchers, i);
    }
}
