/*
 * The parts of an import, for src/image/import*.c alone. Everything runs in a jail on foreign
 * bytes, and blocks: bytes come from a pipe or from the spooled archive, through libarchive's
 * decompression and tar reader, into a tree below one descriptor.
 */
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "image/import.h"
#include "image/import_parse.h"

/* --- import_stream.c: bytes, decompressed and hashed on their way */

struct import_stream;

/* Where compressed bytes come from: a descriptor, or the data of the entry at which `member`
 * stands. Both stay the caller's. */
int import_stream_open(int fd, struct archive *member, struct import_stream **ret, struct err *err);
void import_stream_close(struct import_stream *stream);
static inline void import_stream_close_at(struct import_stream **stream)
{
    import_stream_close(*stream);
}
#define cleanup_stream __attribute__((cleanup(import_stream_close_at)))

/* Hashes that are to be told at the end; each a digest ("sha256:..." or "sha512:...", of which the
 * algorithm counts), or "". Before the first read. */
int import_stream_expect(struct import_stream *stream, const char *raw, const char *plain,
                         struct err *err);
/* The next decompressed bytes, valid until the next call; 0: the end. */
ssize_t import_stream_read(struct import_stream *stream, const void **ret, struct err *err);
/* Reads to the end of both sides. -EBADMSG: a digest is not what was expected. */
int import_stream_finish(struct import_stream *stream, struct err *err);
/* Of the bytes as they came; after import_stream_finish. */
void import_stream_digest(struct import_stream *stream, char ret[65]);
/* A tar reader over the decompressed bytes; the caller frees it before the stream. */
int import_stream_tar(struct import_stream *stream, struct archive **ret, struct err *err);

static inline void import_archive_free_at(struct archive **archive)
{
    archive_read_free(*archive);
}
#define cleanup_archive __attribute__((cleanup(import_archive_free_at)))

/* The next entry, with its path cleaned. 1; 0: the end; negative: broken. */
int import_next(struct archive *tar, struct archive_entry **ret,
                char ret_path[LIMIT_IMPORT_PATH_BYTES + 1], struct err *err);

/* --- import_spool.c: the whole archive, decompressed, in a file that has no name any more */

struct import_spool {
    int fd;
    char digest[65];
};
int import_spool_fill(int in_fd, int out_fd, int64_t floor_bytes, struct import_spool *ret,
                      struct err *err);
enum import_kind { IMPORT_ROOTFS, IMPORT_OCI, IMPORT_DOCKER };
int import_spool_kind(const struct import_spool *spool, enum import_kind *ret, struct err *err);
/* A tar reader at the start of the archive. */
int import_spool_tar(const struct import_spool *spool, struct archive **ret, struct err *err);
/* A tar reader that stands at the regular file of this name; links within the archive are followed.
 * -ENOENT. */
int import_spool_find(const struct import_spool *spool, const char *member, struct archive **ret,
                      struct err *err);
/* Its bytes, which must have the part's digest. */
int import_spool_json(const struct import_spool *spool, const struct import_part *part,
                      struct buf *ret, struct err *err);

/* -ENOSPC, with the reason, when less than floor_bytes are free where fd is. */
int import_check_room(int fd, int64_t floor_bytes, struct err *err);

/* --- import_tree.c: entries become files */

struct import_tree {
    int root_fd;
    bool is_squashed; /* one id alone: nothing can be given away */
    int64_t floor_bytes;
    int64_t bytes;     /* of all files at their full length */
    int64_t unchecked; /* written since the room was looked at */
    uint64_t entries;
    uint64_t dropped;
};
/* Puts the entry, at whose data `tar` stands, at `path` ("" is the root itself). */
int import_tree_add(struct import_tree *tree, struct archive *tar, struct archive_entry *entry,
                    char *path, struct err *err);
/* When the path is a whiteout (OCI image-spec, layer.md): removes what it says from the layers
 * below. False in *ret_is_one: it is an entry like any other. */
int import_tree_whiteout(struct import_tree *tree, char *path, bool *ret_is_one, struct err *err);
/* The text of a regular file of the image; "" where there is none. */
int import_tree_read(const struct import_tree *tree, const char *path, struct buf *ret,
                     struct err *err);
