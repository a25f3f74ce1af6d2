/*
 * Trees that strangers wrote; see tree.h. Invariants: no path is ever built, each step is one name
 * below an open folder, and no link is followed. Depth costs no stack, and descriptors only for the
 * LEVELS innermost folders: the way back to one further out is "..", and it is read again from its
 * beginning, which pays since at least LEVELS folders went meanwhile.
 */
#include "util/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

#define LEVELS 32

/* A folder that is being emptied. */
struct level {
    DIR *dir; /* NULL: none */
    uint64_t depth;
    bool has_seen;            /* entries, in this reading of it */
    char child[NAME_MAX + 1]; /* the folder in it where the work goes on */
};

/* The levels from the deepest, `depth`, upwards, as many as there is room for. */
struct clearing {
    struct level levels[LEVELS];
    uint64_t depth;
};

static void clearing_end(struct clearing *clearing)
{
    for (size_t i = 0; i < LEVELS; i++)
        if (clearing->levels[i].dir)
            closedir(clearing->levels[i].dir);
}

/* The level of the depth, or NULL when it had to give way to a deeper one. */
static struct level *clearing_at(struct clearing *clearing, uint64_t depth)
{
    struct level *level = &clearing->levels[depth % LEVELS];
    return level->dir && level->depth == depth ? level : NULL;
}

/* Opens dir_fd/name as the level of the depth, which is then the deepest. */
static int clearing_go(struct clearing *clearing, uint64_t depth, int dir_fd, const char *name,
                       struct err *err)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int code = errno;
        if (fd >= 0)
            close(fd);
        return err_errno(err, code, "cannot read a folder");
    }
    struct level *level = &clearing->levels[depth % LEVELS];
    if (level->dir)
        closedir(level->dir);
    *level = (struct level){.dir = dir, .depth = depth};
    clearing->depth = depth;
    return 0;
}

/* Removes what is in the folder, up to the first that is itself a folder with entries: that one's
 * name is in `child`. ENTRY_GONE: there is none. */
static int clearing_read(struct level *level, struct err *err)
{
    for (const struct dirent *entry; (entry = readdir(level->dir));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        level->has_seen = true;
        int result = remove_entry(dirfd(level->dir), entry->d_name, err);
        if (result != ENTRY_GONE) {
            snprintf(level->child, sizeof(level->child), "%s", entry->d_name);
            return result;
        }
    }
    return ENTRY_GONE;
}

/* The deepest folder was read to its end: goes up, or begins again when it is not empty. */
static int clearing_go_up(struct clearing *clearing, struct err *err)
{
    struct level *level = clearing_at(clearing, clearing->depth);
    struct level *parent = clearing_at(clearing, clearing->depth - 1);
    int result = parent ? remove_entry(dirfd(parent->dir), parent->child, err)
                        : clearing_go(clearing, clearing->depth - 1, dirfd(level->dir), "..", err);
    if (result < 0)
        return result;
    if (parent && result == ENTRY_FULL_FOLDER) {
        rewinddir(level->dir); /* readdir(3) may pass over what is beside a removed entry */
        return 0;
    }
    closedir(level->dir);
    level->dir = NULL;
    if (parent)
        clearing->depth--;
    return 0;
}

static int clearing_run(struct clearing *clearing, struct err *err)
{
    for (;;) {
        struct level *level = clearing_at(clearing, clearing->depth);
        int result = clearing_read(level, err);
        if (result == ENTRY_FULL_FOLDER)
            result =
                clearing_go(clearing, clearing->depth + 1, dirfd(level->dir), level->child, err);
        else if (result == ENTRY_GONE && clearing->depth > 0)
            result = clearing_go_up(clearing, err);
        else if (result == ENTRY_GONE && !level->has_seen)
            return 0;
        else if (result == ENTRY_GONE) {
            level->has_seen = false;
            rewinddir(level->dir);
        }
        if (result < 0)
            return result;
    }
}

int tree_clear(int dir_fd, struct err *err)
{
    struct clearing *clearing = calloc(1, sizeof(*clearing));
    if (!clearing)
        return err_set(err, ENOMEM, "no memory to empty a folder");
    int result = clearing_go(clearing, 0, dir_fd, ".", err);
    if (result == 0)
        result = clearing_run(clearing, err);
    clearing_end(clearing);
    free(clearing);
    return result;
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
