/*
 * fork and exec of our own programs; see spawn.h. Between fork and exec only system calls, no
 * allocation; every failure there ends the child with 127.
 */
#include "supervisor/spawn.h"

#include <assert.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/userns.h"
#include "util/cleanup.h"
#include "util/limits.h"

/* Descriptors are first moved above every number that one of them is to get. */
#define SPAWN_PARKING 64
#define SPAWN_FIRST 3

struct spawn_ids {
    uid_t uid;
    gid_t gid;
};

static bool spawn_set_fds(const struct spawn *spawn, int null_fd)
{
    int parked[LIMIT_IPC_DESCRIPTORS];
    for (size_t i = 0; i < spawn->fd_count; i++) {
        parked[i] = fcntl(spawn->fds[i], F_DUPFD_CLOEXEC, SPAWN_PARKING);
        if (parked[i] < 0)
            return false;
    }
    if (dup2(null_fd, STDIN_FILENO) < 0 || dup2(null_fd, STDOUT_FILENO) < 0)
        return false;
    for (size_t i = 0; i < spawn->fd_count; i++)
        if (dup2(parked[i], SPAWN_FIRST + (int)i) < 0)
            return false;
    return syscall(SYS_close_range, SPAWN_FIRST + (unsigned)spawn->fd_count, ~0U, 0) == 0;
}

/* In a user namespace of its own a process maps its id itself, and has no groups to give up that
 * count there. */
static bool spawn_drop_privileges(const struct spawn *spawn)
{
    uint32_t id = spawn->id;
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            return false;
    if (!spawn->is_user &&
        (setgroups(0, NULL) < 0 || setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0))
        return false;
    /* setresuid cleared what is effective and permitted; this clears what is inheritable. */
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};
    return syscall(SYS_capset, &header, none) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

static void spawn_reset_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL); /* fails for SIGKILL and SIGSTOP alone */
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* As fork(2). */
static pid_t spawn_fork(const struct spawn *spawn)
{
    struct clone_args args = {.flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWIPC |
                                       (spawn->has_network ? 0 : CLONE_NEWNET),
                              .exit_signal = SIGCHLD};
    return spawn->is_user ? (pid_t)syscall(SYS_clone3, &args, sizeof(args)) : fork();
}

static _Noreturn void spawn_child(const struct spawn *spawn, const struct spawn_ids *ids,
                                  int null_fd)
{
    static char *const no_environment[] = {NULL};
    char *const *argv; /* execve(2) changes nothing, its type says otherwise */
    memcpy(&argv, &spawn->argv, sizeof(argv));
    spawn_reset_signals();
    umask(0077);
    if (spawn->is_user && userns_map_self(ids->uid, ids->uid, ids->gid, NULL) < 0)
        _exit(127);
    if (spawn_set_fds(spawn, null_fd) && chdir("/") == 0 && spawn_drop_privileges(spawn))
        execve(spawn->path, argv, no_environment);
    _exit(127);
}

int spawn_start(const struct spawn *spawn, struct sandbox_process *ret, struct err *err)
{
    assert(spawn->fd_count <= LIMIT_IPC_DESCRIPTORS);
    if (access(spawn->path, X_OK) < 0)
        return err_errno(err, errno, "cannot execute %s", spawn->path);
    cleanup_fd int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0)
        return err_errno(err, errno, "cannot open /dev/null");
    struct spawn_ids ids = {geteuid(), getegid()}; /* as they are outside */
    pid_t pid = spawn_fork(spawn);
    if (pid < 0)
        return err_errno(err, errno, "cannot fork %s", spawn->path);
    if (pid == 0)
        spawn_child(spawn, &ids, null_fd);
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0) {
        int code = errno;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return err_errno(err, code, "cannot open a descriptor of process %d", pid);
    }
    *ret = (struct sandbox_process){.pid = pid, .pidfd = pidfd};
    return 0;
}

int spawn_reap(const struct sandbox_process *process)
{
    siginfo_t info = {0};
    if (waitid(P_PIDFD, (id_t)process->pidfd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
        return -1;
    return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}
