/* Small things about one child process; see process.h. */
#include "sandbox/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/ids.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define START_TIME_FIELD 22 /* of /proc/PID/stat, proc(5); the name is field 2 */

int process_write_map(pid_t pid, const char *name, const struct id_map *lines, size_t count,
                      struct err *err)
{
    char path[64];
    char text[256];
    size_t len = 0;
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    for (size_t i = 0; i < count && len < sizeof(text); i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%u %u %u\n", lines[i].inside,
                                lines[i].outside, lines[i].count);
    cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || len >= sizeof(text) || write(fd, text, len) != (ssize_t)len)
        return err_errno(err, errno, "cannot write %s", path);
    return 0;
}

int process_write_maps(pid_t pid, uint32_t base, struct err *err)
{
    struct id_map line = {0, base, IDS_PER_BLOCK};
    int result = process_write_map(pid, "uid_map", &line, 1, err);
    return result < 0 ? result : process_write_map(pid, "gid_map", &line, 1, err);
}

int process_start_time(pid_t pid, uint64_t *ret, struct err *err)
{
    char path[64];
    char text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return err_set(err, ESRCH, "there is no process %d", (int)pid);
    text[n] = '\0';
    /* The name of the program may hold anything, brackets too: count from the last one. */
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < START_TIME_FIELD; field++)
        at = strchr(at + 1, ' ');
    if (!at)
        return err_set(err, EINVAL, "cannot understand %s", path);
    *ret = strtoull(at, NULL, 10);
    return 0;
}

void process_end(int pidfd)
{
    if (pidfd < 0)
        return;
    siginfo_t info;
    syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    while (waitid((idtype_t)P_PIDFD, (id_t)pidfd, &info, WEXITED | __WALL) < 0 && errno == EINTR)
        ;
    close(pidfd);
}
