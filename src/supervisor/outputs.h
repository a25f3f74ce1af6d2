/* The two pipes of a job's output, and how its end is told. Defined in runs.c. */
#pragma once

#include "supervisor/supervisor.h"

/* stdout and stderr; -1 where not made. */
struct outputs {
    int read_fds[2];
    int write_fds[2];
};
int outputs_open(struct outputs *ret, struct err *err);
void outputs_close(const struct outputs *outputs);
#define cleanup_outputs __attribute__((cleanup(outputs_close)))

/* RUN_ENDED. */
void runs_tell_end(struct supervisor *supervisor, struct reply reply, const struct task_end *end,
                   const char *text);
