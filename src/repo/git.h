/*
 * Running git on a private git folder (view.h). The environment is fixed here and nothing of ours
 * is passed on: no system, global or agent's configuration, no system attributes, no replaced
 * objects, no transport, no lock files, no terminal; pathspecs are literal. paddock-jail only.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "util/buf.h"
#include "util/err.h"

/* Where git works. work_tree may be NULL (a bare repository). exec_path is the only folder that git
 * finds a program in. */
struct git_place {
    const char *git_dir, *work_tree, *exec_path;
};

/* A running git, the leader of its own process group. Its stderr is kept for the message of a
 * failure. git_close kills what still runs and closes everything; a zeroed struct is not valid,
 * GIT_PROCESS_NONE is. */
struct git_process {
    pid_t pid;
    int stdout_fd, stderr_fd;
    pid_t feeder; /* whose output it reads, or 0: that one may compute instead */
};
#define GIT_PROCESS_NONE ((struct git_process){.stdout_fd = -1, .stderr_fd = -1})

/* Starts `git ARGS...` (args ends with NULL, without "git"). stdin_fd: -1 for /dev/null. Its stdout
 * is a pipe, ret->stdout_fd. */
int git_start(const struct git_place *place, const char *const *args, int stdin_fd,
              struct git_process *ret, struct err *err);

/* Reads at most len bytes of its stdout; 0 at the end. -ETIMEDOUT after LIMIT_GIT_SILENCE_MS
 * without a byte: something the agent left (a FIFO) holds git up. */
ssize_t git_read(const struct git_process *process, void *data, size_t len, struct err *err);

/* Waits for the end, reading nothing more. Returns the exit code; death by a signal is -EIO, and
 * an exit code above `allowed` is -EINVAL with the end of its stderr as the message. */
int git_finish(struct git_process *process, int allowed, struct err *err);

void git_close(struct git_process *process);
#define cleanup_git __attribute__((cleanup(git_close)))

/* Runs git to its end with its output in *out; returns as git_finish does. */
int git_capture(const struct git_place *place, const char *const *args, int stdin_fd, int allowed,
                struct buf *out, struct err *err);

/* The object that `revision` names, as hexadecimal text. Returns 1 when there is, 0 when there is
 * none. */
int git_resolve(const struct git_place *place, const char *revision, struct buf *ret,
                struct err *err);

/* Runs git and calls `each` for every NUL-terminated record of its output, the NUL counted not in
 * len but there. An error of `each` ends it. */
typedef int git_record_fn(void *ctx, const char *record, size_t len, struct err *err);
int git_records(const struct git_place *place, const char *const *args, git_record_fn *each,
                void *ctx, struct err *err);
