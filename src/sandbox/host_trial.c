/* See host_trial.h. The child reports by what it writes into a pipe, as far as it comes. */
#include "sandbox/host_trial.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/userns.h"
#include "util/cleanup.h"
#include "util/fd.h"

/* Any folder that is there on every machine: it is covered in the child's own namespace alone. */
#define PLACE "/proc"

static int try_proc(void)
{
    return mount("proc", PLACE, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ? errno : 0;
}

static int try_tmpfs(void)
{
    return mount("tmpfs", PLACE, "tmpfs", 0, "size=64k") < 0 ? errno : 0;
}

/* By the calls with which a sandbox mounts its own. */
static int try_overlay(void)
{
    static const char *const folders[] = {PLACE "/lower", PLACE "/upper", PLACE "/work"};
    static const char *const keys[] = {"lowerdir", "upperdir", "workdir"};
    cleanup_fd int context = fsopen("overlay", FSOPEN_CLOEXEC);
    if (context < 0)
        return errno;
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        if (mkdir(folders[i], 0700) < 0 ||
            fsconfig(context, FSCONFIG_SET_STRING, keys[i], folders[i], 0) < 0)
            return errno;
    if (fsconfig(context, FSCONFIG_SET_FLAG, "userxattr", NULL, 0) < 0 ||
        fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return errno;
    cleanup_fd int mounted = fsmount(context, FSMOUNT_CLOEXEC, 0);
    return mounted < 0 ? errno : 0;
}

/* The first process of the new pid namespace, which alone can mount its /proc. */
static void try_mounts(struct host_trial *trial)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        trial->codes[TRIAL_MOUNT] = errno;
        return;
    }
    trial->codes[TRIAL_PROC] = try_proc(); /* before the old one is covered */
    trial->codes[TRIAL_MOUNT] = try_tmpfs();
    if (trial->codes[TRIAL_MOUNT] == 0)
        trial->codes[TRIAL_OVERLAY] = try_overlay();
}

static bool try_namespaces(struct host_trial *trial)
{
    static const int flags[] = {
        [TRIAL_MNT] = CLONE_NEWNS,  [TRIAL_PID] = CLONE_NEWPID, [TRIAL_NET] = CLONE_NEWNET,
        [TRIAL_IPC] = CLONE_NEWIPC, [TRIAL_UTS] = CLONE_NEWUTS, [TRIAL_CGROUP] = CLONE_NEWCGROUP,
    };
    uid_t uid = geteuid();
    gid_t gid = getegid();
    /* The maps of an undumpable process belong to root: proc(5). This child has no secrets that its
     * own user could not read anyhow. */
    if (uid != 0)
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    trial->codes[TRIAL_USER] = unshare(CLONE_NEWUSER) < 0 ? errno : 0;
    if (trial->codes[TRIAL_USER])
        return false;
    trial->codes[TRIAL_MAP] = -userns_map_self(0, uid, gid, NULL); /* root in there */
    bool is_good = trial->codes[TRIAL_MAP] == 0;
    for (int i = TRIAL_MNT; i <= TRIAL_CGROUP && trial->codes[TRIAL_MAP] == 0; i++) {
        trial->codes[i] = unshare(flags[i]) < 0 ? errno : 0;
        is_good = is_good && trial->codes[i] == 0;
    }
    return is_good;
}

/* Both children: the second one, in the namespaces, begins with what the first found. */
_Noreturn static void run_child(int fd)
{
    struct host_trial trial;
    for (int i = 0; i < TRIAL_STEPS; i++)
        trial.codes[i] = -1;
    bool is_first = try_namespaces(&trial);
    pid_t pid = is_first ? fork() : -1;
    if (pid == 0)
        try_mounts(&trial);
    else if (pid > 0)
        waitpid(pid, NULL, 0);
    if (pid <= 0 && write(fd, &trial, sizeof(trial)) < 0)
        _exit(1);
    _exit(0);
}

int host_trial_run(struct host_trial *ret, struct err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    cleanup_fd int read_end = ends[0], write_end = ends[1];
    struct host_trial trial;
    pid_t pid = fork();
    if (pid == 0)
        run_child(write_end);
    if (pid < 0)
        return err_errno(err, errno, "cannot make a process");
    close(TAKE_FD(write_end));
    ssize_t len = read(read_end, &trial, sizeof(trial));
    waitpid(pid, NULL, 0);
    if (len != sizeof(trial))
        return err_set(err, EIO, "the child that tries namespaces told nothing");
    *ret = trial;
    return 0;
}
