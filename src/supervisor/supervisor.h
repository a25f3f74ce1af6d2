/*
 * The supervisor: what its parts share. One process, one thread, one loop; every call returns at
 * once, what takes time is a process of its own whose end comes as an event. Parts:
 *
 *   config, meta, secrets, paths    what is read from files
 *   event, channel, spawn           what is waited for, talked to, started
 *   api, egress, audit              the two children, and the latter's files
 *   dispatch, documents             the api's requests, and the JSON of its questions
 *   table, instance, init           sandboxes: queue of operations, lifecycle, messages of init
 *   settings                        what clients set of a sandbox
 *   hits, disk                      limits that sandboxes ran into; that of files, which is watched
 *   runs, tasks, images, jails      what runs in them and beside them
 *   recover, leftovers, trash       what is found at start, what is left over
 *   expiry, usage                   the end of stopped sandboxes; what all take on the disk
 */
#pragma once

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "ipc/ipc.h"
#include "sandbox/host.h"
#include "sandbox/row.h"
#include "supervisor/channel.h"
#include "supervisor/children.h"
#include "supervisor/config.h"
#include "supervisor/event.h"
#include "supervisor/paths.h"
#include "supervisor/secrets.h"
#include "util/buf.h"
#include "util/clock.h"

struct agent;
struct sandbox;
struct jail;
struct image_build;
struct json_writer;

struct listen_socket {
    int fd;
    struct msg_api_listen body;
};

/* What egress said of the policy that it was given last. */
struct policy_report {
    bool is_loaded; /* some policy is in force */
    uint32_t inactive;
    char text[2 * MSG_TEXT];
};

/* Limits of a sandbox that are told when they are hit. */
enum hit { HIT_MEMORY, HIT_PIDS, HIT_DISK, HIT_LOG, HIT_DEADLINE, HIT_KINDS };

/* Since the supervisor's start, for /metrics. */
struct counters {
    int64_t started_ms; /* Unix time */
    uint64_t ready, not_started;
    uint64_t tasks_ended, tasks_lost;
    uint64_t hits[HIT_KINDS]; /* ends of tasks and programs in whose time it was hit */
};

struct supervisor {
    uv_loop_t loop;
    struct counters counters;
    const struct config *config;
    const struct paths *paths;
    struct secrets *secrets;
    struct row row; /* of the table in docs/rootless.md */
    struct sandbox_host *host;

    int state_fd, sandboxes_fd, trash_fd, recipes_fd; /* recipes_fd: -1 when it is not there */
    int common_fd;                                    /* STATE/common; -1: not yet */
    int lock_fd;
    int jail_fd, image_build_fd; /* the programs; -1 when they are not installed */

    struct child api;
    struct child egress;
    uint64_t api_generation; /* counts the api's starts: answers go to the one that asked */
    struct listen_socket listeners[LIMIT_LISTEN_SOCKETS];
    size_t listener_count;
    struct msg_api_token tokens[LIMIT_TOKENS]; /* of the API: hashes alone */
    size_t token_count;
    struct policy_report policy;
    struct msg_policy_state named[LIMIT_POLICY_FILES]; /* of the policy's folder */
    size_t named_count;
    struct msg_ports ports; /* that the policies name beside 80 and 443 */
    bool has_ports;         /* egress has told them */
    struct buf ca_pem;      /* our CA's certificate, for sandboxes */
    struct buf ca_java;     /* the same as a trust store of Java */

    struct sandbox *sandboxes; /* the table */
    size_t instance_count;     /* sandboxes that are not stopped */
    struct jail *jails;        /* those that run */
    size_t diff_count;         /* of them */
    bool is_measuring;         /* one of them measures the disk */
    struct image_build *builds;
    struct jail *trash_jail;   /* the one that empties the trash, or NULL */
    struct event *trash_timer; /* until it is started, or NULL */

    uv_signal_t signals[3];
    struct event *task_timer, *disk_timer;
};

/* Opens STATE, host and children, takes over what runs, serves until SIGTERM or SIGINT. Instances
 * go on after it returns. */
int supervisor_run(const struct config *config, const struct paths *paths, struct secrets *secrets,
                   struct err *err);

/* Whom an answer goes to. Id 0: nobody. */
struct reply {
    uint64_t id;
    uint64_t generation;
};
/* First in the format of a line of the log that is about a request: its reply's id comes with it.
 */
#define REQUEST_FIELD "request=%" PRIu64 " "
void reply_status(struct supervisor *supervisor, struct reply reply, enum ipc_status status,
                  const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Why something was not done, `result` being its errno. What passes, or what the user can cure (a
 * disk that is full by now, whatever failed of it), is told with its reason; else it is a 500. */
void reply_failure(struct supervisor *supervisor, struct reply reply, int result, const char *why);
void reply_send(struct supervisor *supervisor, struct reply reply, enum ipc_type type,
                const void *body, const int *fds, size_t fd_count);

/* state.c: STATE and its lock; the listening sockets. Errors name the file and the cure. */
int state_open(struct supervisor *supervisor, struct err *err);
int state_listen(struct supervisor *supervisor, struct err *err);
/* A short token of the STATE folder that stays the same: names its cgroups. */
void state_name(const struct supervisor *supervisor, char ret[9]);
/* -ENOSPC when nothing more can be written below STATE. */
int state_check_room(const struct supervisor *supervisor, struct err *err);
/* floor.c: -EAGAIN, with the reason, while the machine has less left than the configuration's
 * "floor". proc_meminfo(5), statvfs(3). */
int floor_check(const struct supervisor *supervisor, struct err *err);
/* Moves dir_fd/name into trash under a fresh name "KIND-...". */
int state_to_trash(struct supervisor *supervisor, int dir_fd, const char *name, const char *kind,
                   struct err *err);

/* The CA's certificate, which stays the supervisor's. */
struct sandbox_trust supervisor_trust(const struct supervisor *supervisor);

/* Makes STATE/common what it must be with this CA, and opens it. */
int state_make_common(struct supervisor *supervisor, struct err *err);

/* recipes_dir/NAME/agent.json; the caller frees with agent_free. */
int supervisor_read_agent(struct supervisor *supervisor, const char *name, struct agent **ret,
                          struct err *err);

/* agents.c: the names of the agents that there are recipes of, sorted; the first 64. */
struct agents {
    char names[64][LIMIT_NAME_BYTES + 1];
    size_t count;
};
void agents_list(const struct supervisor *supervisor, struct agents *ret);
/* An array of them, each with its image, or with what is wrong with its recipe. */
void agents_write(struct json_writer *writer, struct supervisor *supervisor);

/* audit.c: a descriptor that appends to STATE/audit.jsonl, or a negative errno. */
/* The name in STATE of the present file (0), or of a former one: "audit.jsonl.3". Returns `ret`. */
const char *audit_name(int64_t index, char ret[32]);
int audit_open(const struct supervisor *supervisor, struct err *err);
/* Gives it to egress, with the size at which it is full. */
void audit_tell(struct supervisor *supervisor, int fd);
/* egress says that it is full: a new one is begun. */
void audit_turn(struct supervisor *supervisor);

/* audit_watch.c: EGRESS_LOG_OPENED, or why not. */
void audit_read(struct supervisor *supervisor, struct reply reply, const struct sandbox *sandbox,
                bool follow);
/* To a new egress, those who follow. */
void audit_tell_followers(const struct supervisor *supervisor);
/* The sandbox is removed. */
void audit_end_followers(const struct supervisor *supervisor, const char *name);

/* api.c */
void api_start(struct supervisor *supervisor);
/* egress.c */
void egress_start(struct supervisor *supervisor);
void egress_load_policy(struct supervisor *supervisor);
/* Reads the policy's folder and the secrets anew; answers when egress has taken or refused them. */
void egress_reload(struct supervisor *supervisor, struct reply reply);
/* The sandbox is under its policy from its next request on. */
void egress_set_policy(struct supervisor *supervisor, const struct sandbox *sandbox);
/* Which task's the requests are that begin from now on, and the budget; nothing while it is not
 * attached. */
void egress_tell_task(struct supervisor *supervisor, const struct sandbox *sandbox);
/* Hands the listeners over; nothing when egress has no answer yet about its first policy, with
 * which it gets those of all. */
void egress_attach(struct supervisor *supervisor, const struct sandbox *sandbox);
/* Its listeners of other ports are these now. */
void egress_set_ports(struct supervisor *supervisor, const struct sandbox *sandbox);
void egress_detach(struct supervisor *supervisor, const struct sandbox *sandbox);
/* The first start of this daemon, and ca.crt is being made. */
bool egress_ca_is_coming(const struct supervisor *supervisor);
/* The sentence that tells what to set, or "": for the policy of this name, "" being the main one.
 */
const char *egress_hint(const struct supervisor *supervisor, const char *policy);

/* dispatch.c: one message of the api. False: it broke the protocol. */
bool dispatch_api(struct supervisor *supervisor, struct ipc_message *message);

/* documents.c: sealed memfds with the JSON of an answer, or a negative errno. */
int document_health(struct supervisor *supervisor, struct err *err);
int document_sandboxes(struct supervisor *supervisor, const struct msg_sandbox_list *only,
                       struct err *err);
int document_sandbox(const struct sandbox *sandbox, struct err *err);
int document_agents(struct supervisor *supervisor, struct err *err);
int document_policies(struct supervisor *supervisor, struct err *err);
int document_tokens(struct supervisor *supervisor, struct err *err);
/* `prefix`: of the sandboxes that may be told. */
int document_images(struct supervisor *supervisor, const char *prefix, struct err *err);
/* metrics.c: the same with the text of /metrics. */
void metrics_add(const struct rule_counts *more); /* what egress counted */
int document_metrics(struct supervisor *supervisor, struct err *err);

/* tokens.c: STATE/tokens.json. Changes are on disk, and told to api, before they are answered. */
int tokens_read(struct supervisor *supervisor, struct err *err);
void tokens_tell(struct supervisor *supervisor, struct channel *channel);
void tokens_add(struct supervisor *supervisor, struct reply reply,
                const struct msg_api_token *token);
void tokens_remove(struct supervisor *supervisor, struct reply reply, const char *id);
/* A token that could be one of ours: its texts have their forms. */
bool token_is_valid(const struct msg_api_token *token);
/* An array of the tokens; the hash only for the file. */
void tokens_write(struct json_writer *writer, const struct supervisor *supervisor, bool with_hash);

/* recover.c: before anything else is started. -EPROTONOSUPPORT: a newer meta.json. */
int recover_state(struct supervisor *supervisor, struct err *err);

/* trash.c: empties STATE/trash soon, unless that is under way. */
void trash_empty(struct supervisor *supervisor);
/* At start: what could not be removed is tried again. */
void trash_reopen(struct supervisor *supervisor);

/* usage.c: RUN_STARTED, RUN_ENDED with what a jail found. */
void usage_measure(struct supervisor *supervisor, struct reply reply);

/* images.c */
void images_build(struct supervisor *supervisor, struct reply reply, const char *name,
                  bool is_rebuild);
void images_import(struct supervisor *supervisor, struct reply reply, const char *name);
/* The client sent the archive of this import to its end. */
void images_import_whole(struct supervisor *supervisor, struct reply reply);
void images_remove(struct supervisor *supervisor, struct reply reply, const char *name);
