/*
 * Every limit, with its unit and the reason for it. What is shared by two folders is here; a limit
 * of one folder alone may also stand here. docs/ take their figures from this file.
 */
#pragma once

/* Names: an RFC 1123 label, so that a name can be a hostname. */
#define LIMIT_NAME_BYTES 63

/* A prompt becomes one argument of the agent; Linux refuses an argument of 128 KiB or more, its
 * NUL included (MAX_ARG_STRLEN, execve(2)). */
#define LIMIT_PROMPT_BYTES (128 * 1024 - 1)

/* Messages between our processes: one page, so that a peer cannot make us allocate. */
#define LIMIT_IPC_MESSAGE_BYTES 4096
#define LIMIT_IPC_DESCRIPTORS 8

/* argv, environment and cwd of a program, encoded (task/spec.h). */
#define LIMIT_SPEC_BYTES (256 * 1024)
#define LIMIT_SPEC_STRINGS 1024

/* Configuration, policies, agent.json, meta.json: written by people or by us. */
#define LIMIT_CONFIG_BYTES (1024 * 1024)
#define LIMIT_JSON_DEPTH 32

/* Recipes of images (build.json): entries of a list, and the length of a package's name or a path. */
#define LIMIT_RECIPE_ITEMS 256
#define LIMIT_RECIPE_STRING_BYTES 256

/* API bodies that are JSON; a prompt has its own. */
#define LIMIT_API_JSON_BYTES (512 * 1024)
/* Request line and headers of an API request. */
#define LIMIT_API_HEAD_BYTES (32 * 1024)
/* Headers of one request, of API clients and of agents: none sends more than some dozens. */
#define LIMIT_HTTP_FIELDS 128
/* Connections of API clients at once. */
#define LIMIT_API_CONNECTIONS 1024

/* stdout and stderr of an exec that the API keeps: the last part of each. */
#define LIMIT_EXEC_OUTPUT_BYTES (1024 * 1024)

/* Logs of a task, each; what follows is dropped and marked. */
#define LIMIT_TASK_LOG_BYTES (256LL * 1024 * 1024)
/* outcome.json; the result or the error inside is cut to fit. */
#define LIMIT_OUTCOME_BYTES (1024 * 1024)
/* One event line of an agent that an adapter keeps whole; a longer one is skipped over. */
#define LIMIT_AGENT_LINE_BYTES (8 * 1024 * 1024)
/* The end of stderr that goes into an error text. */
#define LIMIT_STDERR_TAIL_BYTES 2000

/* Followers of one task's log at once. */
#define LIMIT_TASK_WATCHERS 16
/* Programs run by exec in one instance at once. */
#define LIMIT_EXECS 256

/* Grace between SIGTERM and SIGKILL. */
#define LIMIT_STOP_GRACE_MS 10000

/* The audit: one line; path and reason are cut so that it fits whatever a sandbox sends. */
#define LIMIT_AUDIT_LINE_BYTES (16 * 1024)
#define LIMIT_AUDIT_TEXT_BYTES 2048

/* PEM of the CA: a key and two certificates are some 2 KiB. */
#define LIMIT_CA_PEM_BYTES (64 * 1024)
/* Leaf certificates kept, by host: some 2 KiB each. */
#define LIMIT_CA_LEAVES 1024
