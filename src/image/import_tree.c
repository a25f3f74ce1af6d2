/*
 * Entries become files; see import_internal.h. Invariants: a path is resolved by openat2(2) with
 * the image's root as its root, so that neither ".." nor a link that an earlier entry made leads
 * out; the last component is never followed; what is in the way is removed, never written through.
 */
#include "image/import_internal.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fd.h"
#include "util/tree.h"

#define NOBODY 65534
#define WHITEOUT ".wh."
#define WHITEOUT_OPAQUE ".wh..wh..opq"
#define WHITEOUT_OTHER ".wh..wh." /* of aufs: bookkeeping that is no file of the image */
/* openat2(2) gives up with EAGAIN when something was renamed anywhere while it went up by "..". */
#define RESOLVE_TRIES 64

/* An entry's place: the open folder, and the name in it. */
struct place {
    int folder_fd;
    const char *name;
};

static int open_in_root(const struct import_tree *tree, const char *path, int flags)
{
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    long fd = -1;
    for (int i = 0; i < RESOLVE_TRIES && fd < 0; i++) {
        fd = syscall(SYS_openat2, tree->root_fd, path[0] ? path : ".", &how, sizeof(how));
        if (fd < 0 && errno != EAGAIN)
            break;
    }
    return fd < 0 ? -errno : (int)fd;
}

/* Looks at the room on the disk when enough was written since the last time. */
static int count_written(struct import_tree *tree, int64_t bytes, struct err *err)
{
    tree->unchecked += bytes;
    if (tree->unchecked < LIMIT_IMPORT_ROOM_STEP)
        return 0;
    tree->unchecked = 0;
    return import_check_room(tree->root_fd, tree->floor_bytes, err);
}

/* An entry of the archive, or a folder that none is for: each takes an inode, and about a block. */
static int count_entry(struct import_tree *tree, struct err *err)
{
    if (++tree->entries > LIMIT_IMPORT_ENTRIES)
        return err_set(err, EMSGSIZE, "the image has more than %d files", LIMIT_IMPORT_ENTRIES);
    return count_written(tree, LIMIT_IMPORT_ENTRY_BYTES, err);
}

/* Makes the last folder of the path, whose others are there. */
static int make_folder(struct import_tree *tree, char *path, struct err *err)
{
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    cleanup_fd int parent = open_in_root(tree, slash ? path : "", O_PATH | O_DIRECTORY);
    if (slash)
        *slash = '/';
    if (parent < 0)
        return err_errno(err, -parent, "cannot make the folder /%.500s", path);
    if (mkdirat(parent, slash ? slash + 1 : path, 0755) == 0)
        return count_entry(tree, err);
    return errno == EEXIST ? 0 : err_errno(err, errno, "cannot make the folder /%.500s", path);
}

/* Opens a folder of the image; an archive need not have entries for those on the way. */
static int open_folder(struct import_tree *tree, char *path, struct err *err)
{
    int fd = open_in_root(tree, path, O_PATH | O_DIRECTORY);
    if (fd == -ENOENT) {
        char saved = '/';
        for (char *end = path; saved; end++) {
            end = strchrnul(end, '/');
            saved = *end;
            *end = '\0';
            int result = make_folder(tree, path, err);
            *end = saved;
            if (result < 0)
                return result;
        }
        fd = open_in_root(tree, path, O_PATH | O_DIRECTORY);
    }
    return fd < 0 ? err_errno(err, -fd, "cannot open the folder /%.500s", path) : fd;
}

/* Splits the path; the folder is the caller's to close. */
static int open_place(struct import_tree *tree, char *path, struct place *ret, struct err *err)
{
    char none[] = "";
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    ret->folder_fd = open_folder(tree, slash ? path : none, err);
    if (slash)
        *slash = '/';
    ret->name = slash ? slash + 1 : path;
    return ret->folder_fd < 0 ? ret->folder_fd : 0;
}

static uint32_t owner(int64_t id)
{
    return id < 0 || id > UINT16_MAX ? NOBODY : (uint32_t)id;
}

/* The owner first: chown(2) takes bits of the mode away. */
static int set_owner(const struct import_tree *tree, int fd, struct archive_entry *entry)
{
    if (tree->is_squashed)
        return 0;
    return fchownat(fd, "", owner(archive_entry_uid(entry)), owner(archive_entry_gid(entry)),
                    AT_EMPTY_PATH);
}

static void set_time(int fd, struct archive_entry *entry)
{
    struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = archive_entry_mtime(entry), .tv_nsec = archive_entry_mtime_nsec(entry)}};
    if (times[1].tv_nsec < 0 || times[1].tv_nsec > 999999999)
        times[1].tv_nsec = 0;
    futimens(fd, times); /* a time that this file system cannot keep is no loss */
}

/* ---------------------------------------------------------------------------------- kinds */

static int add_folder(struct import_tree *tree, const struct place *place,
                      struct archive_entry *entry, struct err *err)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    const char *name = place->name[0] ? place->name : ".";
    cleanup_fd int fd = openat(place->folder_fd, name, flags);
    if (fd < 0) {
        int result = tree_remove(place->folder_fd, name, err);
        if (result < 0)
            return result;
        if (mkdirat(place->folder_fd, name, 0700) < 0)
            return err_errno(err, errno, "cannot make a folder");
        fd = openat(place->folder_fd, name, flags);
    }
    mode_t mode = archive_entry_perm(entry) & (tree->is_squashed ? 01777 : 03777);
    if (fd < 0 || set_owner(tree, fd, entry) < 0 || fchmod(fd, mode) < 0)
        return err_errno(err, errno, "cannot make a folder");
    return 0;
}

/* Bytes are counted at the full length of the file: holes cost nothing here, but do where the file
 * is copied. */
static int count_bytes(struct import_tree *tree, int64_t size, struct err *err)
{
    if (size < 0 || size > LIMIT_IMPORT_BYTES - tree->bytes)
        return err_set(err, EMSGSIZE, "the image's files have more than %lld GiB",
                       LIMIT_IMPORT_BYTES >> 30);
    tree->bytes += size;
    return 0;
}

static int write_data(struct import_tree *tree, struct archive *tar, int64_t size, int fd,
                      struct err *err)
{
    const void *data;
    size_t len;
    la_int64_t offset;
    int result;
    while ((result = archive_read_data_block(tar, &data, &len, &offset)) == ARCHIVE_OK) {
        if (offset < 0 || offset > size || (int64_t)len > size - offset)
            return err_set(err, EINVAL, "the archive is broken: a file goes beyond its end");
        int room = count_written(tree, (int64_t)len, err);
        if (room < 0)
            return room;
        for (size_t done = 0; done < len;) {
            ssize_t n = pwrite(fd, (const char *)data + done, len - done, offset + (off_t)done);
            if (n < 0 && errno != EINTR)
                return err_errno(err, errno, "cannot write a file");
            done += n < 0 ? 0 : (size_t)n;
        }
    }
    if (result != ARCHIVE_EOF)
        return err_set(err, EINVAL, "the archive is broken: %s", archive_error_string(tar));
    return ftruncate(fd, size) < 0 ? err_errno(err, errno, "cannot write a file") : 0;
}

static int add_file(struct import_tree *tree, struct archive *tar, const struct place *place,
                    struct archive_entry *entry, struct err *err)
{
    int64_t size = archive_entry_size(entry);
    int result = count_bytes(tree, size, err);
    if (result == 0)
        result = tree_remove(place->folder_fd, place->name, err);
    if (result < 0)
        return result;
    cleanup_fd int fd = openat(place->folder_fd, place->name,
                               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot make a file");
    result = write_data(tree, tar, size, fd, err);
    if (result < 0)
        return result;
    if (set_owner(tree, fd, entry) < 0 || fchmod(fd, archive_entry_perm(entry) & 0777) < 0)
        return err_errno(err, errno, "cannot set the mode of a file");
    set_time(fd, entry);
    return 0;
}

static int add_symlink(struct import_tree *tree, const struct place *place,
                       struct archive_entry *entry, struct err *err)
{
    const char *target = archive_entry_symlink(entry);
    if (!target || !target[0])
        return err_set(err, EINVAL, "a link without a target");
    int result = tree_remove(place->folder_fd, place->name, err);
    if (result < 0)
        return result;
    if (symlinkat(target, place->folder_fd, place->name) < 0)
        return err_errno(err, errno, "cannot make a link");
    if (!tree->is_squashed &&
        fchownat(place->folder_fd, place->name, owner(archive_entry_uid(entry)),
                 owner(archive_entry_gid(entry)), AT_SYMLINK_NOFOLLOW) < 0)
        return err_errno(err, errno, "cannot give a link away");
    return 0;
}

/* A second name of a file of the image; its data, when the entry has some, is there already. */
static int add_hard_link(struct import_tree *tree, const struct place *place,
                         struct archive_entry *entry, struct err *err)
{
    char path[LIMIT_IMPORT_PATH_BYTES + 1];
    struct place target = {-1, ""};
    int result = import_clean_path(archive_entry_hardlink(entry), path, err);
    if (result == 0)
        result = tree_remove(place->folder_fd, place->name, err);
    if (result == 0)
        result = open_place(tree, path, &target, err);
    if (result < 0)
        return result;
    if (linkat(target.folder_fd, target.name, place->folder_fd, place->name, 0) < 0)
        result = err_errno(err, errno, "cannot link to %.300s", path);
    close(target.folder_fd);
    return result;
}

static int add_at(struct import_tree *tree, struct archive *tar, struct archive_entry *entry,
                  const struct place *place, struct err *err)
{
    if (archive_entry_hardlink(entry))
        return add_hard_link(tree, place, entry, err);
    switch (archive_entry_filetype(entry)) {
    case AE_IFDIR:
        return add_folder(tree, place, entry, err);
    case AE_IFREG:
        return add_file(tree, tar, place, entry, err);
    case AE_IFLNK:
        return add_symlink(tree, place, entry, err);
    default:
        tree->dropped++;
        return 0;
    }
}

int import_tree_add(struct import_tree *tree, struct archive *tar, struct archive_entry *entry,
                    char *path, struct err *err)
{
    struct place place;
    int result = count_entry(tree, err);
    if (result < 0)
        return result;
    if (!path[0] && archive_entry_filetype(entry) != AE_IFDIR)
        return err_set(err, EINVAL, "the root of the image is no folder");
    result = open_place(tree, path, &place, err);
    if (result == 0) {
        result = add_at(tree, tar, entry, &place, err);
        close(place.folder_fd);
    }
    return result < 0 ? err_context(err, result, "/%.500s of the image", path) : 0;
}

/* ------------------------------------------------------------------------------ whiteouts */

/* The folder that the path is in, when the image has one. */
static int open_lower(const struct import_tree *tree, char *path, char *slash)
{
    if (slash)
        *slash = '\0';
    int fd = open_in_root(tree, slash ? path : "", O_PATH | O_DIRECTORY);
    if (slash)
        *slash = '/';
    return fd;
}

int import_tree_whiteout(struct import_tree *tree, char *path, bool *ret_is_one, struct err *err)
{
    char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    *ret_is_one = strncmp(name, WHITEOUT, strlen(WHITEOUT)) == 0;
    if (!*ret_is_one)
        return 0;
    bool is_opaque = strcmp(name, WHITEOUT_OPAQUE) == 0;
    if (!is_opaque && strncmp(name, WHITEOUT_OTHER, strlen(WHITEOUT_OTHER)) == 0)
        return 0;
    name += strlen(WHITEOUT);
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return err_set(err, EINVAL, "a layer takes away what is no name");
    cleanup_fd int folder = open_lower(tree, path, slash);
    if (folder == -ENOENT || folder == -ENOTDIR)
        return 0; /* there is nothing to take away */
    if (folder < 0)
        return err_errno(err, -folder, "cannot open a folder of the image");
    return is_opaque ? tree_clear(folder, err) : tree_remove(folder, name, err);
}

int import_tree_read(const struct import_tree *tree, const char *path, struct buf *ret,
                     struct err *err)
{
    struct stat st;
    cleanup_fd int fd = open_in_root(tree, path, O_RDONLY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    int result = fd_read_all(fd, ret);
    return result < 0 ? err_errno(err, -result, "cannot read /%s of the image", path) : 0;
}
