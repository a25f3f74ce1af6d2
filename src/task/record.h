/*
 * The record of a task: its states, how it ended, and the files in the sandbox's task folder. init
 * writes the files, through a mount that only it has; the agent sees them read-only. The supervisor
 * keeps the state in meta.json and never reads what is in the folder; api judges the outcome.
 *
 *   pid          "PID BOOT_ID\n": the agent's process id inside, and the instance it ran in
 *   exit-code    "N\n"; 128 + signal when a signal ended it (as a shell tells it)
 *   end.json     struct task_end, by task_end_write
 *   stdout.log, stderr.log   what the agent printed, up to limits.log_mib each, then a line that
 *                says it was cut
 *   outcome.json written by api: {"state","result"|"error",...}: the answer of GET .../task
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "util/err.h"

enum task_state {
    TASK_NONE,    /* no task was ever started */
    TASK_RUNNING, /* init says that it runs */
    TASK_ENDED,   /* exit-code is on disk; succeeded or failed is the adapter's judgement */
    TASK_LOST,    /* neither: its instance died before an exit code was recorded */
};

enum task_end_kind {
    TASK_END_NONE,
    TASK_END_EXITED,    /* code: the exit code */
    TASK_END_SIGNALED,  /* code: the signal */
    TASK_END_CANCELLED, /* by DELETE .../task; code: signal, or exit code when it exited on SIGTERM
                         */
    TASK_END_DEADLINE,  /* its deadline passed */
    TASK_END_OOM,       /* its main process was killed for memory */
    TASK_END_FAILED,    /* it could not be started; code: errno */
    TASK_END_DISK,      /* its sandbox was over its limit of files */
};

/* What it ran into that the other members do not tell. */
enum task_hit {
    TASK_HIT_STDOUT = 1 << 0, /* stdout.log was cut */
    TASK_HIT_STDERR = 1 << 1, /* stderr.log */
    TASK_HIT_PIDS = 1 << 2,   /* no more processes were to be had */
    TASK_HIT_DISK = 1 << 3,   /* no more files or bytes were to be had */
};
#define TASK_HIT_LOG (TASK_HIT_STDOUT | TASK_HIT_STDERR)

struct task_end {
    int32_t kind; /* enum task_end_kind */
    int32_t code;
    uint32_t oom_kills;   /* processes killed for memory while it ran */
    uint32_t hits;        /* enum task_hit; "logCut" in the file, where the first two were alone */
    int64_t started_ms;   /* Unix time */
    int64_t ended_ms;     /* Unix time */
    int64_t memory_limit; /* bytes; 0: none known */
};

#define TASK_END_JSON_MAX 512

/* The JSON of an end, NUL-terminated; returns its length. Written without any library (init). */
size_t task_end_write(const struct task_end *end, char ret[TASK_END_JSON_MAX]);

/* Reads what task_end_write wrote; anything else is -EINVAL. Pure: no I/O. */
int task_end_read(const char *data, size_t len, struct task_end *ret, struct err *err);

const char *task_end_kind_name(enum task_end_kind kind); /* "exited", "signaled", ... */
