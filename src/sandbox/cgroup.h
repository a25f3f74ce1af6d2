/*
 * Control groups of instances and jails, below a folder of this STATE in each hierarchy. Limits go
 * where the controllers are (v2, or v1 hierarchies); killing goes through a v2 tree always, which
 * needs no controllers. Supervisor only. cgroups(7).
 */
#pragma once

#include <stdbool.h>

#include "sandbox/host.h"
#include "sandbox/instance.h"
#include "util/err.h"

#define CGROUP_JAIL_PREFIX "jail."
#define CGROUP_NAME_MAX 96

enum cgroup_controller { CGROUP_MEMORY, CGROUP_CPU, CGROUP_PIDS, CGROUP_CONTROLLERS };

struct cgroups {
    enum cgroup_layout layout;
    int v2_fd;                     /* our folder of the v2 tree; -1: none */
    int v1_fd[CGROUP_CONTROLLERS]; /* our folders of the v1 hierarchies; -1: not there */
    bool v2_has[CGROUP_CONTROLLERS];
    char folder[32]; /* name of our folder */
};

/* What a new process needs to be in its group from the beginning. */
struct cgroup_entry {
    int into_fd;                      /* for CLONE_INTO_CGROUP; -1: none */
    int tasks_fd[CGROUP_CONTROLLERS]; /* v1: the process itself writes "0" here; -1: none */
    bool limits[CGROUP_CONTROLLERS];  /* this controller limits the group, if it has a limit */
};

/* The path below the root of the v2 tree of the unit that systemd delegates to us for instances:
 * beside the group of the process whose /proc/PID/cgroup is `own`. Whether it is there is not
 * looked at. -ENOENT: `own` has no group of a v2 tree; -ENAMETOOLONG. Pure. cgroups(7). */
int cgroup_find_unit(const char *own, char *ret, size_t size);

/* The same of our own group, for a user who may write there and not at the root of the tree; from
 * a process in CGROUP_DAEMON, of the group above it. */
#define CGROUP_DAEMON "paddock-daemon"
int cgroup_find_own(const char *own, char *ret, size_t size);

/* Finds the hierarchies and makes our folder in each, in a v2 tree below that unit where it exists;
 * where none may be made at the root, below our own group, whose processes must then be in a group
 * below it (cgroups(7)): this one moves to CGROUP_DAEMON there.
 * Never fails: what cannot be had is NONE. */
void cgroups_open(const char *state_name, struct cgroups *ret);
void cgroups_close(struct cgroups *cgroups);
/* Closes and opens again. */
void cgroups_renew(struct cgroups *cgroups);

bool cgroups_has(const struct cgroups *cgroups, enum cgroup_controller controller);

/* Makes the group `name` with its limits and `name`/`leaf` for the first process; our folder too
 * where it has been removed meanwhile. */
int cgroup_create(struct cgroups *cgroups, const char *name, const char *leaf,
                  const struct sandbox_limits *limits, struct cgroup_entry *ret, struct err *err);
void cgroup_entry_close(struct cgroup_entry *entry);

/* True when there is a group of this name in one of the hierarchies. */
bool cgroup_exists(const struct cgroups *cgroups, const char *name);

/* Kills all in the group. -ENOENT: no v2 tree or no such group. */
int cgroup_kill(const struct cgroups *cgroups, const char *name, struct err *err);

/* Removes the group everywhere with what is below it. -EBUSY: a process is still in it. */
int cgroup_remove(const struct cgroups *cgroups, const char *name, struct err *err);
/* The same when all in it was killed just now: waits until they have left it, 2 s at most. */
int cgroup_remove_late(const struct cgroups *cgroups, const char *name, struct err *err);

void cgroup_refused(const struct cgroups *cgroups, const char *name, struct sandbox_refused *ret);

/* A group for one program below the instance's. */
int cgroup_leaf_create(const struct cgroups *cgroups, const char *name, const char *leaf,
                       struct sandbox_group *ret, struct err *err);
int cgroup_leaf_remove(const struct cgroups *cgroups, const char *name, const char *leaf,
                       struct err *err);
/* Those whose names begin so and that nobody is in. */
void cgroup_leaves_remove(const struct cgroups *cgroups, const char *name, const char *prefix);

/* Calls found for every instance's group there is. */
int cgroup_list(const struct cgroups *cgroups, void (*found)(void *ctx, const char *name),
                void *ctx, struct err *err);

/* Ends every jail there is: at a start those of a supervisor that is gone, at the end our own.
 * Waits for their ends as cgroup_remove_late does. */
void cgroup_end_jails(const struct cgroups *cgroups);
