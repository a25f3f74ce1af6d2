/*
 * Jobs in jails; see jails.h. The limits of each job are in jail/jobs.def; the wall clock's is kept
 * here. A jail that is killed for time or memory ends as a signal tells it.
 */
#include "supervisor/jails.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/log.h"

#define MIB (1024LL * 1024)

struct jail {
    struct jail *next;
    struct supervisor *supervisor;
    char name[64]; /* of its cgroup */
    uint32_t block;
    struct sandbox_process process;
    struct event *ended;
    struct event *timer;
    bool is_late;
    int64_t started_ms;
    jail_done *done;
    void *ctx;
};

struct jail_limits {
    const char *job;
    int64_t memory_bytes;
    int64_t cpu_seconds;
    int64_t wall_ms;
};

static const struct jail_limits jail_limits[] = {
#define JAIL_JOB(name, memory_mib, cpu_seconds, wall_seconds)                                      \
    {#name, (memory_mib)*MIB, cpu_seconds, (wall_seconds)*1000LL},
#include "jail/jobs.def"
#undef JAIL_JOB
};

static struct jail_limits jail_limits_of(const struct jail_job *job)
{
    if (job->kind == SANDBOX_JAIL_JOB)
        for (size_t i = 0; i < ARRAY_LEN(jail_limits); i++)
            if (strcmp(jail_limits[i].job, job->argv[1]) == 0)
                return jail_limits[i];
    return (struct jail_limits){.job = "build", .wall_ms = LIMIT_BUILD_MS};
}

static void jail_take_out(struct jail *jail)
{
    struct jail **at = &jail->supervisor->jails;
    while (*at != jail)
        at = &(*at)->next;
    *at = jail->next;
}

static struct task_end jail_end(const struct jail *jail)
{
    siginfo_t info = {0};
    waitid(P_PIDFD, (id_t)jail->process.pidfd, &info, WEXITED | WNOHANG);
    bool is_exit = info.si_code == CLD_EXITED;
    return (struct task_end){.kind = is_exit ? TASK_END_EXITED : TASK_END_SIGNALED,
                             .code = info.si_status,
                             .started_ms = jail->started_ms,
                             .ended_ms = clock_unix_ms()};
}

static void jail_on_end(void *ctx)
{
    struct jail *jail = ctx;
    struct supervisor *supervisor = jail->supervisor;
    struct task_end end = jail_end(jail);
    const char *text = "";
    if (jail->is_late)
        text = "it took too long and was ended";
    else if (end.kind == TASK_END_SIGNALED)
        text = "it was killed: it took too much memory or processor time, or crashed";
    event_free(&jail->ended);
    event_free(&jail->timer);
    sandbox_process_release(&jail->process);
    sandbox_jail_cleanup(supervisor->host, jail->name);
    ids_release(sandbox_host_ids(supervisor->host), jail->block);
    jail_take_out(jail);
    jail->done(jail->ctx, &end, text);
    free(jail);
}

static void jail_kill(const struct jail *jail)
{
    syscall(SYS_pidfd_send_signal, jail->process.pidfd, SIGKILL, NULL, 0);
}

static void jail_on_late(void *ctx)
{
    struct jail *jail = ctx;
    jail->is_late = true;
    jail_kill(jail);
}

static int jail_run(struct jail *jail, const struct jail_job *job, const struct jail_limits *limits,
                    struct err *err)
{
    struct supervisor *supervisor = jail->supervisor;
    cleanup_fd int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null_fd < 0)
        return err_errno(err, errno, "cannot open /dev/null");
    bool is_build = job->kind == SANDBOX_JAIL_BUILD;
    int binary = is_build ? supervisor->image_build_fd : supervisor->jail_fd;
    if (binary < 0)
        return err_set(err, ENOENT, "%s is not installed beside paddockd",
                       is_build ? supervisor->paths->image_build : supervisor->paths->jail);
    static const char *const environment[] = {
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
        "HOME=/root", NULL};
    struct sandbox_jail_start start = {
        .kind = job->kind,
        .name = jail->name,
        .block = jail->block,
        .binary_fd = binary,
        .argv = job->argv,
        .environment = environment,
        .folders = job->folders,
        .folder_count = job->folder_count,
        .inherit = job->inherit,
        .inherit_count = job->inherit_count,
        .stdout_fd = job->stdout_fd < 0 ? null_fd : job->stdout_fd,
        .stderr_fd = job->stderr_fd < 0 ? STDERR_FILENO : job->stderr_fd,
        .memory_bytes = limits->memory_bytes,
        .cpu_seconds = limits->cpu_seconds,
        .gives_away = job->gives_away,
        .is_idle = job->is_idle,
    };
    return sandbox_jail_start(supervisor->host, &start, &jail->process, err);
}

int jails_start(struct supervisor *supervisor, const struct jail_job *job, struct jail **ret,
                struct err *err)
{
    static uint64_t count;
    struct jail_limits limits = jail_limits_of(job);
    uint32_t block;
    int result = ids_lease(sandbox_host_ids(supervisor->host), &block, err);
    if (result < 0)
        return result;
    struct jail *jail = must_alloc(sizeof(*jail));
    *jail = (struct jail){.supervisor = supervisor,
                          .block = block,
                          .started_ms = clock_unix_ms(),
                          .done = job->done,
                          .ctx = job->ctx};
    snprintf(jail->name, sizeof(jail->name), "jail-%s-%" PRIu64, limits.job, ++count);
    result = jail_run(jail, job, &limits, err);
    if (result < 0) {
        ids_release(sandbox_host_ids(supervisor->host), block);
        free(jail);
        return result;
    }
    jail->ended = event_watch(&supervisor->loop, jail->process.pidfd, jail_on_end, jail);
    jail->timer = event_timer(&supervisor->loop, limits.wall_ms, 0, jail_on_late, jail);
    jail->next = supervisor->jails;
    supervisor->jails = jail;
    if (ret)
        *ret = jail;
    return 0;
}

void jails_kill_all(struct supervisor *supervisor)
{
    for (struct jail *jail = supervisor->jails, *next; jail; jail = next) {
        next = jail->next;
        jail_kill(jail);
        event_free(&jail->ended);
        event_free(&jail->timer);
        sandbox_process_release(&jail->process);
        free(jail);
    }
    supervisor->jails = NULL;
}
