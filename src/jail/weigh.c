/* What a sandbox has on the disk, as two numbers; see jail.h. Process: paddock-jail. As in
 * measure.c the walk is du(1)'s; it prints a total for each folder and no name that an agent chose.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jail/jail.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define DU "/usr/bin/du"
#define FOLDERS 2
/* Two lines of a number and one of our own paths. */
#define OUTPUT_MAX 256

static void run_du(const char *const *argv, int out)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    /* what goes away meanwhile is no error, and is told there */
    if (null >= 0 && dup2(null, STDERR_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0)
        execv(DU, (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* The sum of the lines' numbers. */
static int add_lines(const char *text, uint64_t *ret, struct err *err)
{
    uint64_t sum = 0;
    size_t lines = 0;
    for (const char *line = text; *line; lines++) {
        char *end;
        sum += strtoull(line, &end, 10);
        const char *next = strchr(end, '\n');
        if (end == line || *end != '\t' || !next)
            return err_set(err, EIO, "the output of " DU " is not a list of sizes");
        line = next + 1;
    }
    if (lines != FOLDERS)
        return err_set(err, EIO, DU " told the size of %zu folders of %d", lines, FOLDERS);
    *ret = sum;
    return 0;
}

static int weigh_by(const char *unit, const char *const folders[FOLDERS], uint64_t *ret,
                    struct err *err)
{
    const char *argv[] = {"du", "-s", "-x", unit, "--", folders[0], folders[1], NULL};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    cleanup_fd int read_fd = ends[0];
    cleanup_fd int write_fd = ends[1];
    pid_t pid = fork();
    if (pid < 0)
        return err_errno(err, errno, "cannot fork");
    if (pid == 0)
        run_du(argv, write_fd);
    cleanup_fd_at(&write_fd);
    write_fd = -1;
    cleanup_buf struct buf text = BUF_INIT(OUTPUT_MAX);
    int result = fd_read_all(read_fd, &text);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return result < 0 ? err_errno(err, -result, "cannot read what " DU " says")
                      : add_lines(buf_text(&text), ret, err);
}

int jail_weigh(const char *workspace, const char *overlay, struct jail_weight *ret, struct err *err)
{
    const char *const folders[FOLDERS] = {workspace, overlay};
    struct jail_weight weight = {0};
    int result = weigh_by("--block-size=1", folders, &weight.bytes, err);
    if (result == 0)
        result = weigh_by("--inodes", folders, &weight.inodes, err);
    if (result == 0)
        *ret = weight;
    return result;
}
