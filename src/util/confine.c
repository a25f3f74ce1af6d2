/* How a daemon shuts itself in; see confine.h. Runs once at start-up, before any thread is made and
 * before any foreign byte is read. Landlock has no wrapper in the C library: raw system calls, and
 * the rights that newer kernels know are defined here, so that an older kernel's headers suffice.
 */
#include "util/confine.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fd.h"

/* landlock(7): rights by the version of the interface (ABI) that brought them. */
#define FS_READ_FILE (1ULL << 2)
#define FS_READ_DIR (1ULL << 3)
#define FS_ABI_1 ((1ULL << 13) - 1) /* execute, read, write, make, remove */
#define FS_ABI_2 (1ULL << 13)       /* refer: rename into another folder */
#define FS_ABI_3 (1ULL << 14)       /* truncate */
#define FS_ABI_5 (1ULL << 15)       /* ioctl on devices */
#define NET_ABI_4 (1ULL << 0)       /* bind a TCP port: every listener arrives as a descriptor */
#define SCOPE_ABI_6 (3ULL << 0)     /* abstract Unix sockets and signals of others */

#define RULESET_VERSION (1U << 0)
#define RULE_PATH_BENEATH 1

struct ruleset {
    uint64_t fs;
    uint64_t net;
    uint64_t scoped;
};

struct path_rule {
    uint64_t allowed;
    int32_t parent_fd;
} __attribute__((packed));

static int confine_check_no_caps(struct err *err)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    if (syscall(SYS_capget, &header, data) < 0)
        return err_errno(err, errno, "cannot read the capabilities of this process");
    for (size_t i = 0; i < ARRAY_LEN(data); i++)
        if (data[i].effective || data[i].permitted || data[i].inheritable)
            return err_set(err, EPERM,
                           "this process still has capabilities: it must be started without any");
    return 0;
}

int confine_privileges(int need_no_caps, struct err *err)
{
    struct rlimit no_core = {0, 0};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_errno(err, errno, "cannot give up new privileges");
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_errno(err, errno, "cannot become undumpable");
    if (setrlimit(RLIMIT_CORE, &no_core) < 0)
        return err_errno(err, errno, "cannot forbid core files");
    return need_no_caps ? confine_check_no_caps(err) : 0;
}

/* All that the running kernel can forbid. */
static struct ruleset confine_rights(long abi)
{
    struct ruleset all = {.fs = FS_ABI_1};
    if (abi >= 2)
        all.fs |= FS_ABI_2;
    if (abi >= 3)
        all.fs |= FS_ABI_3;
    if (abi >= 4)
        all.net = NET_ABI_4;
    if (abi >= 5)
        all.fs |= FS_ABI_5;
    if (abi >= 6)
        all.scoped = SCOPE_ABI_6;
    return all;
}

static int confine_allow_folder(int ruleset_fd, const char *path, struct err *err)
{
    cleanup_fd int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s for Landlock", path);
    struct path_rule rule = {.allowed = FS_READ_FILE | FS_READ_DIR, .parent_fd = fd};
    if (syscall(SYS_landlock_add_rule, ruleset_fd, RULE_PATH_BENEATH, &rule, 0) < 0)
        return err_errno(err, errno, "cannot allow %s by Landlock", path);
    return 0;
}

int confine_landlock(const char *const *readable, size_t count, struct err *err)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, RULESET_VERSION);
    if (abi < 1)
        return err_set(
            err, ENOSYS,
            "the kernel has no Landlock: a kernel 6.1 or newer with CONFIG_SECURITY_LANDLOCK "
            "and landlock in its lsm= list is needed");
    struct ruleset rights = confine_rights(abi);
    cleanup_fd int ruleset_fd =
        (int)syscall(SYS_landlock_create_ruleset, &rights, sizeof(rights), 0);
    if (ruleset_fd < 0)
        return err_errno(err, errno, "cannot make a Landlock ruleset");
    for (size_t i = 0; i < count; i++) {
        int result = confine_allow_folder(ruleset_fd, readable[i], err);
        if (result < 0)
            return result;
    }
    if (syscall(SYS_landlock_restrict_self, ruleset_fd, 0) < 0)
        return err_errno(err, errno, "cannot enforce Landlock");
    return 0;
}

/* Reads with pread: the descriptor's offset is shared with every other daemon that got it. */
static int confine_read_filter(int fd, struct sock_filter *filter, size_t bytes, struct err *err)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = pread(fd, (char *)filter + done, bytes - done, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_errno(err, n < 0 ? errno : EIO, "cannot read the seccomp filter");
        done += (size_t)n;
    }
    return 0;
}

int confine_seccomp(int fd, struct err *err)
{
    cleanup_fd int owned = fd;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot examine the seccomp filter");
    size_t bytes = (size_t)st.st_size;
    if (!fd_is_sealed(fd) || !bytes || bytes % sizeof(struct sock_filter) ||
        bytes / sizeof(struct sock_filter) > BPF_MAXINSNS)
        return err_set(err, EINVAL, "descriptor %d holds no sealed seccomp filter", fd);
    cleanup_free struct sock_filter *filter = malloc(bytes);
    if (!filter)
        return err_errno(err, ENOMEM, "cannot load the seccomp filter");
    int result = confine_read_filter(owned, filter, bytes, err);
    if (result < 0)
        return result;
    struct sock_fprog program = {.len = (unsigned short)(bytes / sizeof(*filter)),
                                 .filter = filter};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        return err_errno(err, errno, "cannot load the seccomp filter");
    return 0;
}
