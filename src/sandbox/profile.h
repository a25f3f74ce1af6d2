/* The seccomp profiles (seccomp(2)), compiled with libseccomp at the supervisor's start. */
#pragma once

#include "sandbox/host.h"
#include "util/buf.h"
#include "util/err.h"

/* Beside the public ones: what a build of an image may call (mounts and namespaces included). */
#define SECCOMP_BUILD (SECCOMP_JAIL + 1)
/* What an init may call that puts the task into a pid namespace of its own (init_fds.h): what a
 * sandbox may, and mount. Its programs get the sandbox's own on top. */
#define SECCOMP_NESTING (SECCOMP_BUILD + 1)
#define SECCOMP_PROFILES (SECCOMP_NESTING + 1)

#define SECCOMP_FILTER_MAX (64 * 1024) /* bytes; the kernel takes 4096 instructions, 32 KiB */

/* Appends struct sock_filter[] of the profile. */
int profile_compile(int profile, struct buf *ret, struct err *err);
