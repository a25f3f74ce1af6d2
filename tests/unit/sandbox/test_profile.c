/* What tells the seccomp profiles apart: each is loaded into a child that tries the calls. */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/profile.h"

/* Runs `check` under the profile; its result is the exit status. */
static int under(int profile, int (*check)(void))
{
    cleanup_buf struct buf text = BUF_INIT(SECCOMP_FILTER_MAX);
    assert(profile_compile(profile, &text, NULL) == 0);
    pid_t pid = fork();
    assert(pid >= 0);
    if (pid == 0) {
        struct sock_fprog program = {.len = (unsigned short)(text.len / sizeof(struct sock_filter)),
                                     .filter = (struct sock_filter *)(void *)text.data};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
            _exit(255);
        _exit(check());
    }
    int status;
    assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int unix_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM, 0) < 0 ? errno : 0;
}

static int inet_socket(void)
{
    return socket(AF_INET, SOCK_STREAM, 0) < 0 ? errno : 0;
}

static int enter_nothing(void)
{
    return setns(-1, 0) < 0 ? errno : 0;
}

static int mount_nothing(void)
{
    return mount("/nowhere", "/nowhere", "proc", 0, NULL) < 0 ? errno : 0;
}

static int new_user_namespace(void)
{
    return unshare(CLONE_NEWUSER) < 0 ? errno : 0;
}

static int new_mount_namespace(void)
{
    return unshare(CLONE_NEWNS) < 0 ? errno : 0;
}

int main(void)
{
    assert(under(SECCOMP_EGRESS, unix_socket) == EAFNOSUPPORT);
    assert(under(SECCOMP_EGRESS, inet_socket) == 0);
    assert(under(SECCOMP_SANDBOX, unix_socket) == 0);
    /* an init that nests may do what its programs may not, but for capabilities */
    assert(under(SECCOMP_SANDBOX, enter_nothing) == EPERM);
    assert(under(SECCOMP_NESTING, enter_nothing) == EBADF);
    assert(under(SECCOMP_SANDBOX, mount_nothing) == EPERM);
    assert(under(SECCOMP_NESTING, mount_nothing) == ENOENT);
    assert(under(SECCOMP_SANDBOX, new_mount_namespace) == EPERM);
    assert(under(SECCOMP_NESTING, new_mount_namespace) == 0);
    assert(under(SECCOMP_SANDBOX, new_user_namespace) == EPERM);
    assert(under(SECCOMP_NESTING, new_user_namespace) == EPERM);
    return 0;
}
