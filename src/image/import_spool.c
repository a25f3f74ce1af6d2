/* The archive as a file; see import_internal.h. It is needed whole because what tells how to read
 * it may be its last entry. */
#include "image/import_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fd.h"

#define SPOOL_NAME ".paddock-archive"
#define SPOOL_BLOCK 65536
/* Links from one member to the next: `docker save` has one. */
#define LINKS_MAX 4

int import_check_room(int fd, int64_t floor_bytes, struct err *err)
{
    struct statvfs fs;
    if (fstatvfs(fd, &fs) < 0)
        return err_errno(err, errno, "cannot look at the disk");
    if ((int64_t)(fs.f_bavail * fs.f_frsize) < floor_bytes)
        return err_set(err, ENOSPC, "the disk of state_dir is full: free some of it");
    if (fs.f_files && fs.f_favail < LIMIT_IMPORT_FREE_INODES) /* 0: it has no such limit */
        return err_set(err, ENOSPC, "the disk of state_dir is full: it has no room for more files");
    return 0;
}

/* Its name goes at once: whatever ends this process, the file goes with it. */
static int make_spool(int out_fd, struct err *err)
{
    int fd = openat(out_fd, SPOOL_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || unlinkat(out_fd, SPOOL_NAME, 0) < 0) {
        int result = err_errno(err, errno, "cannot make a file for the archive");
        if (fd >= 0)
            close(fd);
        return result;
    }
    return fd;
}

static int copy_stream(struct import_stream *stream, int fd, int64_t floor_bytes, struct err *err)
{
    const void *data;
    ssize_t n;
    int64_t unchecked = LIMIT_IMPORT_ROOM_STEP;
    while ((n = import_stream_read(stream, &data, err)) > 0) {
        unchecked += n;
        int result =
            unchecked < LIMIT_IMPORT_ROOM_STEP ? 0 : import_check_room(fd, floor_bytes, err);
        if (result < 0)
            return result;
        unchecked %= LIMIT_IMPORT_ROOM_STEP;
        result = fd_write_all(fd, data, (size_t)n);
        if (result < 0)
            return err_errno(err, -result, "cannot write the archive to the disk");
    }
    return (int)n;
}

int import_spool_fill(int in_fd, int out_fd, int64_t floor_bytes, struct import_spool *ret,
                      struct err *err)
{
    cleanup_stream struct import_stream *stream = NULL;
    cleanup_fd int fd = make_spool(out_fd, err);
    if (fd < 0)
        return fd;
    int result = import_stream_open(in_fd, NULL, &stream, err);
    if (result == 0)
        result = import_stream_expect(stream, "sha256:", "", err);
    if (result == 0)
        result = copy_stream(stream, fd, floor_bytes, err);
    if (result == 0)
        result = import_stream_finish(stream, err);
    if (result < 0)
        return result;
    import_stream_digest(stream, ret->digest);
    ret->fd = TAKE_FD(fd);
    return 0;
}

int import_spool_tar(const struct import_spool *spool, struct archive **ret, struct err *err)
{
    struct archive *tar = archive_read_new();
    if (!tar || lseek(spool->fd, 0, SEEK_SET) < 0)
        return err_set(err, ENOMEM, "no memory for an archive");
    archive_read_support_format_tar(tar);
    /* By seeking it passes over what is not read. */
    if (archive_read_open_fd(tar, spool->fd, SPOOL_BLOCK) != ARCHIVE_OK) {
        int result = err_set(err, EINVAL, "this is no tar archive: %s", archive_error_string(tar));
        archive_read_free(tar);
        return result;
    }
    *ret = tar;
    return 0;
}

int import_spool_kind(const struct import_spool *spool, enum import_kind *ret, struct err *err)
{
    cleanup_archive struct archive *tar = NULL;
    char path[LIMIT_IMPORT_PATH_BYTES + 1];
    struct archive_entry *entry;
    bool is_docker = false;
    bool is_oci = false;
    bool is_index = false;
    int result = import_spool_tar(spool, &tar, err);
    if (result < 0)
        return result;
    while ((result = import_next(tar, &entry, path, err)) == 1) {
        bool is_file = archive_entry_filetype(entry) == AE_IFREG;
        is_docker |= is_file && strcmp(path, "manifest.json") == 0;
        is_oci |= is_file && strcmp(path, "oci-layout") == 0;
        is_index |= is_file && strcmp(path, "index.json") == 0;
    }
    *ret = IMPORT_ROOTFS;
    if (is_oci && is_index)
        *ret = IMPORT_OCI;
    else if (is_docker)
        *ret = IMPORT_DOCKER;
    return result;
}

/* The member that a link of the archive leads to: a hard link's target is a path of the archive, a
 * symlink's begins in the folder of the link. */
static int follow_link(struct archive_entry *entry, char path[LIMIT_IMPORT_PATH_BYTES + 1],
                       struct err *err)
{
    char folder[LIMIT_IMPORT_PATH_BYTES + 1];
    char joined[2 * LIMIT_IMPORT_PATH_BYTES + 2];
    const char *target = archive_entry_hardlink(entry);
    if (target)
        return import_clean_path(target, path, err);
    target = archive_entry_symlink(entry);
    if (!target || strlen(target) > LIMIT_IMPORT_PATH_BYTES)
        return err_set(err, EINVAL, "a layer in the archive is no file");
    snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    /* `docker save` writes "../ID/layer.tar": one folder up is the top. */
    bool is_up = slash && strncmp(target, "../", 3) == 0 && !strchr(folder, '/');
    snprintf(joined, sizeof(joined), "%s/%s", slash && !is_up ? folder : "",
             is_up ? target + 3 : target);
    return import_clean_path(joined, path, err);
}

/* 1: found, and *ret stands at it; 0: it is not there, or was a link, whose target is in path. */
static int find_once(const struct import_spool *spool, char path[LIMIT_IMPORT_PATH_BYTES + 1],
                     bool *ret_is_link, struct archive **ret, struct err *err)
{
    cleanup_archive struct archive *tar = NULL;
    char name[LIMIT_IMPORT_PATH_BYTES + 1];
    struct archive_entry *entry;
    size_t count = 0;
    *ret_is_link = false;
    int result = import_spool_tar(spool, &tar, err);
    if (result < 0)
        return result;
    while ((result = import_next(tar, &entry, name, err)) == 1) {
        if (++count > LIMIT_IMPORT_MEMBERS)
            return err_set(err, EMSGSIZE, "an archive of layers has at most %d files",
                           LIMIT_IMPORT_MEMBERS);
        if (strcmp(name, path) != 0)
            continue;
        if (archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry)) {
            *ret = TAKE_PTR(tar);
            return 1;
        }
        *ret_is_link = true;
        return follow_link(entry, path, err);
    }
    return result;
}

int import_spool_find(const struct import_spool *spool, const char *member, struct archive **ret,
                      struct err *err)
{
    char path[LIMIT_IMPORT_PATH_BYTES + 1];
    bool is_link = true;
    int result = 0;
    snprintf(path, sizeof(path), "%s", member);
    for (int i = 0; i <= LINKS_MAX && is_link && result == 0; i++)
        result = find_once(spool, path, &is_link, ret, err);
    if (result == 0)
        return err_set(err, ENOENT, "the archive names %.200s and does not hold it", member);
    return result < 0 ? result : 0;
}

int import_spool_json(const struct import_spool *spool, const struct import_part *part,
                      struct buf *ret, struct err *err)
{
    cleanup_archive struct archive *tar = NULL;
    cleanup_stream struct import_stream *stream = NULL;
    int result = import_spool_find(spool, part->member, &tar, err);
    if (result == 0)
        result = import_stream_open(-1, tar, &stream, err);
    if (result == 0)
        result = import_stream_expect(stream, part->digest, "", err);
    if (result < 0)
        return result;
    const void *data;
    ssize_t n;
    while ((n = import_stream_read(stream, &data, err)) > 0)
        if (buf_append(ret, data, (size_t)n) < 0)
            return err_set(err, EMSGSIZE, "%.200s in the archive is longer than %zu bytes",
                           part->member, ret->max);
    return n < 0 ? (int)n : import_stream_finish(stream, err);
}
