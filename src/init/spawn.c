/* Starts a program that the supervisor asked for; see init.h. The spec is foreign: it is decoded by
 * task/spec.h from a sealed memfd, so that nobody changes it while it is read. */
#include "task/spec.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/init.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define AGENT_ID 1000
#define BASE_ENVIRONMENT_MAX 256
#define SPAWN_WAKE_MS 50
#define SPAWN_GONE_MS 1000
#define CHILD_STACK (64 * 1024)

/* Room for one program's strings; a program is started at a time. */
static struct {
    char spec[LIMIT_SPEC_BYTES];
    char prompt[LIMIT_PROMPT_BYTES + 1];
    const char *environment[BASE_ENVIRONMENT_MAX + LIMIT_SPEC_STRINGS + 2];
    struct spec decoded;
} room;

static int read_sealed(int fd, char *data, size_t max, const char *what, struct err *err)
{
    struct stat st;
    if (!fd_is_sealed(fd) || fstat(fd, &st) < 0)
        return err_set(err, EINVAL, "the %s is not in a sealed memfd", what);
    if (st.st_size < 0 || (size_t)st.st_size > max)
        return err_set(err, EMSGSIZE, "the %s is longer than %zu bytes", what, max);
    ssize_t n = pread(fd, data, (size_t)st.st_size, 0);
    if (n != st.st_size)
        return err_set(err, EIO, "cannot read the %s", what);
    return (int)n;
}

static int decode(const struct spawn_request *request, struct err *err)
{
    struct spec *spec = &room.decoded;
    int len = read_sealed(request->spec_fd, room.spec, sizeof(room.spec), "spec", err);
    if (len < 0)
        return len;
    int result = spec_decode(room.spec, (size_t)len, spec, err);
    if (result < 0 || spec->prompt == SPEC_NO_PROMPT)
        return result;
    if (request->prompt_fd < 0)
        return err_set(err, EINVAL, "the spec wants a prompt and there is none");
    len = read_sealed(request->prompt_fd, room.prompt, LIMIT_PROMPT_BYTES, "prompt", err);
    if (len < 0)
        return len;
    if (memchr(room.prompt, '\0', (size_t)len))
        return err_set(err, EINVAL, "the prompt holds a NUL byte");
    room.prompt[len] = '\0';
    spec->argv[spec->prompt] = room.prompt;
    return 0;
}

/* True when an entry of the list sets the variable that `entry` sets. */
static bool is_set_in(const char *const *list, const char *entry)
{
    size_t len = strcspn(entry, "=") + 1;
    for (; *list; list++)
        if (strncmp(*list, entry, len) == 0)
            return true;
    return false;
}

/* The base environment (ours), less what the spec sets, and the spec's. */
static void merge_environment(uint32_t user)
{
    static const char *const root_home[] = {"HOME=/root", NULL};
    const char *const *added = room.decoded.envp;
    size_t count = 0;
    if (user == EXEC_AS_ROOT && !is_set_in(added, root_home[0]))
        room.environment[count++] = root_home[0];
    for (char **entry = environ; *entry && count < BASE_ENVIRONMENT_MAX; entry++) {
        bool is_home = user == EXEC_AS_ROOT && is_set_in(root_home, *entry);
        if (!is_home && !is_set_in(added, *entry))
            room.environment[count++] = *entry;
    }
    for (uint32_t i = 0; i < room.decoded.envc; i++)
        room.environment[count++] = added[i];
    room.environment[count] = NULL;
}

struct pipe_pair {
    int read_fd, write_fd;
};

static void close_pair(const struct pipe_pair *pair)
{
    cleanup_fd_at(&pair->read_fd);
    cleanup_fd_at(&pair->write_fd);
}

#define cleanup_pair __attribute__((cleanup(close_pair)))

static int make_pipe(struct pipe_pair *ret, struct err *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    *ret = (struct pipe_pair){fds[0], fds[1]};
    return 0;
}

/* A pipe that belongs to the program's user: else it cannot open its own /dev/stdout or stdin. */
static int make_stream(uint32_t user, struct pipe_pair *ret, struct err *err)
{
    int result = make_pipe(ret, err);
    if (result < 0 || user == EXEC_AS_ROOT || geteuid() == AGENT_ID)
        return result;
    if (fchown(ret->write_fd, AGENT_ID, AGENT_ID) < 0)
        return err_errno(err, errno, "cannot give a pipe to the program's user");
    return 0;
}

/* A terminal of the sandbox's own devpts: `out` has its master and its slave, `in` and `error` the
 * slave again. The path is the sandbox's: whatever lies there, opening it holds nothing up and
 * makes it nobody's controlling terminal. ioctl_tty(2); pts(4). */
static int make_terminal(const struct spawn_request *request, struct pipe_pair *in,
                         struct pipe_pair *out, struct pipe_pair *error, struct err *err)
{
    int unlocked = 0;
    struct winsize size = {.ws_row = (unsigned short)request->rows,
                           .ws_col = (unsigned short)request->cols};
    out->read_fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (out->read_fd < 0)
        return err_errno(err, errno, "cannot open /dev/ptmx");
    if (ioctl(out->read_fd, TIOCSPTLCK, &unlocked) < 0 ||
        ioctl(out->read_fd, TIOCSWINSZ, &size) < 0)
        return err_errno(err, errno, "cannot make a terminal");
    out->write_fd = ioctl(out->read_fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (out->write_fd < 0)
        return err_errno(err, errno, "cannot open the terminal");
    if (request->user != EXEC_AS_ROOT && geteuid() != AGENT_ID &&
        fchown(out->write_fd, AGENT_ID, (gid_t)-1) < 0)
        return err_errno(err, errno, "cannot give the terminal to the program's user");
    in->read_fd = fcntl(out->write_fd, F_DUPFD_CLOEXEC, 0);
    error->write_fd = fcntl(out->write_fd, F_DUPFD_CLOEXEC, 0);
    return in->read_fd < 0 || error->write_fd < 0
               ? err_errno(err, errno, "cannot duplicate the terminal")
               : 0;
}

static int make_streams(const struct spawn_request *request, struct pipe_pair *in,
                        struct pipe_pair *out, struct pipe_pair *error, struct err *err)
{
    if (request->is_terminal)
        return make_terminal(request, in, out, error, err);
    int result = request->has_stdin ? make_stream(request->user, in, err) : 0;
    if (result == 0)
        result = make_stream(request->user, out, err);
    return result < 0 ? result : make_stream(request->user, error, err);
}

/* A process of the sandbox can stop the child, once it is of its user, and would hold PID 1 up with
 * it: it is woken until it has executed its program, and given up in the end. Every signal is
 * blocked: nothing interrupts the wait. */
static int wait_for_report(pid_t pid, int fd, struct err *err)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    int64_t until = clock_monotonic_ms() + LIMIT_EXEC_MS;
    while (poll(&wait, 1, SPAWN_WAKE_MS) <= 0) {
        if (clock_monotonic_ms() >= until)
            return err_set(err, ETIMEDOUT,
                           "the program's process came to no exec in %d ms: it was held up",
                           LIMIT_EXEC_MS);
        kill(pid, SIGCONT);
    }
    return 0;
}

/* Waits until the child has executed the program (the pipe closes) or says why it cannot. */
static int read_report(pid_t pid, int fd, struct err *err)
{
    struct spawn_report report = {0};
    int result = wait_for_report(pid, fd, err);
    if (result < 0)
        return result;
    ssize_t n = read(fd, &report, sizeof(report));
    if (n == 0)
        return 0;
    if (n != sizeof(report) || report.code <= 0)
        return err_set(err, EIO, "the program's process broke off");
    report.text[sizeof(report.text) - 1] = '\0';
    return err_set(err, report.code, "%s", report.text);
}

/* The child runs in our memory, on a stack of its own, until its exec: to copy the page tables of
 * PID 1 for that would cost more than all the rest. CLONE_VFORK is not for us, since the agent can
 * stop the child: it would stop PID 1 with it. */
static pid_t run_child(struct spawn_plan *plan, int report_fd, struct err *err)
{
    char *stack =
        mmap(NULL, CHILD_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED)
        return err_errno(err, errno, "cannot make a stack");
    pid_t pid = clone(spawn_run_child, stack + CHILD_STACK, CLONE_VM | SIGCHLD, plan);
    int result = pid < 0 ? err_errno(err, errno, "cannot make a process") : 0;
    close(plan->report_fd); /* ours; the child looks at the plan meanwhile: it stays as it is */
    if (result == 0)
        result = read_report(pid, report_fd, err);
    bool is_gone = true;
    if (result < 0 && pid > 0) {
        kill(pid, SIGKILL);                    /* whatever holds it up; it is reaped as an orphan */
        struct pollfd end = {.fd = report_fd}; /* closed when it has let go of our memory */
        is_gone = poll(&end, 1, SPAWN_GONE_MS) == 1;
    }
    if (is_gone)
        munmap(stack, CHILD_STACK);
    return result < 0 ? result : pid;
}

int spawn_program(const struct spawn_request *request, struct spawned *ret, struct err *err)
{
    cleanup_pair struct pipe_pair in = {-1, -1};
    cleanup_pair struct pipe_pair out = {-1, -1};
    cleanup_pair struct pipe_pair error = {-1, -1};
    cleanup_pair struct pipe_pair report = {-1, -1};
    int result = decode(request, err);
    if (result == 0)
        result = make_streams(request, &in, &out, &error, err);
    if (result == 0)
        result = make_pipe(&report, err);
    if (result < 0)
        return result;
    merge_environment(request->user);
    struct spawn_plan plan = {
        .request = request,
        .cwd = room.decoded.cwd,
        .argv = room.decoded.argv,
        .environment = room.environment,
        .stdin_fd = in.read_fd,
        .stdout_fd = out.write_fd,
        .stderr_fd = error.write_fd,
        .report_fd = TAKE_FD(report.write_fd),
    };
    pid_t pid = run_child(&plan, report.read_fd, err);
    if (pid < 0)
        return pid;
    *ret =
        (struct spawned){pid, TAKE_FD(out.read_fd), TAKE_FD(error.read_fd), TAKE_FD(in.write_fd)};
    return 0;
}
