/* Tries in a child what every sandbox needs of the kernel: each kind of namespace, and mounts in
 * them. For the doctor; touches nothing outside of the child. */
#pragma once

#include "util/err.h"

enum host_trial_step {
    TRIAL_USER, /* a user namespace */
    TRIAL_MAP,  /* its maps written */
    TRIAL_MNT,  /* the others, one by one */
    TRIAL_PID,
    TRIAL_NET,
    TRIAL_IPC,
    TRIAL_UTS,
    TRIAL_CGROUP,
    TRIAL_MOUNT,   /* a tmpfs mounted in there */
    TRIAL_OVERLAY, /* an overlay with userxattr on it */
    TRIAL_PROC,    /* a /proc of the new pid namespace */
    TRIAL_STEPS
};

struct host_trial {
    int codes[TRIAL_STEPS]; /* 0: done; an errno; -1: not come to */
};

/* Forks, waits for the end of the child. The caller has one thread. */
int host_trial_run(struct host_trial *ret, struct err *err);
