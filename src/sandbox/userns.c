/* See userns.h. */
#include "sandbox/userns.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "util/cleanup.h"

static int write_text(const char *path, const char *text, struct err *err)
{
    cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
    size_t len = strlen(text);
    if (fd < 0 || write(fd, text, len) != (ssize_t)len)
        return err_errno(err, errno, "cannot write %s", path);
    return 0;
}

int userns_map_self(uid_t inside, uid_t uid, gid_t gid, struct err *err)
{
    char uids[64], gids[64];
    snprintf(uids, sizeof(uids), "%u %u 1\n", inside, uid);
    snprintf(gids, sizeof(gids), "%u %u 1\n", inside, gid);
    /* The files in /proc of an undumpable process are root's. */
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        return err_errno(err, errno, "cannot become dumpable");
    int result = write_text("/proc/self/setgroups", "deny", err);
    if (result == 0)
        result = write_text("/proc/self/uid_map", uids, err);
    if (result == 0)
        result = write_text("/proc/self/gid_map", gids, err);
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 && result == 0)
        result = err_errno(err, errno, "cannot become undumpable");
    return result;
}
