/* Steps of a start that instances and jails share; supervisor's side, for this folder only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sandbox/instance.h"

/* A detached copy of a folder as a mount with the ids of `userns`; the descriptor is the caller's.
 */
int sandbox_clone_folder(int dir_fd, const char *path, int userns, bool writable, struct err *err);

/* clone3(2) into new namespaces, the user namespace counted for `owner`; returns as fork(2) does.
 */
pid_t sandbox_clone(int into_cgroup_fd, uid_t owner, bool with_network, int *ret_pidfd);

/* Writes the id maps of the child and lets it go on. On error the child is killed and reaped. */
int sandbox_release_child(pid_t pid, int pidfd, uint32_t base, int go_write_fd,
                          struct sandbox_process *ret, struct err *err);
