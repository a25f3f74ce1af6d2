/*
 * Descriptors and files. Everything is CLOEXEC from birth. A path that an agent could have touched
 * is opened only with fd_open_beneath: openat2(2) with RESOLVE_BENEATH, NO_SYMLINKS and
 * NO_MAGICLINKS, O_NONBLOCK (a FIFO cannot hold us up), and a check that it is a regular file.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/buf.h"
#include "util/err.h"

/* Opens `path` beneath `dir_fd`. With regular_only, anything but a regular file is -EINVAL.
 * Returns the descriptor, or a negative errno. Never follows a symlink, never leaves dir_fd. */
int fd_open_beneath(int dir_fd, const char *path, int flags, mode_t mode, bool regular_only,
                    struct err *err);

/* Reads until end of file; more than ret->max bytes is -EMSGSIZE. Blocks as the descriptor does. */
int fd_read_all(int fd, struct buf *ret);

/* Reads the whole file `path` relative to dir_fd (AT_FDCWD allowed), symlinks followed: only for
 * files that none but root (or the invoking user) can write. */
int fd_read_file(int dir_fd, const char *path, struct buf *ret, struct err *err);

/* Writes everything, going on after EINTR and short writes. */
int fd_write_all(int fd, const void *data, size_t len);

/* Writes dir_fd/name whole or not at all: temporary file, fsync, rename, fsync of the folder. */
int fd_write_file_atomic(int dir_fd, const char *name, mode_t mode, const void *data, size_t len,
                         struct err *err);
/* N of the line "KEY N" of a small file of the kernel's, from its start; 0: there is none, or fd is
 * -1. Allocates nothing. */
uint64_t fd_read_count(int fd, const char *key);
/* Makes sure that a later fd_write_file_atomic of at most `bytes` needs no room on the disk: it is
 * taken now, in NAME.tmp. Holds on file systems that write in place, which btrfs does not. */
int fd_reserve_file(int dir_fd, const char *name, mode_t mode, size_t bytes, struct err *err);

/* A memfd with the bytes, rewound, sealed against every change (memfd_create(2), F_ADD_SEALS).
 * Returns the descriptor, or a negative errno. */
int fd_sealed(const char *name, const void *data, size_t len, struct err *err);

/* True when the descriptor is a memfd sealed against writing, growing and shrinking. */
bool fd_is_sealed(int fd);

int fd_set_nonblock(int fd, bool nonblock);
int fd_set_cloexec(int fd, bool cloexec);

/* Makes the descriptor have the number `target` in this process, CLOEXEC off; for the moments
 * before exec. `fd` == target is allowed. */
int fd_move_to(int fd, int target);
