/*
 * Trees that strangers wrote; see tree.h. Invariants: no path is ever built, each step is one name
 * below an open folder, and no link is followed. Depth costs no stack and no descriptor: the way
 * back is "..", and a folder left empty goes when its parent is read again.
 */
#include "util/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"

enum entry_result { ENTRY_GONE, ENTRY_FULL_FOLDER };

static int remove_entry(int dir_fd, const char *name, struct err *err)
{
    if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
        return ENTRY_GONE;
    if (errno != EISDIR)
        return err_errno(err, errno, "cannot remove a file");
    if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return ENTRY_GONE;
    if (errno == ENOTEMPTY || errno == EEXIST)
        return ENTRY_FULL_FOLDER;
    return err_errno(err, errno, "cannot remove a folder");
}

/* Removes the folder's entries up to the first that is itself a folder with entries, which is
 * opened as *ret_child (else -1). *ret_seen: there were entries at all. */
static int clear_folder(int dir_fd, int *ret_child, bool *ret_seen, struct err *err)
{
    cleanup_fd int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return err_errno(err, errno, "cannot read a folder");
    TAKE_FD(fd);
    *ret_child = -1;
    *ret_seen = false;
    int r = 0;
    const struct dirent *entry;
    while (r == 0 && *ret_child < 0 && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        *ret_seen = true;
        int result = remove_entry(dir_fd, entry->d_name, err);
        if (result == ENTRY_FULL_FOLDER) {
            *ret_child =
                openat(dir_fd, entry->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            result = *ret_child < 0 ? err_errno(err, errno, "cannot open a folder") : 0;
        }
        r = result < 0 ? result : 0;
    }
    closedir(dir);
    return r;
}

int tree_clear(int dir_fd, struct err *err)
{
    cleanup_fd int current = openat(dir_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (current < 0)
        return err_errno(err, errno, "cannot open a folder");
    uint64_t depth = 0;
    bool seen = true;
    while (depth > 0 || seen) {
        int next = -1;
        int r = clear_folder(current, &next, &seen, err);
        if (r < 0)
            return r;
        if (next >= 0) {
            depth++;
        } else if (depth > 0) {
            depth--;
            seen = true; /* the folder just left, at least */
            next = openat(depth ? current : dir_fd, depth ? ".." : ".",
                          O_PATH | O_DIRECTORY | O_CLOEXEC);
            if (next < 0)
                return err_errno(err, errno, "cannot go up from a folder");
        } else {
            continue;
        }
        close(current);
        current = next;
    }
    return 0;
}

int tree_remove(int dir_fd, const char *name, struct err *err)
{
    int result = remove_entry(dir_fd, name, err);
    if (result != ENTRY_FULL_FOLDER)
        return result;
    cleanup_fd int folder = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return err_errno(err, errno, "cannot open the folder %s", name);
    result = tree_clear(folder, err);
    if (result == 0 && unlinkat(dir_fd, name, AT_REMOVEDIR) < 0)
        result = err_errno(err, errno, "cannot remove the folder %s", name);
    return result;
}

/* ------------------------------------------------------------------------------- measuring */

#define DEPTH_MAX 512

/* A folder's descriptor stays open while what is below it is measured. */
static int measure(int dir_fd, const char *name, int depth, /* NOLINT(misc-no-recursion) */
                   int64_t *sum)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int code = errno;
        if (fd >= 0)
            close(fd);
        return -code;
    }
    int result = 0;
    const struct dirent *entry;
    while (result == 0 && (entry = readdir(dir))) {
        struct stat st;
        if (strcmp(entry->d_name, "..") == 0)
            continue;
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            result = -errno;
            break;
        }
        bool is_self = strcmp(entry->d_name, ".") == 0;
        if (!S_ISDIR(st.st_mode) || is_self)
            *sum += st.st_blocks * 512 / (is_self ? 1 : (int64_t)st.st_nlink);
        else
            result =
                depth == DEPTH_MAX ? -ELOOP : measure(dirfd(dir), entry->d_name, depth + 1, sum);
    }
    closedir(dir);
    return result;
}

int tree_measure(int dir_fd, int64_t *ret_bytes, struct err *err)
{
    int64_t sum = 0;
    int result = measure(dir_fd, ".", 0, &sum);
    if (result < 0)
        return err_errno(err, -result, "cannot measure a folder");
    *ret_bytes = sum;
    return 0;
}
