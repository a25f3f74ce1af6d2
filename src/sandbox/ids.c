/* Leases of blocks of ids, and a user namespace per block; see ids.h. Supervisor only. */
#include "sandbox/ids.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/process.h"
#include "util/cleanup.h"

struct block {
    uint64_t released; /* when it was last given back, by the pool's own count; 0: never used */
    int userns;        /* -1 until first asked for */
    bool leased;
};

struct ids {
    bool is_shared;
    uint32_t base;
    uint32_t count; /* blocks */
    uint64_t clock;
    struct block blocks[];
};

/* One line "name:start:count" of /etc/subuid against our range. */
static bool range_overlaps(const char *line, uint64_t base, uint64_t count)
{
    const char *colon = strchr(line, ':');
    char *end;
    if (!colon)
        return false;
    uint64_t start = strtoull(colon + 1, &end, 10);
    if (*end != ':')
        return false;
    uint64_t length = strtoull(end + 1, NULL, 10);
    return start < base + count && base < start + length;
}

static int check_subordinate(const char *path, uint64_t base, uint64_t count, struct err *err)
{
    cleanup_file FILE *file = fopen(path, "re");
    if (!file)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot read %s", path);
    char line[512];
    while (fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        if (range_overlaps(line, base, count))
            return err_set(
                err, EINVAL, "ids %llu to %llu overlap with \"%s\" in %s: choose another ids.base",
                (unsigned long long)base, (unsigned long long)(base + count - 1), line, path);
    }
    return 0;
}

int ids_new(uint32_t base, uint32_t count, struct ids **ret, struct err *err)
{
    if (base == 0 || base % IDS_PER_BLOCK || count % IDS_PER_BLOCK || count / IDS_PER_BLOCK < 4 ||
        (uint64_t)base + count > UINT32_MAX)
        return err_set(
            err, EINVAL,
            "ids.base and ids.count must be multiples of %d, at least 4 of them, and end "
            "below 2^32",
            IDS_PER_BLOCK);
    int result = check_subordinate("/etc/subuid", base, count, err);
    if (result == 0)
        result = check_subordinate("/etc/subgid", base, count, err);
    if (result < 0)
        return result;
    uint32_t blocks = count / IDS_PER_BLOCK;
    struct ids *ids = calloc(1, sizeof(*ids) + blocks * sizeof(ids->blocks[0]));
    if (!ids)
        return err_set(err, ENOMEM, "no memory for the pool of ids");
    ids->base = base;
    ids->count = blocks;
    for (uint32_t i = 0; i < blocks; i++)
        ids->blocks[i].userns = -1;
    ids->blocks[0].leased = true; /* api's and egress's own */
    *ret = ids;
    return 0;
}

int ids_new_shared(struct ids **ret, struct err *err)
{
    struct ids *ids = calloc(1, sizeof(*ids));
    if (!ids)
        return err_set(err, ENOMEM, "no memory for the pool of ids");
    ids->is_shared = true;
    *ret = ids;
    return 0;
}

void ids_free(struct ids *ids)
{
    if (!ids)
        return;
    for (uint32_t i = 0; i < ids->count; i++)
        if (ids->blocks[i].userns >= 0)
            close(ids->blocks[i].userns);
    free(ids);
}

uint32_t ids_base(const struct ids *ids, uint32_t block)
{
    return ids->base + block * IDS_PER_BLOCK;
}

uint32_t ids_daemon(const struct ids *ids, uint32_t offset)
{
    return ids->is_shared ? geteuid() : ids_base(ids, 0) + offset;
}

/* A block whose user namespace is there already comes first: else every one of them would be made
 * in turn and kept. Among equals the least recently used. */
static bool is_better(const struct block *one, const struct block *other)
{
    bool is_warm = one->userns >= 0;
    if (is_warm != (other->userns >= 0))
        return is_warm;
    return one->released < other->released;
}

int ids_lease(struct ids *ids, uint32_t *ret_block, struct err *err)
{
    uint32_t best = 0;
    if (ids->is_shared) {
        *ret_block = 1;
        return 0;
    }
    for (uint32_t i = 1; i < ids->count; i++)
        if (!ids->blocks[i].leased && (!best || is_better(&ids->blocks[i], &ids->blocks[best])))
            best = i;
    if (!best)
        return err_set(err, EAGAIN, "all %u blocks of ids are in use: raise ids.count",
                       ids->count - 1);
    ids->blocks[best].leased = true;
    *ret_block = best;
    return 0;
}

int ids_claim(struct ids *ids, uint32_t block, struct err *err)
{
    if (ids->is_shared)
        return 0;
    if (block == 0 || block >= ids->count)
        return err_set(err, EINVAL, "block %u is not one of the configured ids", block);
    if (ids->blocks[block].leased)
        return err_set(err, EBUSY, "block %u of ids is in use", block);
    ids->blocks[block].leased = true;
    return 0;
}

void ids_release(struct ids *ids, uint32_t block)
{
    if (block == 0 || block >= ids->count)
        return;
    ids->blocks[block].leased = false;
    ids->blocks[block].released = ++ids->clock;
}

/* The child of make_userns: it has copies of all our descriptors (the lock of STATE too), so it
 * ends with us, however we end: then the pipe has no writer any more. */
_Noreturn static void wait_in_userns(int read_end, int write_end)
{
    char none;
    close(write_end);
    while (read(read_end, &none, 1) < 0 && errno == EINTR)
        ;
    _exit(0);
}

/* A user namespace lives as long as a process in it or a descriptor of it: a child that only waits
 * is made, mapped, opened and killed. */
static int make_userns(uint32_t base, struct err *err)
{
    int life[2];
    if (pipe2(life, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    cleanup_fd int read_end = life[0], write_end = life[1];
    int pidfd = -1;
    struct clone_args args = {.flags = CLONE_NEWUSER | CLONE_PIDFD,
                              .pidfd = (uint64_t)(uintptr_t)&pidfd};
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0)
        wait_in_userns(read_end, write_end);
    if (pid < 0)
        return err_errno(err, errno, "cannot make a user namespace");
    int result = process_write_maps(pid, base, err);
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    int fd = result < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (result == 0 && fd < 0)
        result = err_errno(err, errno, "cannot open %s", path);
    process_end(pidfd);
    return result < 0 ? result : fd;
}

int ids_userns(struct ids *ids, uint32_t block, struct err *err)
{
    if (block >= ids->count)
        return err_set(err, EINVAL, "block %u is not one of the configured ids", block);
    struct block *entry = &ids->blocks[block];
    if (entry->userns < 0) {
        int fd = make_userns(ids_base(ids, block), err);
        if (fd < 0)
            return fd;
        entry->userns = fd;
    }
    return entry->userns;
}
