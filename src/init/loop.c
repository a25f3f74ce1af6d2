/* The loop of PID 1; see init.h. Invariant: every signal is blocked and read from a descriptor; the
 * kernel keeps signals from inside the sandbox from ending PID 1. */
#include <limits.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init/init.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define EVENTS_PER_TURN 16

static struct {
    int epoll_fd;
    int signal_fd;
    const char *boot_id;
    int64_t kill_at_ms; /* while stopping */
    bool is_stopping;
    bool is_done; /* stopping, and no child is left */
} loop = {.epoll_fd = -1, .signal_fd = -1, .kill_at_ms = INT64_MAX};

const char *loop_boot_id(void)
{
    return loop.boot_id;
}

bool loop_is_stopping(void)
{
    return loop.is_stopping;
}

int loop_watch(int fd, enum init_source source, uint32_t events, struct err *err)
{
    struct epoll_event event = {.events = events, .data.u32 = source};
    if (epoll_ctl(loop.epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        return err_errno(err, errno, "cannot watch a descriptor");
    return 0;
}

void loop_rewatch(int fd, enum init_source source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u32 = source};
    epoll_ctl(loop.epoll_fd, EPOLL_CTL_MOD, fd, &event);
}

void loop_unwatch(int fd)
{
    epoll_ctl(loop.epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

void loop_reap(void)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid <= 0) {
            loop.is_done = pid < 0 && loop.is_stopping;
            return;
        }
        if (!task_has_ended(pid, status))
            exec_has_ended(pid, status); /* neither: an orphan that was left to us */
    }
}

void loop_stop(int64_t grace_ms)
{
    task_stop(grace_ms);
    loop.is_stopping = true;
    int64_t at = clock_monotonic_ms() + grace_ms;
    if (at < loop.kill_at_ms)
        loop.kill_at_ms = at;
    kill(-1, SIGTERM);
    loop_reap();
}

static void read_signals(void)
{
    struct signalfd_siginfo info[8];
    while (read(loop.signal_fd, info, sizeof(info)) > 0)
        ;
    loop_reap();
}

static void dispatch(const struct epoll_event *event)
{
    switch ((enum init_source)event->data.u32) {
    case SOURCE_SIGNALS:
        read_signals();
        break;
    case SOURCE_LISTEN:
        link_accept();
        break;
    case SOURCE_LINK:
        if (event->events & EPOLLOUT)
            link_flush();
        if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            link_receive();
        break;
    case SOURCE_STDOUT:
    case SOURCE_STDERR:
        task_pump((enum init_source)event->data.u32);
        break;
    }
}

static void run_timers(void)
{
    int64_t now = clock_monotonic_ms();
    if (task_timer_ms() <= now)
        task_on_timer(now);
    if (exec_timer_ms() <= now)
        exec_on_timer(now);
    if (loop.kill_at_ms <= now) {
        loop.kill_at_ms = INT64_MAX;
        kill(-1, SIGKILL);
    }
}

static int timeout_ms(void)
{
    int64_t at = task_timer_ms();
    if (exec_timer_ms() < at)
        at = exec_timer_ms();
    if (loop.kill_at_ms < at)
        at = loop.kill_at_ms;
    if (at == INT64_MAX)
        return -1;
    int64_t left = at - clock_monotonic_ms();
    if (left < 0)
        return 0;
    return left > INT_MAX ? INT_MAX : (int)left;
}

static int open_sources(struct err *err)
{
    sigset_t all;
    sigset_t child;
    sigfillset(&all);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    if (sigprocmask(SIG_SETMASK, &all, NULL) < 0)
        return err_errno(err, errno, "cannot block signals");
    loop.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop.signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (loop.epoll_fd < 0 || loop.signal_fd < 0)
        return err_errno(err, errno, "cannot make the loop");
    for (int fd = INIT_FD_SUPERVISOR; fd < INIT_FD_END; fd++)
        if (fd_set_cloexec(fd, true) < 0)
            return err_errno(err, errno, "descriptor %d is missing", fd);
    fd_set_nonblock(INIT_FD_LISTEN, true);
    int result = loop_watch(loop.signal_fd, SOURCE_SIGNALS, EPOLLIN, err);
    return result < 0 ? result : loop_watch(INIT_FD_LISTEN, SOURCE_LISTEN, EPOLLIN, err);
}

int init_run(const char *boot_id, bool nests)
{
    struct err err = {0};
    loop.boot_id = boot_id;
    /* No process of the sandbox, root's either, may trace us or look at our descriptors. */
    int result = prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0
                     ? err_errno(&err, errno, "cannot become undumpable")
                     : open_sources(&err);
    if (result == 0 && nests)
        result = nest_open(&err);
    if (result < 0) {
        struct msg_status status = {.code = -result};
        IPC_SET_TEXT(status.text, err.message);
        ipc_send(INIT_FD_SUPERVISOR, IPC_INIT_FAILED, 0, &status, NULL, 0, NULL);
        return 1;
    }
    link_open(INIT_FD_SUPERVISOR, true);
    link_greet(0);
    while (!loop.is_done) {
        struct epoll_event events[EVENTS_PER_TURN];
        int count = epoll_wait(loop.epoll_fd, events, EVENTS_PER_TURN, timeout_ms());
        for (int i = 0; i < count; i++)
            dispatch(&events[i]);
        run_timers();
    }
    link_flush();
    return 0;
}
