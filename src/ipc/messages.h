/*
 * The bodies of the messages in messages.def: plain structs of fixed size. Text is NUL-terminated
 * inside its array; a receiver reads it only through ipc_text(), which checks that.
 * Both ends are built from the same tree on the same machine: host byte order, natural alignment.
 */
#pragma once

#include <stdint.h>

#include "task/counts.h"
#include "task/record.h"
#include "task/usage.h"
#include "util/limits.h"

enum ipc_peer { IPC_ANY, IPC_SUPERVISOR, IPC_API, IPC_EGRESS, IPC_INIT };

enum ipc_type {
    IPC_NONE,
#define IPC_MESSAGE(name, body, from, to, descriptors, replies) IPC_##name,
#include "ipc/messages.def"
#undef IPC_MESSAGE
    IPC_TYPE_COUNT
};

/* How a request went; the api turns it into an HTTP status. */
enum ipc_status {
    IPC_STATUS_OK,
    IPC_STATUS_BAD_REQUEST, /* 400 */
    IPC_STATUS_NOT_FOUND,   /* 404 */
    IPC_STATUS_CONFLICT,    /* 409: the text is the body */
    IPC_STATUS_UNAVAILABLE, /* 503: try again later; the text is the body */
    IPC_STATUS_BAD_GATEWAY, /* 502: the thing itself failed (no repository); the text is its stderr
                             */
    IPC_STATUS_FAILED,      /* 500: the text goes to the log */
    IPC_STATUS_EXISTS,      /* 412: it was to be made, and is there */
};

#define MSG_NAME (LIMIT_NAME_BYTES + 1)
#define MSG_TEXT 1024
#define MSG_BOOT_ID 40 /* a UUID and its NUL, rounded up */

struct msg_empty {
    uint32_t unused; /* no struct may be empty */
};
struct msg_status {
    int32_t
        code; /* enum ipc_status; for INIT_FAILED and replies of init a positive errno, 0 = ok */
    char text[MSG_TEXT];
};
struct msg_api_listen {
    uint32_t is_tcp; /* TCP: a token is required */
    char address[256];
};
#define MSG_TOKEN_ID 17   /* 16 hex digits */
#define MSG_TOKEN_HASH 65 /* hex SHA-256 of the whole token */
struct msg_api_token {
    char id[MSG_TOKEN_ID];
    char hash[MSG_TOKEN_HASH];
    char prefix[MSG_NAME]; /* of the sandboxes it is for; "": all */
    uint32_t read_only;
    uint32_t removed;   /* the api forgets it */
    int64_t created_ms; /* Unix time */
    int64_t expires_ms; /* Unix time; 0: never */
};
struct msg_token_id {
    char id[MSG_TOKEN_ID];
};
struct msg_sandbox_name {
    char name[MSG_NAME];
};
/* Which sandboxes are listed. */
struct msg_sandbox_list {
    char prefix[MSG_NAME]; /* of their names */
    uint32_t state;        /* 0: any, else 1 + enum sandbox_state of the supervisor's table */
    uint32_t label_count;
    char labels[2560]; /* NAME=VALUE or NAME, each with its NUL: all of them */
};
/* Of a patch: what it names, and so sets to the value that the message has, or takes away. */
enum sandbox_patch {
    PATCH_POLICY = 1 << 0,
    PATCH_MEMORY = 1 << 1,
    PATCH_CPUS = 1 << 2,
    PATCH_PIDS = 1 << 3,
    PATCH_NO_ENV = 1 << 4, /* first of all, the whole of it */
    PATCH_NO_LABELS = 1 << 5,
    PATCH_OUTPUT_TOKENS = 1 << 6,
    PATCH_REQUESTS = 1 << 7,
    PATCH_SIZE = 1 << 8,
    PATCH_DISK = 1 << 9,
    PATCH_INODES = 1 << 10,
    PATCH_ALL = (1 << 11) - 1,
};
struct msg_sandbox_put {
    char name[MSG_NAME];
    char agent[MSG_NAME];  /* "": the one it has, or the default one */
    char policy[MSG_NAME]; /* "": the daemon's, as with a 0 below */
    char size[MSG_NAME];   /* "": none */
    uint32_t is_only_new;  /* a sandbox that is there is left as it is */
    uint32_t is_patch;     /* changes what is there, of a sandbox that is there */
    uint32_t named;        /* enum sandbox_patch; 0 without is_patch */
    /* of the descriptor's, in this order (task/settings.h); the last two are names of a patch that
     * are taken away, each as "NAME=" */
    uint32_t env_bytes;
    uint32_t label_bytes;
    uint32_t env_gone_bytes;
    uint32_t label_gone_bytes;
    int64_t memory_mib;
    int64_t cpu_millis;
    int64_t pids;
    int64_t disk_mib, inodes;
    int64_t budget_output_tokens, budget_requests;
};
struct msg_image_name {
    char name[MSG_NAME];
    uint32_t rebuild; /* even when nothing changed */
};
struct msg_document {
    uint32_t is_new; /* what it describes was made by this request */
};

enum { EXEC_AS_AGENT = 0, EXEC_AS_ROOT = 1 };
struct msg_exec {
    char name[MSG_NAME];
    uint32_t user;      /* EXEC_AS_* */
    uint32_t is_clone;  /* on exit 0 the supervisor keeps the pack and marks the sandbox cloned */
    uint32_t no_cwd;    /* the client named no folder: the image's own will do */
    uint32_t has_stdin; /* RUN_STARTED brings the write end of its input, else /dev/null */
    uint32_t is_ended_apart; /* EXEC_END may come for it; so it is with a timeout */
    int64_t timeout_ms;      /* 0: none */
    char repository[LIMIT_REPOSITORY_BYTES + 1]; /* OWNER/REPOSITORY that is cloned, else "" */
    uint32_t is_terminal; /* RUN_STARTED brings the master of its terminal alone */
    uint32_t rows, cols;  /* of it; 0: not known */
};
struct msg_run_started {
    uint32_t unused;
};
struct msg_run_ended {
    struct task_end end;
    char text[MSG_TEXT]; /* why it failed, where the program itself could not say */
};

struct msg_task_start {
    char name[MSG_NAME];
    int64_t deadline_ms; /* from its start on; 0: the daemon's */
};
struct msg_task_state {
    char name[MSG_NAME];
    int32_t state; /* enum task_state; TASK_ENDED is judged by api from the files */
    char agent[MSG_NAME];
    char adapter[MSG_NAME];   /* outcome adapter of the agent */
    struct model_usage usage; /* of the last task */
    char hint[MSG_TEXT]; /* what to set when the policy's rules for the model are inactive, or "" */
};
enum { TASK_LOG_STDOUT = 0, TASK_LOG_STDERR = 1 };
struct msg_task_log {
    char name[MSG_NAME];
    uint32_t stream; /* TASK_LOG_* */
    uint32_t follow;
};
struct msg_task_log_opened {
    uint32_t running; /* with follow and running, the second descriptor is there */
};

enum { DIFF_SINCE_CLONE, DIFF_INDEX, DIFF_HEAD, DIFF_REVISION };
struct msg_diff {
    char name[MSG_NAME];
    uint32_t against; /* DIFF_* */
    uint32_t renames;
    uint32_t binary;    /* as git-apply(1) needs it */
    char revision[256]; /* of DIFF_REVISION */
};

struct msg_egress_start {
    char upstream_proxy[512];
    int64_t idle_ms; /* a connection or stream without a byte for so long is ended as an error */
};
struct msg_policy_file {
    char name[256]; /* base name, *.json or *.pem */
};
struct msg_policy_load {
    char name[256]; /* the file that is the policy; the files sent since the last load are its
                       folder */
};
struct msg_policy_loaded {
    int32_t ok;        /* 0: refused, the policy in force stays; text says file:line:column: why */
    uint32_t inactive; /* rules that name an unset variable or secret */
    char text[2 * MSG_TEXT]; /* when ok and inactive: what to set, a sentence per rule */
};
struct msg_policy_state {
    char name[MSG_NAME]; /* of its file, without ".json" */
    uint32_t is_in_force;
    uint32_t is_refused; /* the file is: a former version may be in force */
    uint32_t rules, inactive;
    char text[MSG_TEXT / 2]; /* why it is refused, or which rules are inactive */
};
struct msg_secret_get {
    char name[128]; /* ^[A-Za-z0-9_.-]+$, no leading dot */
};
#define MSG_PORTS 8 /* no more than descriptors in a message */
struct msg_ports {
    uint32_t count;
    uint16_t ports[MSG_PORTS];
};
struct msg_sandbox_ports {
    char name[MSG_NAME];
    struct msg_ports ports;
};
struct msg_sandbox_attach {
    char name[MSG_NAME];
    char boot_id[MSG_BOOT_ID];
    char policy[MSG_NAME]; /* of the folder, without ".json"; "": the one of POLICY_LOAD */
    char repository[LIMIT_REPOSITORY_BYTES + 1]; /* OWNER/REPOSITORY of its clone, or "" */
};

struct msg_egress_log {
    char name[MSG_NAME];
    uint32_t follow;
};
struct msg_egress_log_opened {
    int64_t created_ms; /* of the sandbox: what is older is of another one of this name */
};
struct msg_audit_file {
    int64_t max_bytes; /* at this size AUDIT_FULL is due */
};
struct msg_sandbox_task {
    char name[MSG_NAME];
    int64_t task; /* its number in the sandbox, from 1 on; 0: none runs */
    int64_t budget_output_tokens, budget_requests; /* of models; 0: no limit */
    /* After an attach, what was used before; else egress has counted on by itself. */
    uint32_t is_attached;
    int64_t output_tokens, requests;
};
struct msg_rule_count {
    struct rule_counts counts;
};
struct msg_usage {
    char name[MSG_NAME];
    int64_t task; /* that ran when the requests began; 0: none */
    struct model_usage usage;
};

struct msg_init_state {
    char boot_id[MSG_BOOT_ID];
    int32_t task;        /* enum task_state: NONE, RUNNING or ENDED */
    struct task_end end; /* of the last task, when ENDED */
    int32_t task_pid;    /* inside; 0 when none runs */
    uint32_t execs;      /* programs of INIT_EXEC whose INIT_EXEC_ENDED is still to come */
};
struct msg_init_task {
    int64_t deadline_ms;  /* 0: none */
    int64_t memory_limit; /* bytes; 0: none. For the record of an end for want of memory */
    int64_t log_bytes;    /* most of each log; 0: of LIMIT_TASK_LOG_BYTES */
    uint64_t open_files;  /* most of a process; 0: as init */
};
struct msg_init_exec {
    uint64_t exec; /* number chosen by the supervisor; comes back in INIT_EXEC_ENDED */
    uint32_t user; /* EXEC_AS_* */
    char cwd[LIMIT_IMAGE_PATH_BYTES + 1]; /* used when it can be entered, else the spec's; or "" */
    uint32_t has_stdin;                   /* INIT_STARTED brings the write end of its input */
    uint32_t is_ended_apart; /* with all that it started: its group, or a namespace of its own */
    int64_t timeout_ms;      /* 0: none */
    uint64_t open_files;     /* as of a task */
    uint32_t is_terminal;    /* INIT_STARTED brings the master of its terminal alone */
    uint32_t rows, cols;     /* of it; 0: not known */
};
struct msg_init_exec_end {
    uint64_t exec;
    int64_t grace_ms;
};
struct msg_init_started {
    int32_t code; /* 0, or a positive errno with the reason in text */
    int32_t pid;  /* inside */
    char text[MSG_TEXT];
};
struct msg_init_ended {
    uint64_t exec; /* of INIT_EXEC_ENDED */
    struct task_end end;
};
struct msg_init_grace {
    int64_t grace_ms;
    uint64_t is_over_disk; /* INIT_TASK_CANCEL: TASK_END_DISK is why */
};
