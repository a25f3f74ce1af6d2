/* The adapter `exit-code`: the exit code decides, what was printed is the result; see adapter.h. */
#include "agent/adapter.h"
#include "util/limits.h"

/* Enough of the output for a person; the whole is in the task's log. */
#define EXIT_RESULT_CHARACTERS 65536

static int exit_code_judge(const struct agent_ended *task, struct agent_verdict *ret,
                           struct err *err)
{
    if (task->end->code != 0)
        return agent_judge_by_stderr(task, ret, err);
    ret->is_success = true;
    return agent_append_tail(task->stdout_fd, EXIT_RESULT_CHARACTERS, &ret->text, err);
}

const struct agent_adapter agent_adapter_exit_code = {"exit-code", exit_code_judge};
