/*
 * A running sandbox: start, adoption after a restart of the supervisor, groups, kill, clean-up; and
 * jails for single jobs. Supervisor only. Nothing here waits: a start returns when the child is
 * told, and its readiness comes as INIT_STATE (or INIT_FAILED) on the instance's socket.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sandbox/host.h"
#include "util/err.h"

/* A process by pid and pidfd, which are only ever used together. */
struct sandbox_process {
    pid_t pid;           /* in the supervisor's namespace; 0: none */
    int pidfd;           /* readable when it has ended; -1: none */
    uint64_t start_time; /* field 22 of /proc/PID/stat, clock ticks: tells a reused pid */
};

struct sandbox_limits {
    int64_t memory_bytes; /* with swap; 0: none */
    int64_t cpu_millis;   /* thousandths of a cpu; 0: none */
    int64_t pids;         /* 0: none */
};

/* Our CA's certificate, as programs in a sandbox read it. */
struct sandbox_trust {
    const char *pem; /* the bundle of most */
    size_t pem_len;
    const char *java; /* a trust store of Java's */
    size_t java_len;
};

/* What can be made before it is known for which sandbox. */
struct sandbox_make {
    const char *boot_id; /* a fresh UUID in text */
    uint32_t block;      /* leased by the caller */
    struct sandbox_limits limits;
    struct sandbox_trust trust;
};

struct sandbox_start {
    const char *name; /* also the hostname */
    int image_fd;     /* O_PATH: the image's rootfs folder, shown read-only below */
    int common_fd;    /* O_PATH: the folder of sandbox/common.h, filled */
    int folder_fd;    /* O_PATH: sandboxes/<name>, holding workspace/, task/,
                         overlay/upper, overlay/work */
    int listen_fd;    /* listening SOCK_SEQPACKET socket bound to init.sock; becomes init's */
    const char *const *environment; /* NAME=VALUE..., NULL: base of every program inside; at most
                                       what image and client may set (order.h) */
};

/* A live instance. The struct is the caller's; sandbox_instance_release closes what it holds. */
struct sandbox_instance {
    struct sandbox_process init;
    int socket;    /* to init, messages of ipc/; non-blocking */
    char name[64]; /* of its sandbox; "": it has none yet */
    char boot_id[40];
    char group[64]; /* of its control groups: the boot id, which no other instance has; its name, of
                       one that a former version started */
    uint32_t block;
};

/* Makes control groups, namespaces, network, and as root also /proc, /dev and /tmp: all but what
 * belongs to one sandbox. Its process then waits for sandbox_instance_start, and ends by itself
 * when its socket is closed, so with the supervisor. On error nothing is left behind. After success
 * the caller owns *ret. */
int sandbox_instance_make(struct sandbox_host *host, const struct sandbox_make *make,
                          struct sandbox_instance *ret, struct err *err);

/* Gives it its sandbox; then the caller waits for INIT_STATE (or INIT_FAILED). -EPIPE: it has
 * ended. On error sandbox_instance_end. */
int sandbox_instance_start(struct sandbox_host *host, const struct sandbox_start *start,
                           struct sandbox_instance *instance, struct err *err);

/* Ends one that never got its sandbox, with its control groups; waits for the end of its one
 * process, which is killed. Releases it. */
void sandbox_instance_end(struct sandbox_host *host, struct sandbox_instance *instance);

/* What is on record of an instance that a former supervisor started. */
struct sandbox_record {
    const char *name;
    const char *boot_id;
    uint32_t block; /* claimed by the caller */
    pid_t pid;      /* of its init */
    uint64_t start_time;
    int folder_fd; /* sandboxes/<name> */
};

/* Finds it: pid and start time must fit, init.sock in its folder must answer to connect(2). Then
 * the caller sends INIT_HELLO and compares boot ids. -ESRCH: it is gone; one whose init.sock does
 * not answer is killed, so that it does not run beside the next. */
int sandbox_instance_adopt(struct sandbox_host *host, const struct sandbox_record *record,
                           struct sandbox_instance *ret, struct err *err);

/* Ends an instance that is on no record, or on one that cannot be found by it, if one listens on
 * the init.sock in the folder: where there are control groups it is found by those
 * (sandbox_instance_list). True: one was there. */
bool sandbox_instance_end_unrecorded(int folder_fd);

/* Kills every process of the instance at once (cgroup.kill; without cgroups init's pidfd, whose pid
 * namespace dies with it). Its end is told by init.pidfd. */
int sandbox_instance_kill(struct sandbox_host *host, struct sandbox_instance *instance,
                          struct err *err);

/* The same by the name of its control groups, of an instance never adopted. -ENOENT: none such, or
 * no cgroup.kill. */
int sandbox_group_kill(struct sandbox_host *host, const char *group, struct err *err);

/* After its end: removes its control groups, also those of an instance never adopted. Idempotent.
 * -EBUSY: a process is still in one. */
int sandbox_instance_cleanup(struct sandbox_host *host, const char *group, struct err *err);
/* The same at the daemon's end: waits until what was killed has left them, 2 s at most. */
int sandbox_instance_cleanup_late(struct sandbox_host *host, const char *group, struct err *err);
void sandbox_instance_release(struct sandbox_instance *instance); /* closes, kills nothing */

/* Control groups of instances that exist under this STATE, for finding leftovers at start-up. */
int sandbox_instance_list(struct sandbox_host *host, void (*found)(void *ctx, const char *group),
                          void *ctx, struct err *err);

/* A cgroup below the instance, for what is ended apart from the rest: "task", "exec-N". Descriptors
 * are the caller's; -1 where the host has no such thing. */
struct sandbox_group {
    int procs_fd; /* cgroup.procs, opened for writing by us: init moves a child in by writing "0" */
    int kill_fd;  /* cgroup.kill */
    int oom_fd;   /* has a line "oom_kill N" that counts for the instance */
    int pids_fd;  /* the same of "max N": processes that were refused */
};
#define SANDBOX_GROUP_NONE                                                                         \
    ((struct sandbox_group){.procs_fd = -1, .kill_fd = -1, .oom_fd = -1, .pids_fd = -1})
/* What a running instance was refused, since it was made. */
struct sandbox_refused {
    uint64_t oom_kills, forks;
};
void sandbox_instance_refused(struct sandbox_host *host, const struct sandbox_instance *instance,
                              struct sandbox_refused *ret);
int sandbox_group_create(struct sandbox_host *host, const struct sandbox_instance *instance,
                         const char *name, struct sandbox_group *ret, struct err *err);
int sandbox_group_remove(struct sandbox_host *host, const struct sandbox_instance *instance,
                         const char *name, struct err *err);
/* Those whose names begin so and that nobody is in. */
void sandbox_groups_remove(struct sandbox_host *host, const struct sandbox_instance *instance,
                           const char *prefix);
void sandbox_group_close(struct sandbox_group *group);

/* One job in a jail: its own user, mount, pid, net, ipc, uts and cgroup namespaces, ids of `block`,
 * root of the namespace with an empty bounding set but CAP_DAC_READ_SEARCH and what `writable`
 * folders need, seccomp, no network (unless build), a root that holds read-only /usr and /lib of
 * the host and the given folders, and nothing else. A job besides needs: /dev/null and
 * /dev/urandom; a tmpfs at /tmp, mode 0700, at most 256 MiB, nosuid, nodev, but not noexec (its
 * pages count as the job's memory); fork, exec and pipes, since it runs the host's /usr/bin/git
 * there (and /usr/bin/sh for git's look into submodules). It needs no /proc and no network. */
struct sandbox_jail_folder {
    int fd;             /* O_PATH, on disk owned by ids 0..65535; idmapped to the block */
    const char *target; /* absolute path in the jail */
    bool writable;
};
enum sandbox_jail_kind {
    SANDBOX_JAIL_JOB,   /* paddock-jail: as above */
    SANDBOX_JAIL_BUILD, /* paddock-image-build: host's network; sees the host's / read-only with the
                           package clients' settings, fresh /tmp, /run, /proc, /dev; never STATE,
                           /root beyond the clients' settings, or another user's home */
};
struct sandbox_jail_start {
    enum sandbox_jail_kind kind;
    const char *name; /* for its cgroup */
    uint32_t block;
    int binary_fd;           /* the program, executed by descriptor */
    const char *const *argv; /* ends with NULL */
    const char *const *environment;
    const struct sandbox_jail_folder *folders;
    size_t folder_count;
    const int *inherit; /* descriptors given as 3, 4, ... */
    size_t inherit_count;
    int stdout_fd, stderr_fd; /* stdin is /dev/null */
    int64_t memory_bytes;
    int64_t cpu_seconds; /* RLIMIT_CPU; wall clock is the caller's */
    bool gives_away;     /* a job that makes files of any owner and mode in its writable folders */
    bool is_idle;        /* nobody waits for it: it runs when nothing else does (SCHED_IDLE) */
};
/* Exit status of a jail that could not be set up; the reason is on its stderr. */
#define SANDBOX_JAIL_SETUP_FAILED 125
int sandbox_jail_start(struct sandbox_host *host, const struct sandbox_jail_start *start,
                       struct sandbox_process *ret, struct err *err);
/* After its end: removes its cgroup. */
void sandbox_jail_cleanup(struct sandbox_host *host, const char *name);
void sandbox_process_release(struct sandbox_process *process); /* closes the pidfd */
