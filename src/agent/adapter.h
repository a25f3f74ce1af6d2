/*
 * Outcome adapters: how the output of one kind of agent is judged. Inside src/agent only. An
 * adapter sees tasks whose main process exited by itself; every other end is told without it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "agent/agent.h"
#include "task/record.h"
#include "util/buf.h"
#include "util/err.h"

/* What the adapter found. The text may hold any bytes; it is made UTF-8 and cut afterwards. */
struct agent_verdict {
    bool is_success;
    bool is_cut; /* the text is not all that the agent said */
    struct buf text;
};

struct agent_adapter {
    const char *name;
    /* 0, or a negative errno when the files cannot be read. Blocks on the files only. */
    int (*judge)(const struct agent_ended *task, struct agent_verdict *ret, struct err *err);
};

extern const struct agent_adapter agent_adapter_claude;
extern const struct agent_adapter agent_adapter_exit_code;

const struct agent_adapter *agent_adapter_find(const char *name); /* NULL: unknown */
/* "a, b, c" for messages. */
void agent_adapter_names(char *ret, size_t size);

/* Appends the last `max` characters of the file, invalid UTF-8 replaced. */
int agent_append_tail(int fd, size_t max, struct buf *ret, struct err *err);

/* The failure of an agent that told nothing itself: "<agent> exited with N: <end of stderr>". */
int agent_judge_by_stderr(const struct agent_ended *task, struct agent_verdict *ret,
                          struct err *err);
