/* How a program is ended, with all that it started: by its control group, or by the pid namespace
 * that it has where no group can be made (nest.c). cgroups(7), pid_namespaces(7). */
#include <signal.h>
#include <unistd.h>

#include "init/init.h"
#include "util/cleanup.h"

int ending_spawn(struct spawn_request *request, struct ending *ret, struct spawned *ret_program,
                 struct err *err)
{
    request->is_nested = nest_is_on() && request->procs_fd < 0;
    if (request->is_nested) {
        ret->keeper_fd = nest_make(err);
        if (ret->keeper_fd < 0)
            return ret->keeper_fd;
    }
    int result = spawn_program(request, ret_program, err);
    if (request->is_nested)
        nest_leave();
    if (result == 0)
        ret->pid = ret_program->pid;
    else
        ending_abort(ret);
    return result;
}

void ending_abort(struct ending *ending)
{
    if (ending->pid)
        kill(-ending->pid, SIGKILL); /* reaped as an orphan */
    if (ending->keeper_fd >= 0)
        nest_kill(ending->keeper_fd);
    ending_close(ending);
}

void ending_close(struct ending *ending)
{
    cleanup_fd_at(&ending->kill_fd);
    cleanup_fd_at(&ending->keeper_fd);
    *ending = (struct ending)ENDING_NONE;
}

static void kill_all(const struct ending *ending)
{
    if (ending->kill_fd >= 0 && pwrite(ending->kill_fd, "1", 1, 0) == 1)
        return;
    if (ending->keeper_fd >= 0)
        nest_kill(ending->keeper_fd);
    else if (ending->pid) /* of a supervisor that had other groups than this one */
        kill(-ending->pid, SIGKILL);
}

void ending_begin(struct ending *ending, enum task_end_kind why, int64_t grace_ms)
{
    int64_t at = clock_monotonic_ms() + (grace_ms > 0 ? grace_ms : 0);
    if (ending->why == TASK_END_NONE) {
        ending->why = why;
        kill(-ending->pid, SIGTERM);
    }
    if (at < ending->kill_at_ms)
        ending->kill_at_ms = at;
}

int64_t ending_due_ms(const struct ending *ending)
{
    return ending->kill_at_ms < ending->deadline_at_ms ? ending->kill_at_ms
                                                       : ending->deadline_at_ms;
}

void ending_on_timer(struct ending *ending, int64_t now_ms)
{
    if (ending->deadline_at_ms <= now_ms) {
        ending->deadline_at_ms = INT64_MAX;
        ending_begin(ending, TASK_END_DEADLINE, ending->grace_ms);
    }
    if (ending->kill_at_ms <= now_ms) {
        ending->kill_at_ms = INT64_MAX;
        kill_all(ending);
    }
}

void ending_over(struct ending *ending)
{
    ending->deadline_at_ms = ending->kill_at_ms = INT64_MAX;
    if (ending->why != TASK_END_NONE)
        kill_all(ending);
    else if (ending->keeper_fd >= 0)
        nest_over(ending->keeper_fd);
}
