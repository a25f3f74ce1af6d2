/* The child of PID 1, up to exec: group, session, descriptors, privileges. Says through the report
 * pipe why it failed. It runs in the memory of PID 1, which waits meanwhile: it may change nothing
 * there but its own stack (and errno, which PID 1 does not look at then). */
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/init.h"
#include "util/fd.h"

#define AGENT_ID 1000

static _Noreturn void fail(int report_fd, int code, const char *what, const char *name)
{
    struct spawn_report report = {.code = code};
    snprintf(report.text, sizeof(report.text), "%s %s: %s", what, name, strerror(code));
    /* A pipe takes so few bytes whole; there is nobody else to tell. */
    if (write(report_fd, &report, sizeof(report)) < 0)
        _exit(126);
    _exit(127);
}

/* stdin, stdout, stderr; all else, the report too, is closed by exec. Every descriptor of PID 1 is
 * above 2. */
static int place_descriptors(const struct spawn_plan *plan)
{
    int report_fd = fcntl(plan->report_fd, F_DUPFD_CLOEXEC, 64);
    int stdin_fd = plan->stdin_fd < 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : plan->stdin_fd;
    if (report_fd < 0)
        fail(plan->report_fd, errno, "cannot duplicate", "a descriptor");
    if (stdin_fd < 0 || fd_move_to(stdin_fd, 0) < 0 || fd_move_to(plan->stdout_fd, 1) < 0 ||
        fd_move_to(plan->stderr_fd, 2) < 0)
        fail(report_fd, errno, "cannot place", "the standard descriptors");
    return report_fd;
}

/* The agent has no capability at all; root keeps what init has, less what is init's alone: to
 * change the sets, to make namespaces and to enter them. */
static int limit_bounding_set(uint32_t user)
{
    for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        if ((user != EXEC_AS_ROOT || cap == CAP_SETPCAP || cap == CAP_SYS_ADMIN ||
             cap == CAP_SYS_CHROOT) &&
            prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            return -errno;
    return 0;
}

static int clear_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
    return syscall(SYS_capset, &header, none) < 0 ? -errno : 0;
}

static void become_user(uint32_t user, int report_fd)
{
    int result = limit_bounding_set(user);
    if (result < 0)
        fail(report_fd, -result, "cannot limit", "the capabilities");
    id_t id = user == EXEC_AS_ROOT ? 0 : AGENT_ID;
    /* Where there is but one id, we are the agent already, and groups cannot be changed. */
    if (geteuid() != id &&
        (setgroups(0, NULL) < 0 || setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0))
        fail(report_fd, errno, "cannot become", "the program's user");
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        fail(report_fd, errno, "cannot clear", "the ambient capabilities");
    if (user != EXEC_AS_ROOT && (result = clear_capabilities()) < 0)
        fail(report_fd, -result, "cannot clear", "the capabilities");
    if ((result = nest_confine()) < 0)
        fail(report_fd, -result, "cannot load", "the seccomp filter");
}

/* Not init's own: it keeps a descriptor for each program that it looks after. */
static void limit_files(uint64_t max, int report_fd)
{
    struct rlimit files;
    if (!max)
        return;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        fail(report_fd, errno, "cannot read", "the limit of open files");
    if (files.rlim_max > max)
        files.rlim_max = max;
    if (files.rlim_cur > files.rlim_max)
        files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) < 0)
        fail(report_fd, errno, "cannot set", "the limit of open files");
}

static void reset_signals(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    for (int number = 1; number < _NSIG; number++)
        sigaction(number, &action, NULL); /* fails for SIGKILL and SIGSTOP, which have no other */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* As execvpe(3) does: what the kernel does not know is a shell's script. */
static void execute_file(const char *path, const char *const *argv, const char *const *environment)
{
    const char *script[LIMIT_SPEC_STRINGS + 2] = {"/bin/sh", path};
    /* execve(2) changes neither strings nor arrays. */
    syscall(SYS_execve, path, argv, environment);
    if (errno != ENOEXEC)
        return;
    for (size_t i = 1; argv[i - 1] && i < LIMIT_SPEC_STRINGS; i++)
        script[i + 1] = argv[i];
    syscall(SYS_execve, script[0], script, environment);
}

/* The program is looked for in its own PATH. */
static const char *find_path(const char *const *environment)
{
    const char *path = "/bin:/usr/bin";
    for (; *environment; environment++)
        if (strncmp(*environment, "PATH=", 5) == 0)
            path = *environment + 5;
    return path;
}

/* Returns when nothing could be executed, with errno; not through execvpe(3), which looks at PID
 * 1's own PATH. */
static void execute(const char *const *argv, const char *const *environment)
{
    bool is_denied = false;
    if (strchr(argv[0], '/')) {
        execute_file(argv[0], argv, environment);
        return;
    }
    for (const char *at = find_path(environment), *end; at; at = *end ? end + 1 : NULL) {
        char file[PATH_MAX];
        end = strchrnul(at, ':');
        int len = snprintf(file, sizeof(file), "%.*s%s%s", (int)(end - at), at,
                           end == at ? "" : "/", argv[0]);
        if (len >= (int)sizeof(file))
            continue;
        execute_file(file, argv, environment);
        is_denied |= errno == EACCES;
        if (errno != EACCES && errno != ENOENT && errno != ENOTDIR)
            return;
    }
    errno = is_denied ? EACCES : ENOENT;
}

int spawn_run_child(void *argument)
{
    const struct spawn_plan *plan = argument;
    const struct spawn_request *request = plan->request;
    if (request->procs_fd >= 0 && write(request->procs_fd, "0", 1) < 0)
        fail(plan->report_fd, errno, "cannot join", "its cgroup");
    struct err err = {0};
    int result = request->is_nested ? nest_mount_proc(&err) : 0;
    if (result < 0)
        fail(plan->report_fd, -result, err.message, "for the task");
    if (setsid() < 0)
        fail(plan->report_fd, errno, "cannot make", "a session");
    int report_fd = place_descriptors(plan);
    limit_files(request->open_files, report_fd);
    if (request->is_terminal && ioctl(0, TIOCSCTTY, 0) < 0)
        fail(report_fd, errno, "cannot take", "the terminal");
    become_user(request->user, report_fd);
    umask(022);
    bool is_elsewhere = request->cwd && request->cwd[0] && chdir(request->cwd) == 0;
    if (!is_elsewhere && chdir(plan->cwd) < 0)
        fail(report_fd, errno, "cannot change to", plan->cwd);
    reset_signals();
    execute(plan->argv, plan->environment);
    fail(report_fd, errno, "cannot execute", plan->argv[0]);
}
