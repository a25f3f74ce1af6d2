/* What the sandboxes, images and the trash take on the disk: measured by a job in a jail, whose
 * output goes to api as it is. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "supervisor/jails.h"
#include "supervisor/outputs.h"
#include "supervisor/table.h"
#include "util/cleanup.h"
#include "util/log.h"

struct usage_run {
    struct supervisor *supervisor;
    struct reply reply;
};

static void usage_on_done(void *ctx, const struct task_end *end, const char *text)
{
    struct usage_run *run = ctx;
    run->supervisor->is_measuring = false;
    runs_tell_end(run->supervisor, run->reply, end, text);
    free(run);
}

static int usage_job(struct usage_run *run, const struct outputs *outputs, struct err *err)
{
    struct supervisor *supervisor = run->supervisor;
    int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    cleanup_fd int images = openat(supervisor->state_fd, "images", flags);
    struct sandbox_jail_folder folders[] = {{supervisor->sandboxes_fd, "/in/sandboxes", false},
                                            {supervisor->trash_fd, "/in/trash", false},
                                            {images, "/in/images", false}};
    static const char *const argv[] = {"paddock-jail", "measure", NULL};
    struct jail_job job = {.kind = SANDBOX_JAIL_JOB,
                           .argv = argv,
                           .folders = folders,
                           .folder_count = images < 0 ? 2 : 3,
                           .stdout_fd = outputs->write_fds[0],
                           .stderr_fd = outputs->write_fds[1],
                           .done = usage_on_done,
                           .ctx = run};
    return jails_start(supervisor, &job, NULL, err);
}

void usage_measure(struct supervisor *supervisor, struct reply reply)
{
    struct err err = {0};
    if (supervisor->is_measuring) {
        reply_status(supervisor, reply, IPC_STATUS_UNAVAILABLE,
                     "The disk is being measured for another request: try again");
        return;
    }
    cleanup_outputs struct outputs outputs;
    int result = outputs_open(&outputs, &err);
    struct usage_run *run = must_alloc(sizeof(*run));
    *run = (struct usage_run){supervisor, reply};
    if (result == 0)
        result = usage_job(run, &outputs, &err);
    if (result < 0) {
        log_error("cannot measure the disk: %s", err.message);
        reply_failure(supervisor, reply, result, err.message);
        free(run);
        return;
    }
    supervisor->is_measuring = true;
    reply_send(supervisor, reply, IPC_RUN_STARTED, NULL, outputs.read_fds, 2);
}
