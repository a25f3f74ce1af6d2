/*
 * The sandbox table, and per sandbox a queue of operations: they begin in the order they came, each
 * when its sandbox is in a state that lets it. What runs (execs) is not in the queue any more.
 *
 *   STOPPED --start--> STARTING --INIT_STATE--> RUNNING --stop--> STOPPING --end of init--> STOPPED
 *
 * From every state but STOPPED the end of init leads to STOPPED. While STARTING or STOPPING nothing
 * begins.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "jail/jail.h"
#include "sandbox/instance.h"
#include "supervisor/meta.h"
#include "supervisor/settings.h"
#include "supervisor/supervisor.h"

#define SANDBOX_LISTENERS 4

enum sandbox_state { SANDBOX_STOPPED, SANDBOX_STARTING, SANDBOX_RUNNING, SANDBOX_STOPPING };

enum op_kind { OP_EXEC, OP_TASK, OP_STOP, OP_REMOVE, OP_SET };

struct op {
    struct op *next;
    enum op_kind kind;
    struct reply reply;
    int fd; /* exec: the spec; task: the prompt; else -1 */
    uint32_t user;
    bool is_clone;
    bool no_cwd;      /* exec: the client named no folder */
    bool has_stdin;   /* exec: it reads what the client sends */
    bool is_terminal; /* exec: it has a terminal, of this size */
    uint32_t rows, cols;
    bool is_ended_apart;                         /* exec: EXEC_END may come for it */
    bool is_unwanted;                            /* exec: it came before it was started */
    int64_t timeout_ms;                          /* exec and task; 0: none */
    char repository[LIMIT_REPOSITORY_BYTES + 1]; /* clone: which, or "" */
    bool is_only_stopped;                        /* remove: not what is not stopped */
    struct settings_put *put;                    /* set: what; owned */
};

/* A program that init runs for an EXEC. */
struct run {
    struct run *next;
    struct sandbox *sandbox;
    struct reply reply;
    struct event *late; /* until init has answered */
    uint64_t number;    /* of INIT_EXEC, and the id of its request */
    bool is_started;    /* RUN_STARTED was sent */
    bool is_clone;
    bool has_stdin;
    bool is_terminal;
    bool is_ended_apart;
    int64_t timeout_ms;
};

/* Somebody who asked for the end of the task. */
struct waiter {
    struct waiter *next;
    struct sandbox *sandbox;
    struct reply reply;
    struct event *late;
};

/* What disk.c knows of a sandbox's files. */
struct disk_use {
    bool is_known; /* they were counted, or it is new and has none */
    bool is_uncountable;
    bool is_asked, is_answered; /* an operation waits for a count; it has ended */
    struct jail_weight weight;
    struct jail_weight over;         /* when it was stopped for them */
    struct jail_weight grown_before; /* what the disk had grown by when the count began */
    uint64_t turn;                   /* in which it began */
};

struct sandbox {
    struct sandbox *next;
    struct supervisor *supervisor;
    struct meta meta;
    int folder_fd; /* sandboxes/NAME */
    enum sandbox_state state;
    struct op *queue;
    bool is_new;               /* made by this daemon for an operation, never yet RUNNING */
    bool is_stopped_over_disk; /* STOPPING: for that, which `failure` tells */

    /* while not STOPPED */
    struct sandbox_instance instance;
    char workdir[LIMIT_IMAGE_PATH_BYTES + 1]; /* of its image; or "" */
    struct channel *init;
    struct event *ended;    /* init's pidfd */
    struct event *spending; /* when what was used of models is to be written */
    struct event *expiry;   /* while STOPPED: when it is to be removed */
    struct event *timer;    /* start, stop or inactivity: by the state */
    bool is_adopted;        /* STARTING: it is a former supervisor's, and was asked for its state */
    bool has_listeners;
    int listeners[SANDBOX_LISTENERS];
    uint16_t init_version;   /* of init's messages */
    bool asked_ports;        /* this init was told of other ports */
    struct msg_ports ports;  /* those that it listens on */
    int port_fds[MSG_PORTS]; /* for each */
    char failure[MSG_TEXT];  /* why the start failed */

    struct disk_use disk;
    struct sandbox_refused refused; /* as last looked at by hits_look */

    bool is_silent; /* init left a request unanswered for LIMIT_ANSWER_MS, and said nothing since */
    struct run *runs;
    uint32_t foreign_runs; /* execs of a former supervisor that still run */
    uint64_t next_number;  /* of requests to init */
    uint64_t task_number;  /* INIT_TASK that is not answered yet; 0: none */
    struct reply task_reply;
    struct event *task_late;            /* until init has answered */
    struct waiter *waiters;             /* TASK_CANCEL */
    int followers[LIMIT_TASK_WATCHERS]; /* writing ends of the pipes of TASK_LOG */
    size_t follower_count;
    struct jail *base_jail; /* saves the clone's commit, or NULL */
    int64_t activity_ms;    /* monotonic: last request, exec or sign of a task */
};

/* ports.c: ports beside 80 and 443. Asks init for listeners of those that the policies name. */
void ports_ask(struct sandbox *sandbox);
void ports_take(struct sandbox *sandbox, struct ipc_message *message); /* INIT_LISTENING */
void ports_close(struct sandbox *sandbox);
/* The policies name these: every sandbox gets them. */
void ports_learn(struct supervisor *supervisor, const struct msg_ports *ports);

/* documents.c: the state as the API tells it. */
const char *document_state_name(enum sandbox_state state);

struct sandbox *table_find(struct supervisor *supervisor, const char *name);
/* True when the control groups of this name are those of an instance that runs. */
bool table_has_group(const struct supervisor *supervisor, const char *group);
/* Puts a sandbox into the table; takes folder_fd. */
struct sandbox *table_add(struct supervisor *supervisor, const struct meta *meta, int folder_fd);
/* Makes the folder of a new sandbox with the agent and its image; its record is made by its first
 * start, or when it is set. */
int table_create(struct supervisor *supervisor, const char *name, const char *agent,
                 struct sandbox **ret, struct err *err);

/* Puts the operation at the end of the queue of `name` and begins what can begin. An exec makes
 * the sandbox when there is none. Takes op's descriptor. */
void table_submit(struct supervisor *supervisor, const char *name, const struct op *op);

/* Begins what can begin. The sandbox may be gone afterwards. */
void table_pump(struct sandbox *sandbox);
void table_pump_all(struct supervisor *supervisor);
/* The start failed: operations that need an instance are refused. */
void table_refuse_starts(struct sandbox *sandbox, const char *why);

/* Tells one that init does not answer. */
void table_tell_silent(const struct sandbox *sandbox, struct reply reply);

/* Writes meta.json; logs when that fails. */
int table_save(struct sandbox *sandbox);
/* The memory that an instance may have; 0: no limit. */
int64_t table_memory_bytes(const struct sandbox *sandbox);
static inline void table_touch(struct sandbox *sandbox)
{
    sandbox->activity_ms = clock_monotonic_ms();
}

/* instance.c */
/* -EINPROGRESS never: when it returns 0 the state is STARTING. */
int instance_start(struct sandbox *sandbox, struct err *err);
/* Takes over what meta.lease tells. -ESRCH: it is gone, and what it left was cleared away. */
int instance_adopt(struct sandbox *sandbox, struct err *err);
void instance_stop(struct sandbox *sandbox);
/* Stops it without grace: its files are over their limit, which `why` tells. */
void instance_stop_over_disk(struct sandbox *sandbox, const char *why);
/* Something runs in it, or waits for it. */
bool instance_is_busy(const struct sandbox *sandbox);
void instance_fail(struct sandbox *sandbox, const char *why); /* kills it; the end follows */
void instance_ready(struct sandbox *sandbox);                 /* STARTING to RUNNING */
/* Closes descriptors and events without ending the instance: at the daemon's own end. */
void instance_let_go(struct sandbox *sandbox);

/* hits.c: notes which limits were hit, in the metrics and the log. */
const char *hits_name(enum hit hit);
void hits_note(struct sandbox *sandbox, enum hit hit);
/* What the instance was refused since the last look; `hits_begin` is the first, which tells
 * nothing. True of a member: it was hit. */
struct hits {
    bool memory, pids;
};
void hits_begin(struct sandbox *sandbox);
struct hits hits_look(struct sandbox *sandbox);

/* disk.c: the limits of files, watched. */
void disk_start(struct supervisor *supervisor);
/* It is new, and has no files yet. */
void disk_begin(struct sandbox *sandbox);
/* For an operation that is not to be begun while meta.is_over_disk: true when that was found by a
 * count made for it, else it waits, and the queue is pumped when it is done. */
bool disk_ask(struct sandbox *sandbox);
/* Why it is over its limit: no full sentence. */
void disk_explain(const struct sandbox *sandbox, char *ret, size_t size);
/* Before it is freed. */
void disk_forget(const struct sandbox *sandbox);

/* spending.c */
void spending_add(struct supervisor *supervisor, const struct msg_usage *body);
void spending_end(struct sandbox *sandbox); /* what is not written yet is written now */
/* True when a budget is spent, and what to tell. */
bool spending_is_over(const struct meta *meta, char *ret, size_t size);

/* expiry.c: from now on, when it is STOPPED. */
void expiry_watch(struct sandbox *sandbox);
/* Its removal failed: it is tried again later. */
/* Notes that the sandbox stopped now, unless the clock cannot be right. */
void expiry_note_stop(struct sandbox *sandbox);
/* Notes the time in the record that is about to be written. */
void expiry_note_time(struct sandbox *sandbox);
void expiry_failed(struct sandbox *sandbox);

/* leftovers.c: removes the control groups of an instance that is gone, now or as soon as they are
 * empty. */
void leftovers_clear(struct supervisor *supervisor, const char *group);
/* The same after a kill of all that runs in them. */
void leftovers_kill(struct supervisor *supervisor, const char *group);

/* At the daemon's end: groups of instances that are gone; a timer may not have come to them. */
void leftovers_end(struct supervisor *supervisor);

/* init.c: messages of init. */
void init_open(struct sandbox *sandbox);

/* runs.c */
bool runs_are_full(const struct sandbox *sandbox);
void runs_exec(struct sandbox *sandbox, const struct op *op);
/* init's answers; false: it is not about a run. */
bool runs_started(struct sandbox *sandbox, struct ipc_message *message);
void runs_ended(struct sandbox *sandbox, const struct msg_init_ended *body);
/* Of an EXEC that is ended apart; one that has ended already is none. */
void runs_end(struct supervisor *supervisor, struct reply reply);
void runs_fail_all(struct sandbox *sandbox, const char *why);
/* After a take-over: the clone's git has ended, its commit was not saved yet. */
void runs_resume_clone(struct sandbox *sandbox);
void runs_diff(struct supervisor *supervisor, struct reply reply, const struct msg_diff *diff);

/* tasks.c */
/* Why no task may start now, or NULL. */
const char *tasks_refusal(const struct sandbox *sandbox);
void tasks_start(struct sandbox *sandbox, const struct op *op);
bool tasks_started(struct sandbox *sandbox, const struct ipc_message *message);
/* init says that it is so (after a start or a look). */
void tasks_learn(struct sandbox *sandbox, enum task_state state, const struct task_end *end);
void tasks_ended(struct sandbox *sandbox, const struct task_end *end);
/* The instance is gone: what was running has ended or is lost. */
void tasks_instance_gone(struct sandbox *sandbox);
void tasks_cancel(struct sandbox *sandbox, struct reply reply);
void tasks_get(struct supervisor *supervisor, struct reply reply, const char *name);
void tasks_log(struct sandbox *sandbox, struct reply reply, const struct msg_task_log *log);
void tasks_check_all(void *supervisor);
