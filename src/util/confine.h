/*
 * How a daemon shuts itself in, after start-up and before the first foreign byte: no new
 * privileges, not dumpable, no core, Landlock (landlock(7)) and a seccomp filter (seccomp(2)) that
 * the supervisor compiled. Every function fails closed: on error the caller exits.
 */
#pragma once

#include <stddef.h>

#include "util/err.h"

/* Descriptors that the supervisor gives to every daemon that it starts. */
#define CONFINE_FD_SUPERVISOR 3 /* SOCK_SEQPACKET to the supervisor */
#define CONFINE_FD_SECCOMP 4    /* sealed memfd: struct sock_filter[] */

/* PR_SET_NO_NEW_PRIVS, PR_SET_DUMPABLE 0, RLIMIT_CORE 0; checks that no capability is left
 * (capabilities(7)) when `need_no_caps`. */
int confine_privileges(int need_no_caps, struct err *err);

/* No file may be opened any more but beneath the given folders, and those only for reading.
 * Folders that do not exist are passed over. Kernel without Landlock: -ENOSYS. */
int confine_landlock(const char *const *readable, size_t count, struct err *err);

/* Loads the filter from the memfd and closes it. Refused calls give the errno the filter says. */
int confine_seccomp(int fd, struct err *err);
