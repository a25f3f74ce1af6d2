/* The forked child of PID 1, up to exec: group, session, descriptors, privileges. Says through the
 * report pipe why it failed. */
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (report_fd < 0)
        fail(plan->report_fd, errno, "cannot duplicate", "a descriptor");
    if (null_fd < 0 || fd_move_to(null_fd, 0) < 0 || fd_move_to(plan->stdout_fd, 1) < 0 ||
        fd_move_to(plan->stderr_fd, 2) < 0)
        fail(report_fd, errno, "cannot place", "the standard descriptors");
    return report_fd;
}

/* The agent has no capability at all; root keeps what init has, less the right to change sets. */
static int limit_bounding_set(uint32_t user)
{
    for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        if ((user != EXEC_AS_ROOT || cap == CAP_SETPCAP) &&
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
    if (setgroups(0, NULL) < 0 || setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
        fail(report_fd, errno, "cannot become", "the program's user");
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        fail(report_fd, errno, "cannot clear", "the ambient capabilities");
    if (user != EXEC_AS_ROOT && (result = clear_capabilities()) < 0)
        fail(report_fd, -result, "cannot clear", "the capabilities");
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

/* execvpe(3) takes arrays of char * for old reasons; it changes neither them nor the strings. */
static void execute(const char *const *argv, const char *const *environment)
{
    union {
        const char *const *in;
        char *const *out;
    } arguments = {.in = argv}, variables = {.in = environment};
    /* The program is looked for in its own PATH. */
    for (const char *const *entry = environment; *entry; entry++)
        if (strncmp(*entry, "PATH=", 5) == 0)
            setenv("PATH", *entry + 5, 1);
    execvpe(argv[0], arguments.out, variables.out);
}

void spawn_run_child(const struct spawn_plan *plan)
{
    const struct spawn_request *request = plan->request;
    if (request->procs_fd >= 0 && write(request->procs_fd, "0", 1) < 0)
        fail(plan->report_fd, errno, "cannot join", "its cgroup");
    if (setsid() < 0)
        fail(plan->report_fd, errno, "cannot make", "a session");
    int report_fd = place_descriptors(plan);
    become_user(request->user, report_fd);
    umask(022);
    if (chdir(plan->cwd) < 0)
        fail(report_fd, errno, "cannot change to", plan->cwd);
    reset_signals();
    execute(plan->argv, plan->environment);
    fail(report_fd, errno, "cannot execute", plan->argv[0]);
}
