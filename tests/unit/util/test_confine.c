/* The promises of util/confine.h, each tried by a forked child that is confined and then tries what
 * it must not be able to do. */
#include <assert.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/confine.h"
#include "util/fd.h"

#define NOBODY 65534

static void in_child(void (*body)(void))
{
    pid_t pid = fork();
    assert(pid >= 0);
    if (pid == 0) {
        body();
        _exit(0);
    }
    int status = 0;
    assert(waitpid(pid, &status, 0) == pid);
    assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void child_privileges(void)
{
    struct err err = {0};
    if (geteuid() == 0) {
        assert(confine_privileges(1, &err) == -EPERM && strstr(err.message, "capabilities"));
        assert(setresuid(NOBODY, NOBODY, NOBODY) == 0);
    }
    assert(confine_privileges(1, &err) == 0);
    assert(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    assert(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0);
    struct rlimit core;
    assert(getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_cur == 0 && core.rlim_max == 0);
}

static char folder[] = "/tmp/paddock-confine-XXXXXX";

static void child_landlock(void)
{
    static const char *const readable[] = {"/etc", "/nowhere/at/all"};
    struct err err = {0};
    char path[64];
    snprintf(path, sizeof(path), "%s/file", folder);
    cleanup_fd int before = open(path, O_RDWR | O_CLOEXEC);
    assert(before >= 0);
    int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert(confine_privileges(0, &err) == 0);
    assert(confine_landlock(readable, ARRAY_LEN(readable), &err) == 0);
    cleanup_fd int passwd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    assert(passwd >= 0);
    assert(open(path, O_RDONLY | O_CLOEXEC) < 0 && errno == EACCES);
    assert(open(path, O_WRONLY | O_CLOEXEC) < 0 && errno == EACCES);
    assert(unlink(path) < 0 && errno == EACCES);
    assert(open("/etc/paddock-confine-test", O_WRONLY | O_CREAT | O_CLOEXEC, 0600) < 0);
    assert(errno == EACCES);
    /* what was opened before stays usable: the audit, the CA's files */
    assert(write(before, "x", 1) == 1 && ftruncate(before, 0) == 0);
    struct sockaddr_in any = {.sin_family = AF_INET};
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1U);
    if (abi >= 4)
        assert(bind(tcp, (struct sockaddr *)&any, sizeof(any)) < 0 && errno == EACCES);
    if (abi >= 6)
        assert(kill(getppid(), 0) < 0 && errno == EPERM);
    close(tcp);
}

static int make_filter(void)
{
    const struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_uname, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct err err;
    int fd = fd_sealed("seccomp", program, sizeof(program), &err);
    assert(fd >= 0);
    return fd;
}

static void child_seccomp(void)
{
    struct err err = {0};
    int fd = make_filter();
    assert(lseek(fd, 8, SEEK_SET) == 8); /* another daemon read from the shared offset */
    assert(confine_privileges(0, &err) == 0 && confine_seccomp(fd, &err) == 0);
    char name[1024];
    assert(syscall(SYS_uname, name) < 0 && errno == ENOSYS);
    assert(fcntl(fd, F_GETFD) < 0 && errno == EBADF);
}

static void child_bad_filters(void)
{
    struct err err = {0};
    assert(confine_privileges(0, &err) == 0);
    assert(confine_seccomp(fd_sealed("x", "", 0, &err), &err) == -EINVAL);
    assert(confine_seccomp(fd_sealed("x", "abc", 3, &err), &err) == -EINVAL);
    assert(confine_seccomp(open("/etc/passwd", O_RDONLY | O_CLOEXEC), &err) == -EINVAL);
    assert(confine_seccomp(fd_sealed("x", "\377\377\377\377\377\377\377\377", 8, &err), &err) < 0);
    assert(confine_seccomp(-1, &err) == -EBADF);
}

int main(void)
{
    assert(mkdtemp(folder));
    char path[64];
    snprintf(path, sizeof(path), "%s/file", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert(fd >= 0 && close(fd) == 0);
    in_child(child_privileges);
    in_child(child_landlock);
    in_child(child_seccomp);
    in_child(child_bad_filters);
    assert(unlink(path) == 0 && rmdir(folder) == 0);
    return 0;
}
