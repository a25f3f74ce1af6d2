/* Makes the user namespace of a user's subordinate ids, once, at the daemon's start; see launch.h.
 * newuidmap(1) and newgidmap(1) hold the right to do so: they check /etc/subuid and /etc/subgid. */
#include <fcntl.h>
#include <linux/sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/launch.h"
#include "sandbox/process.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define HELPER_TEXT_MAX 400

/* Our own id, and the range after it. */
struct range_maps {
    struct id_map uids[2], gids[2];
};

static struct range_maps maps_of(const struct row *row)
{
    return (struct range_maps){.uids = {{0, row->uid, 1}, {1, row->first_uid, row->count}},
                               .gids = {{0, row->gid, 1}, {1, row->first_gid, row->count}}};
}

/* The child, which only keeps the namespace until we have opened it, or are gone. newuidmap asks
 * that /proc/PID be ours, and that of an undumpable process is root's. */
_Noreturn static void hold_namespace(int ready_fd, int life_read, int life_write)
{
    char none;
    close(life_write);
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 || write(ready_fd, "", 1) != 1)
        _exit(1);
    while (read(life_read, &none, 1) < 0 && errno == EINTR)
        ;
    _exit(0);
}

static _Noreturn void exec_helper(const char *path, pid_t pid, const struct id_map maps[2],
                                  int output)
{
    char texts[7][16];
    char *argv[9];
    static char name[64];
    snprintf(name, sizeof(name), "%s", path);
    snprintf(texts[0], sizeof(texts[0]), "%d", (int)pid);
    for (int i = 0; i < 2; i++) {
        snprintf(texts[1 + 3 * i], sizeof(texts[0]), "%u", maps[i].inside);
        snprintf(texts[2 + 3 * i], sizeof(texts[0]), "%u", maps[i].outside);
        snprintf(texts[3 + 3 * i], sizeof(texts[0]), "%u", maps[i].count);
    }
    argv[0] = name;
    for (int i = 0; i < 7; i++)
        argv[1 + i] = texts[i];
    argv[8] = NULL;
    char *no_environment[] = {NULL};
    if (dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0)
        execve(path, argv, no_environment);
    _exit(127);
}

/* What it prints is the reason when it fails. */
static int run_helper(const char *path, pid_t pid, const struct id_map maps[2], struct err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    cleanup_fd int read_end = ends[0];
    pid_t helper = fork();
    if (helper == 0)
        exec_helper(path, pid, maps, ends[1]);
    int code = errno;
    close(ends[1]);
    if (helper < 0)
        return err_errno(err, code, "cannot fork");
    cleanup_buf struct buf text = BUF_INIT(HELPER_TEXT_MAX);
    fd_read_all(read_end, &text);
    int status = 0;
    while (waitpid(helper, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    const char *said = buf_text(&text);
    return err_set(err, EPERM, "%s could not give this user its subordinate ids: %.*s", path,
                   (int)strcspn(said, "\n"), said);
}

static int write_maps(const struct row *row, pid_t pid, struct err *err)
{
    struct range_maps maps = maps_of(row);
    if (!row->is_ours) {
        int result = run_helper(row->newuidmap, pid, maps.uids, err);
        return result < 0 ? result : run_helper(row->newgidmap, pid, maps.gids, err);
    }
    int result = process_write_map(pid, "uid_map", maps.uids, 2, err);
    return result < 0 ? result : process_write_map(pid, "gid_map", maps.gids, 2, err);
}

static int open_namespace(const struct row *row, pid_t pid, int ready_fd, struct err *err)
{
    char byte;
    ssize_t n;
    do
        n = read(ready_fd, &byte, 1);
    while (n < 0 && errno == EINTR);
    if (n != 1)
        return err_set(err, EIO, "a process of our own broke off");
    int result = write_maps(row, pid, err);
    if (result < 0)
        return result;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? err_errno(err, errno, "cannot open %s", path) : fd;
}

int launch_make_range(const struct row *row, struct err *err)
{
    int life[2], ready[2];
    if (pipe2(life, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    cleanup_fd int life_read = life[0], life_write = life[1];
    if (pipe2(ready, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    cleanup_fd int ready_read = ready[0], ready_write = ready[1];
    int pidfd = -1;
    struct clone_args args = {.flags = CLONE_NEWUSER | CLONE_PIDFD,
                              .pidfd = (uint64_t)(uintptr_t)&pidfd};
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0)
        hold_namespace(ready_write, life_read, life_write);
    if (pid < 0)
        return err_errno(err, errno, "cannot make a user namespace");
    close(TAKE_FD(ready_write)); /* else its end would not be seen */
    int fd = open_namespace(row, pid, ready_read, err);
    process_end(pidfd);
    return fd;
}
