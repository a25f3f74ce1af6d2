/*
 * Import of an image, in a jail of its own: an archive comes through a descriptor, a root file
 * system is left in an empty folder. Accepted: a tar of a root file system, an OCI image layout as
 * tar, an archive of `docker save`, old or new; each as it is or compressed with gzip, xz, zstd or
 * bzip2. Nothing is written outside of the folder, whatever the archive holds: every path is
 * resolved by the kernel with the folder as its root (openat2(2), RESOLVE_IN_ROOT).
 *
 * Left out: device nodes, sockets, FIFOs (told in the report), extended attributes, file flags,
 * setuid and setgid bits of files (programs in a sandbox gain nothing by them). Owners above 65535
 * become 65534.
 */
#pragma once

#include "image/config.h"
#include "util/buf.h"
#include "util/err.h"

struct import_job {
    int in_fd;           /* the archive, read to its end */
    int out_fd;          /* the empty folder */
    bool is_squashed;    /* this user namespace has one id: every file is the caller's own */
    int64_t floor_bytes; /* must stay free on the disk */
};

/* Blocks. -EINVAL, -EBADMSG, -EMSGSIZE, -ENOENT, -ENOEXEC, -EEXIST: the archive is not what it must
 * be; -ENOSPC and others: it could not be written. What is in the folder then is to be thrown away.
 */
int import_run(const struct import_job *job, struct image_report *ret, struct err *err);

/* True when this user namespace has fewer than 65,536 ids (/proc/self/uid_map). */
int import_is_squashed(bool *ret, struct err *err);
