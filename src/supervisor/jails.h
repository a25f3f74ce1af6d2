/*
 * Jobs in jails: each leases a block of ids, runs paddock-jail or paddock-image-build over the
 * folders it is given, and ends within its limits. Supervisor only.
 */
#pragma once

#include "sandbox/instance.h"
#include "supervisor/supervisor.h"
#include "task/record.h"

/* Called once at the end, when the jail's ids are free again; `text` says what the job itself could
 * not ("" else). The jail's descriptors are closed already. */
typedef void jail_done(void *ctx, const struct task_end *end, const char *text);

struct jail_job {
    enum sandbox_jail_kind kind;
    const char *const *argv; /* argv[1] of paddock-jail is a name of jobs.def */
    const struct sandbox_jail_folder *folders;
    size_t folder_count;
    const int *inherit;
    size_t inherit_count;
    int stdout_fd, stderr_fd; /* -1: to /dev/null, to the log */
    bool gives_away, is_idle; /* as in sandbox_jail_start */
    jail_done *done;
    void *ctx;
};

/* All descriptors stay the caller's. On error done is not called. */
int jails_start(struct supervisor *supervisor, const struct jail_job *job, struct jail **ret,
                struct err *err);
/* At the daemon's own end: kills those that run, without calling done. */
void jails_kill_all(struct supervisor *supervisor);
