/* A user namespace of one id, which its first process maps itself (user_namespaces(7)). */
#pragma once

#include <sys/types.h>

#include "util/err.h"

/* In a process that was just cloned with CLONE_NEWUSER: maps `inside` (user and group) to the ids
 * that it has outside, uid and gid. Leaves the process undumpable. Allocates nothing. */
int userns_map_self(uid_t inside, uid_t uid, gid_t gid, struct err *err);
