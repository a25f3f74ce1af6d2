/*
 * PID 1 of a sandbox: parts of one process, for this folder only. Everything runs in one thread on
 * one epoll loop, in memory that is there from the start; nothing waits but the fork of a program
 * for its exec. Who may be heard: the supervisor (socket, init.sock), and the kernel.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ipc/ipc.h"
#include "sandbox/init_fds.h"
#include "task/record.h"
#include "util/clock.h"
#include "util/err.h"

/* --- loop.c */

/* Runs until the sandbox is stopped. Returns the exit status. nests: see INIT_NESTS. */
int init_run(const char *boot_id, bool nests);

/* What an epoll event belongs to. */
enum init_source { SOURCE_SIGNALS, SOURCE_LISTEN, SOURCE_LINK, SOURCE_STDOUT, SOURCE_STDERR };
int loop_watch(int fd, enum init_source source, uint32_t events, struct err *err);
void loop_rewatch(int fd, enum init_source source, uint32_t events);
void loop_unwatch(int fd);
const char *loop_boot_id(void);
void loop_reap(void); /* every child that has ended */
void loop_stop(int64_t grace_ms);
bool loop_is_stopping(void);

/* --- link.c: the supervisor */

/* Takes the socket over as the supervisor's; `greeted`: it knows us, nothing need be asked first.
 */
void link_open(int sock, bool greeted);
void link_accept(void);
void link_receive(void); /* handles every message that is there */
void link_flush(void);
/* Sends, or keeps until the peer reads. The descriptors stay the caller's. */
void link_send(enum ipc_type type, uint64_t id, const void *body, const int *fds, size_t fd_count);
void link_send_status(uint64_t id, int code, const char *text);
void link_greet(uint64_t id); /* INIT_STATE, then what was kept */

/* --- spawn.c: a program */

struct spawn_request {
    int spec_fd;
    int prompt_fd;       /* -1: none */
    int procs_fd;        /* cgroup.procs of its group; -1: none */
    uint64_t open_files; /* most that a process may have; 0: as init itself */
    bool is_nested;      /* it is in a pid namespace of its own (nest.c) */
    uint32_t user;       /* EXEC_AS_* */
    bool has_stdin;      /* it reads from a pipe, else from /dev/null */
    bool is_terminal;    /* instead of pipes it has a terminal, of this size */
    uint32_t rows, cols;
    const char *cwd; /* instead of the spec's, where its user can enter it; "" or NULL: none */
};
struct spawned {
    pid_t pid;     /* leader of a session of its own */
    int stdout_fd; /* of one with a terminal its master, and nothing else */
    int stderr_fd;
    int stdin_fd; /* -1: it has none */
};
/* Starts it, with pipes that its user owns. Returns when it has been
 * executed, or -errno with the reason why it could not. The descriptors of the request stay the
 * caller's, those of *ret are the caller's. */
int spawn_program(const struct spawn_request *request, struct spawned *ret, struct err *err);

/* spawn_child.c: the child; ends in exec or says why not through report_fd. */
struct spawn_plan {
    const struct spawn_request *request;
    const char *cwd;
    const char *const *argv;
    const char *const *environment;
    int stdin_fd; /* -1: /dev/null */
    int stdout_fd, stderr_fd, report_fd;
};
struct spawn_report {
    int code;
    char text[256];
};
int spawn_run_child(void *plan); /* struct spawn_plan *; returns never */

/* --- ending.c: how it is ended */

struct ending {
    pid_t pid;     /* leader of a session; 0: none */
    int kill_fd;   /* cgroup.kill of its group; -1: none */
    int keeper_fd; /* pidfd of the first process of its pid namespace; -1: it has none of its own */
    int64_t deadline_at_ms; /* by clock_monotonic_ms; INT64_MAX: none */
    int64_t grace_ms;       /* after the deadline */
    int64_t kill_at_ms;     /* end of the grace; INT64_MAX: it is not being ended */
    enum task_end_kind why; /* it is being ended: CANCELLED, DEADLINE, DISK; or NONE */
};
#define ENDING_NONE                                                                                \
    {                                                                                              \
        .kill_fd = -1, .keeper_fd = -1, .deadline_at_ms = INT64_MAX, .kill_at_ms = INT64_MAX       \
    }
/* spawn_program, in a namespace of its own where it has no group to be ended by. *ret was
 * ENDING_NONE, and is again on error. */
int ending_spawn(struct spawn_request *request, struct ending *ret, struct spawned *ret_program,
                 struct err *err);
void ending_abort(struct ending *ending); /* of what was just spawned, and is to be nothing */
void ending_close(struct ending *ending); /* whatever runs goes on */
/* SIGTERM, and after the grace SIGKILL to all in its group or namespace. The first reason stays. */
void ending_begin(struct ending *ending, enum task_end_kind why, int64_t grace_ms);
int64_t ending_due_ms(const struct ending *ending); /* of ending_on_timer; INT64_MAX: never */
void ending_on_timer(struct ending *ending, int64_t now_ms);
void ending_over(struct ending *ending); /* its main process has ended: reaped just now */

/* --- nest.c: a pid namespace for the task, where no control group can be made */

int nest_open(struct err *err); /* at the start, with INIT_NESTS */
bool nest_is_on(void);
/* Makes a namespace, in which every child of this process is until nest_leave. Returns its keeper's
 * pidfd, the caller's; on error it is left already. */
int nest_make(struct err *err);
void nest_leave(void);
int nest_mount_proc(struct err *err); /* in a child that is in there, before it drops its rights */
void nest_kill(int keeper);           /* and with it all that is in its namespace */
void nest_over(int keeper);           /* the task has ended: it goes when the task's orphans have */
/* In a child, before its program: the filter that init itself does not have. -errno. */
int nest_confine(void);

/* --- log.c: what a task prints */

struct init_log {
    int pipe_fd; /* -1: closed */
    int file_fd;
    int64_t max_bytes; /* what is more is dropped and marked */
    int64_t written;
    bool is_cut;
};
/* Moves what is in the pipe to the file. True when something was appended. */
bool log_pump(struct init_log *log);
void log_close(struct init_log *log);

/* --- ports.c */

void ports_listen(const struct ipc_message *message); /* INIT_LISTEN */

/* --- task.c */

void task_start(struct ipc_message *message);
void task_cancel(const struct ipc_message *message);
void task_watch(struct ipc_message *message);
void task_fill_state(struct msg_init_state *ret);
bool task_has_ended(pid_t pid, int status); /* false: it is not the task's */
void task_pump(enum init_source source);
void task_stop(int64_t grace_ms);
int64_t task_timer_ms(void); /* when task_on_timer is due, by loop_now_ms; INT64_MAX: never */
void task_on_timer(int64_t now_ms);

/* --- exec.c */

void exec_start(struct ipc_message *message);
void exec_end(const struct ipc_message *message); /* INIT_EXEC_END */
bool exec_has_ended(pid_t pid, int status);
int64_t exec_timer_ms(void); /* as task_timer_ms */
void exec_on_timer(int64_t now_ms);
uint32_t exec_count(void);

/* How a process ended, by its wait status. */
void end_from_status(int status, struct task_end *ret);
