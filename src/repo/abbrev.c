/*
 * The length of shortened names; see abbrev.h. Process: paddock-jail. Invariant: an index that the
 * agent forged changes a length and nothing else.
 */
#include "repo/abbrev.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fd.h"

#define FEWEST_DIGITS 7

static uint32_t big_endian(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

uint32_t repo_pack_index_count(const unsigned char *head, size_t len)
{
    size_t table = len >= 4 && memcmp(head, "\377tOc", 4) == 0 ? 8 : 0;
    size_t last = table + 255 * sizeof(uint32_t);
    return len >= last + sizeof(uint32_t) ? big_endian(head + last) : 0;
}

int repo_abbrev_digits(uint64_t packed_objects)
{
    int bits = packed_objects ? 64 - __builtin_clzll(packed_objects) : 0;
    int digits = (bits + 1) / 2;
    return digits < FEWEST_DIGITS ? FEWEST_DIGITS : digits;
}

/* The count of pack-X.idx, when there is a pack-X.pack. */
static uint32_t count_pack(int pack_fd, const char *name)
{
    char pack[NAME_MAX + 2];
    size_t len = strlen(name);
    if (len < 5 || strcmp(name + len - 4, ".idx") != 0)
        return 0;
    snprintf(pack, sizeof(pack), "%.*s.pack", (int)(len - 4), name);
    unsigned char head[REPO_PACK_INDEX_HEAD_BYTES];
    cleanup_fd int fd = fd_open_beneath(pack_fd, name, O_RDONLY, 0, true, NULL);
    if (fd < 0 || faccessat(pack_fd, pack, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    ssize_t n = pread(fd, head, sizeof(head), 0);
    return n > 0 ? repo_pack_index_count(head, (size_t)n) : 0;
}

int repo_abbrev_of(int root_fd, const char *git_dir)
{
    char path[PATH_MAX];
    uint64_t count = 0;
    if ((size_t)snprintf(path, sizeof(path), "%s/objects/pack", git_dir) >= sizeof(path))
        return FEWEST_DIGITS;
    cleanup_fd int fd = fd_open_beneath(root_fd, path, O_RDONLY | O_DIRECTORY, 0, false, NULL);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return FEWEST_DIGITS;
    int pack_fd = TAKE_FD(fd);
    const struct dirent *entry;
    while ((entry = readdir(dir)))
        count += count_pack(pack_fd, entry->d_name);
    closedir(dir);
    return repo_abbrev_digits(count);
}
