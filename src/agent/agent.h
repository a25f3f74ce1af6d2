/*
 * An agent is data: images/<agent>/agent.json says which image it runs in, its command, its
 * environment, and which adapter judges its output.
 *
 *   { "image": "claude",
 *     "command": ["claude", "--print", ..., "--model", "${MODEL}", "--", "${PROMPT}"],
 *     "env": { "ANTHROPIC_BASE_URL": "https://.../${AI_GATEWAY_ACCOUNT_ID}/..." },
 *     "rules": ["ai-gateway"],          // policy rules without which it cannot work
 *     "outcome": "claude-stream-json" }
 *
 * ${NAME} comes from the configuration's vars; ${PROMPT} is a whole argument and appears once.
 * agent.json is read by the supervisor: only root (or the invoking user) can write it.
 */
#pragma once

#include <stddef.h>

#include "task/record.h"
#include "util/buf.h"
#include "util/err.h"

struct agent;

/* Reads agent.json; `file` names it in errors ("FILE:LINE:COLUMN: reason"). Unknown keys, unknown
 * adapters and a missing ${PROMPT} are errors. Pure: no I/O. */
int agent_parse(const char *file, const char *data, size_t len, struct agent **ret,
                struct err *err);
void agent_free(struct agent *agent);
const char *agent_image(const struct agent *agent);
const char *agent_adapter(const struct agent *agent);

/* Encodes the task's spec (task/spec.h) with variables put in and cwd /workspace/repo. `lookup`
 * returns the value of a variable or NULL. -ENOENT: a variable is not set; the message says which
 * and that it is set in the configuration's "vars". */
int agent_encode_spec(const struct agent *agent, const char *(*lookup)(void *ctx, const char *name),
                      void *ctx, struct buf *ret, struct err *err);

/* A task that ended. The descriptors stay the caller's; -1: there is no such file. */
struct agent_ended {
    const char *adapter;    /* name of the outcome adapter */
    const char *agent_name; /* for messages */
    const char *hint;       /* "", or what to set: no model could be reached without it */
    const struct task_end *end;
    int stdout_fd;
    int stderr_fd;
};

/* Judges a task that ended: reads the logs from their start to their end, with bounded memory, and
 * appends outcome.json's text: {"state":"succeeded","result":"..."} or {"state":"failed","error":
 * "..."} with the fields of struct task_end beside ("exitCode", "oomKills", ...). The hint is added
 * to an error of the agent's own. Blocks on the files only. Used by api. -ENOENT: no such adapter.
 */
int agent_outcome(const struct agent_ended *task, struct buf *ret, struct err *err);
