/* Descriptors and files; see fd.h. */
#include "util/fd.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/cleanup.h"

#define READ_CHUNK 16384

int fd_open_beneath(int dir_fd, const char *path, int flags, mode_t mode, bool regular_only,
                    struct err *err)
{
    struct open_how how = {
        .flags = (uint64_t)(flags | O_CLOEXEC | (flags & O_PATH ? 0 : O_NONBLOCK | O_NOCTTY)),
        .mode = flags & (O_CREAT | O_TMPFILE) ? mode : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    cleanup_fd int fd = (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s", path);
    if (regular_only) {
        struct stat st;
        if (fstat(fd, &st) < 0)
            return err_errno(err, errno, "cannot examine %s", path);
        if (!S_ISREG(st.st_mode))
            return err_set(err, EINVAL, "%s is not a regular file", path);
    }
    return TAKE_FD(fd);
}

uint64_t fd_read_count(int fd, const char *key)
{
    char text[1024];
    size_t len = strlen(key);
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0 && line[len] == ' ')
            return strtoull(line + len, NULL, 10);
    }
    return 0;
}

int fd_read_all(int fd, struct buf *ret)
{
    for (;;) {
        size_t room = ret->max - ret->len;
        size_t chunk = room < READ_CHUNK ? room : READ_CHUNK;
        char probe;
        char *end = chunk ? buf_reserve(ret, chunk) : &probe;
        if (!end)
            return -ENOMEM;
        ssize_t n = read(fd, end, chunk ? chunk : 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return 0;
        if (!chunk)
            return -EMSGSIZE;
        ret->len += (size_t)n;
        ret->data[ret->len] = '\0';
    }
}

int fd_read_file(int dir_fd, const char *path, struct buf *ret, struct err *err)
{
    cleanup_fd int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s", path);
    int result = fd_read_all(fd, ret);
    if (result == -EMSGSIZE)
        return err_set(err, EMSGSIZE, "%s is larger than %zu bytes", path, ret->max);
    if (result < 0)
        return err_errno(err, -result, "cannot read %s", path);
    return 0;
}

int fd_write_all(int fd, const void *data, size_t len)
{
    const char *from = data;
    while (len) {
        ssize_t n = write(fd, from, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        from += n;
        len -= (size_t)n;
    }
    return 0;
}

/* NAME.tmp: what will be NAME. It is not emptied first, so that it keeps the room it has. */
static int open_temp(int dir_fd, const char *name, mode_t mode, char temp[256], struct err *err)
{
    if (snprintf(temp, 256, "%s.tmp", name) >= 256)
        return err_set(err, ENAMETOOLONG, "cannot write %s: the name is too long", name);
    int fd = openat(dir_fd, temp, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);
    return fd < 0 ? err_errno(err, errno, "cannot create %s", temp) : fd;
}

int fd_reserve_file(int dir_fd, const char *name, mode_t mode, size_t bytes, struct err *err)
{
    char temp[256];
    cleanup_fd int fd = open_temp(dir_fd, name, mode, temp, err);
    if (fd < 0)
        return fd;
    int code = posix_fallocate(fd, 0, (off_t)bytes);
    return code ? err_errno(err, code, "cannot keep room for %s", name) : 0;
}

int fd_write_file_atomic(int dir_fd, const char *name, mode_t mode, const void *data, size_t len,
                         struct err *err)
{
    char temp[256];
    cleanup_fd int fd = open_temp(dir_fd, name, mode, temp, err);
    if (fd < 0)
        return fd;
    int result = fd_write_all(fd, data, len);
    if (result == 0 && (ftruncate(fd, (off_t)len) < 0 || fsync(fd) < 0))
        result = -errno;
    if (result == 0 && renameat(dir_fd, temp, dir_fd, name) < 0)
        result = -errno;
    if (result < 0) {
        unlinkat(dir_fd, temp, 0);
        return err_errno(err, -result, "cannot write %s", name);
    }
    cleanup_fd int dir = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || fsync(dir) < 0)
        return err_errno(err, errno, "cannot sync the folder of %s", name);
    return 0;
}

int fd_sealed(const char *name, const void *data, size_t len, struct err *err)
{
    cleanup_fd int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_errno(err, errno, "cannot make a memfd for %s", name);
    int result = fd_write_all(fd, data, len);
    if (result < 0)
        return err_errno(err, -result, "cannot fill the memfd for %s", name);
    if (lseek(fd, 0, SEEK_SET) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return err_errno(err, errno, "cannot seal the memfd for %s", name);
    return TAKE_FD(fd);
}

bool fd_is_sealed(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    return seals >= 0 && (seals & wanted) == wanted;
}

int fd_set_nonblock(int fd, bool nonblock)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return -errno;
    flags = nonblock ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
    return fcntl(fd, F_SETFL, flags) < 0 ? -errno : 0;
}

int fd_set_cloexec(int fd, bool cloexec)
{
    return fcntl(fd, F_SETFD, cloexec ? FD_CLOEXEC : 0) < 0 ? -errno : 0;
}

int fd_move_to(int fd, int target)
{
    if (fd == target)
        return fd_set_cloexec(fd, false);
    return dup2(fd, target) < 0 ? -errno : 0;
}
