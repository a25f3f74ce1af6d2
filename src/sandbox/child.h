/*
 * The set-up child: the supervisor's image between clone3(2) and exec. It runs in the new
 * namespaces, allocates nothing, trusts nothing that an agent left on the disk, and ends either by
 * exec or by _exit after saying why. Everything it needs was prepared by the supervisor.
 */
#pragma once

#include <linux/filter.h>
#include <stdint.h>

#include "sandbox/cgroup.h"
#include "sandbox/init_fds.h"
#include "sandbox/instance.h"
#include "sandbox/network.h"
#include "sandbox/order.h"
#include "sandbox/row.h"
#include "util/err.h"

/* Steps that instances and jails share. */
struct child_common {
    int go_fd;       /* a byte comes when the id maps are written */
    int go_write_fd; /* the supervisor's end, closed here */
    struct cgroup_entry cgroup;
    const struct sock_fprog *seccomp;
    uint64_t keep_capabilities;    /* the bounding set */
    uint64_t ambient_capabilities; /* of those: kept over exec by one who is not root */
    int binary_fd;                 /* executed by descriptor */
    const struct row *row;
    uid_t single_id; /* SINGLE: what our id is inside */
};

struct child_instance {
    struct child_common common;
    const struct sandbox_make *make;
    const struct network_requests *network;
    bool has_ipv6;
    int filter_fd; /* what init gives its programs, when it nests (init/nest.c); -1: it does not */
    int supervisor_fd; /* socket for the order, for our failure, and for init */
    int listeners[INIT_LISTENER_COUNT];
    int scratch_fd; /* O_PATH: the root until the sandbox's own, a tmpfs with its proc, dev, tmp */
    struct order *order;
};

/* Files of package clients that only root may read, shown to a build. */
#define CHILD_JAIL_SETTINGS 3
extern const char *const child_jail_settings[CHILD_JAIL_SETTINGS];

struct child_jail {
    struct child_common common;
    const struct sandbox_jail_start *start;
    struct sandbox_limits limits;
    int setting_fds[CHILD_JAIL_SETTINGS]; /* detached mounts, idmapped; -1: none */
    int *folder_fds; /* detached mounts, idmapped, or folders first; one per folder of start */
};

/* The whole life of the child. */
_Noreturn void child_run_instance(struct child_instance *child);
_Noreturn void child_run_jail(struct child_jail *child);

/* child.c: joins the control groups; before the id maps are there. */
int child_join_cgroups(const struct child_common *common, struct err *err);
/* Waits for the id maps and becomes root of the namespace, without other groups. With a single id
 * it writes the maps itself, and is that id. */
int child_become_root(const struct child_common *common, struct err *err);
/* Limits of every program of a sandbox or jail; where no control group limits them, as far as
 * setrlimit(2) can: memory of each process, processes of each user. */
int child_set_limits(const struct child_common *common, const struct sandbox_limits *limits,
                     struct err *err);

/* Gives the descriptors the numbers first, first + 1, ..., to be kept over exec. */
#define CHILD_FDS_MAX 32
#define CHILD_HIGH_FD 64 /* above every number that is given out */
int child_place_fds(const int *fds, size_t count, int first, struct err *err);
/* Returns only when it fails; errno says why. */
void child_exec(int binary_fd, const char *const *argv, const char *const *environment,
                struct err *err);

/* child_network.c */
int child_configure_network(const struct network_requests *requests, struct err *err);
int child_open_listeners(bool has_ipv6, int ret[INIT_LISTENER_COUNT], struct err *err);
int child_tune_network(int root_fd, struct err *err);

/* child_mount.c: mounts by descriptor, so that no link that an agent left is followed. */
#define CHILD_SCRATCH "/tmp"
int child_open_root(struct err *err); /* a private mount table and a scratch folder there */
/* Puts a detached copy as a mount in the place of the folder that *fd is, where the supervisor may
 * make none (rows SUBORDINATE and SINGLE). While the process is still of the daemon's id outside:
 * others may not pass through its folders. */
int child_clone_folder(int *fd, bool writable, struct err *err);
int child_attach(int tree_fd, int dir_fd, const char *path, struct err *err);
int child_folder(int dir_fd, const char *name, mode_t mode, struct err *err);
int child_mount(int dir_fd, const char *name, const char *type, unsigned long flags,
                const char *options, struct err *err);
int child_bind(const char *source, int dir_fd, const char *path, uint64_t attributes,
               struct err *err);
/* A tmpfs for all users, of at most so many bytes; 0: half of the machine's memory. */
int child_mount_memory(int dir_fd, const char *name, int64_t max_bytes, struct err *err);
int child_mount_dev(const struct child_common *common, int root_fd,
                    int64_t memory_bytes, /* limit; 0: none */
                    struct err *err);
int child_mount_proc(int root_fd, struct err *err);
int child_mask_proc(int root_fd, struct err *err); /* after what must be written there */
int child_enter_root(int root_fd, struct err *err);

/* child_rootfs.c: first what no sandbox's folder is needed for, mounted in a scratch folder, which
 * is the root from then on: the host's files are out of sight. Returns its descriptor. */
int child_mount_base(const struct child_instance *child, struct err *err);
/* Then the sandbox's own root. Returns its descriptor. */
int child_build_rootfs(const struct child_instance *child, struct err *err);

/* child_files.c: the files of /etc and the agent's home, after the root is entered. */
int child_write_files(const struct child_instance *child, struct err *err);

/* child_privileges.c: bounding set, inheritable and ambient sets, no_new_privs, filter. */
int child_drop_privileges(const struct child_common *common, struct err *err);
