/*
 * The audit's files: STATE/audit.jsonl, to which egress appends through a descriptor, and the
 * former ones, audit.jsonl.1 being the newest. egress tells when the file is full; then all are
 * renamed, a new one is made and its descriptor is sent. Until that has come egress writes to the
 * one that was renamed: no line is lost, and each is whole in one file. Wherever this is broken
 * off, every line is in some file: a gap in the numbers closes by itself, and a missing audit.jsonl
 * is made.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervisor/supervisor.h"
#include "util/cleanup.h"
#include "util/log.h"

#define AUDIT_FILE "audit.jsonl"

const char *audit_name(int64_t index, char ret[32])
{
    if (index)
        snprintf(ret, 32, AUDIT_FILE ".%d", (int)index);
    else
        snprintf(ret, 32, AUDIT_FILE);
    return ret;
}

/* A line that was cut when the machine or the disk gave up ends here: the next is one of its own.
 */
static void audit_mend(const struct supervisor *supervisor, int fd)
{
    char last = '\n';
    struct stat st;
    cleanup_fd int reader =
        openat(supervisor->state_fd, AUDIT_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (reader < 0 || fstat(reader, &st) < 0 || st.st_size == 0 ||
        pread(reader, &last, 1, st.st_size - 1) != 1 || last == '\n')
        return;
    if (write(fd, "\n", 1) != 1)
        log_warn("the last line of " AUDIT_FILE " is torn and cannot be ended: %s",
                 strerror(errno));
}

int audit_open(const struct supervisor *supervisor, struct err *err)
{
    cleanup_fd int fd = openat(supervisor->state_fd, AUDIT_FILE,
                               O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot open " AUDIT_FILE);
    audit_mend(supervisor, fd);
    return TAKE_FD(fd);
}

void audit_tell(struct supervisor *supervisor, int fd)
{
    struct msg_audit_file body = {.max_bytes = supervisor->config->audit_max_bytes};
    channel_send(supervisor->egress.channel, IPC_AUDIT_FILE, 0, &body, &fd, 1);
}

static int audit_rename(const struct supervisor *supervisor, int64_t from, struct err *err)
{
    char old[32], new[32];
    audit_name(from, old);
    audit_name(from + 1, new);
    if (renameat(supervisor->state_fd, old, supervisor->state_fd, new) == 0 || errno == ENOENT)
        return 0;
    return err_errno(err, errno, "cannot rename %s to %s", old, new);
}

/* Those that the configuration does not keep (any more). */
static void audit_drop(const struct supervisor *supervisor)
{
    char name[32];
    for (int64_t i = supervisor->config->audit_keep + 1; i <= LIMIT_AUDIT_KEPT + 1; i++)
        if (unlinkat(supervisor->state_fd, audit_name(i, name), 0) < 0 && errno != ENOENT)
            log_warn("cannot remove %s: %s", name, strerror(errno));
}

/* egress is believed when the file says so too: it must not be able to turn the audit away. */
static bool audit_is_full(const struct supervisor *supervisor)
{
    struct stat st;
    if (fstatat(supervisor->state_fd, AUDIT_FILE, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT;
    return st.st_size >= supervisor->config->audit_max_bytes;
}

void audit_turn(struct supervisor *supervisor)
{
    struct err err = {0};
    int result = 0;
    if (!audit_is_full(supervisor))
        return;
    for (int64_t i = supervisor->config->audit_keep; i >= 0 && result == 0; i--)
        result = audit_rename(supervisor, i, &err);
    cleanup_fd int fd = result == 0 ? audit_open(supervisor, &err) : -1;
    if (fd < 0) {
        log_error("%s; the audit goes on in the file that is full", err.message);
        return;
    }
    audit_tell(supervisor, fd);
    audit_drop(supervisor);
}
