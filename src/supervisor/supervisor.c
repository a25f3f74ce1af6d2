/*
 * The supervisor's start, loop and end; see supervisor.h. The order of the start: lock, schema,
 * host, children's sockets, what a former supervisor left, children. At the end instances go on;
 * api and egress see the end of their sockets.
 */
#include "supervisor/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "supervisor/jails.h"
#include "supervisor/notify.h"
#include "supervisor/table.h"
#include "util/cleanup.h"
#include "util/log.h"

static int supervisor_open_program(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        log_warn("%s cannot be opened: %s", path, strerror(errno));
    return fd;
}

/* Each instance takes some seven descriptors. */
static void supervisor_raise_limits(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    /* No core of ours, which holds secrets; 1 and not 0, so that root's children can have that. */
    setrlimit(RLIMIT_CORE, &(struct rlimit){1, 1});
}

static int supervisor_open_host(struct supervisor *supervisor, struct err *err)
{
    const struct config *config = supervisor->config;
    char name[9];
    state_name(supervisor, name);
    struct sandbox_host_config host = {.row = &supervisor->row,
                                       .ids_base = (uint32_t)config->ids_base,
                                       .ids_count = (uint32_t)config->ids_count,
                                       .init_path = supervisor->paths->init,
                                       .state_name = name};
    return sandbox_host_open(&host, &supervisor->host, err);
}

/* What a user should know of, with what cures it. */
static void supervisor_say_row(const struct supervisor *supervisor)
{
    const struct row *row = &supervisor->row;
    if (row->kind == ROW_SUBORDINATE)
        log_info("runs as uid %u with the %u subordinate ids from %u on", row->uid, row->count,
                 row->first_uid);
    if (row->shared_with[0])
        log_warn("%s has ids of this range too and may end what runs in the sandboxes: give each "
                 "user in /etc/subuid and /etc/subgid a range of its own",
                 row->shared_with);
    if (row->kind == ROW_SINGLE)
        log_warn("runs as uid %u with this one id, which is the agents' too: no package can be "
                 "installed in a sandbox and no image be built. %s; %s",
                 row->uid, row->why, row->cure);
    struct host_unheld unheld = sandbox_host_unheld(supervisor->host);
    if (unheld.memory || unheld.cpus || unheld.pids)
        log_warn("%s: limits of a sandbox that are not held:%s%s%s; " HOST_GROUPS_CURE,
                 sandbox_host_cgroups(supervisor->host) == CGROUP_NONE
                     ? "no control group can be made here"
                     : "not all controllers of control groups are here",
                 unheld.memory ? " memory (but for each process)" : "",
                 unheld.pids ? " pids (but for each user in it)" : "", unheld.cpus ? " cpus" : "");
}

static int supervisor_open(struct supervisor *supervisor, struct err *err)
{
    supervisor_raise_limits();
    int result = row_find(&supervisor->row, err);
    if (result == 0)
        result = state_open(supervisor, err);
    if (result == 0)
        result = supervisor_open_host(supervisor, err);
    if (result < 0)
        return result;
    supervisor_say_row(supervisor);
    supervisor->jail_fd = supervisor_open_program(supervisor->paths->jail);
    supervisor->image_build_fd = supervisor_open_program(supervisor->paths->image_build);
    supervisor->recipes_fd =
        open(supervisor->config->recipes_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (supervisor->recipes_fd < 0)
        log_warn("recipes_dir %s cannot be opened: %s", supervisor->config->recipes_dir,
                 strerror(errno));
    return 0;
}

/* ------------------------------------------------------------------------------- signals */

static void supervisor_on_signal(uv_signal_t *handle, int number)
{
    struct supervisor *supervisor = handle->data;
    if (number == SIGHUP) {
        log_info("reloading policy and secrets");
        if (supervisor->egress.channel)
            notify_reloading();
        egress_load_policy(supervisor);
        return;
    }
    log_info("ending on signal %d; instances go on", number);
    notify_manager("STOPPING=1");
    uv_stop(&supervisor->loop);
}

static void supervisor_watch_signals(struct supervisor *supervisor)
{
    static const int numbers[ARRAY_LEN(supervisor->signals)] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        uv_signal_init(&supervisor->loop, &supervisor->signals[i]);
        supervisor->signals[i].data = supervisor;
        uv_signal_start(&supervisor->signals[i], supervisor_on_signal, numbers[i]);
    }
    signal(SIGPIPE, SIG_IGN);
}

/* ----------------------------------------------------------------------- start and end */

static void supervisor_say_what_is_missing(const struct supervisor *supervisor)
{
    if (!config_var(supervisor->config, "AI_GATEWAY_ACCOUNT_ID"))
        log_warn("no AI gateway is configured: set \"AI_GATEWAY_ACCOUNT_ID\" in the "
                 "configuration's \"vars\" (or the environment) and put the token into %s/"
                 "AI_GATEWAY_TOKEN (mode 0600); until then a task of an agent that needs it fails",
                 supervisor->config->secrets_dir);
}

static int supervisor_start(struct supervisor *supervisor, struct err *err)
{
    int result = supervisor_open(supervisor, err);
    if (result == 0)
        result = tokens_read(supervisor, err);
    if (result == 0)
        result = state_listen(supervisor, err);
    if (result < 0)
        return result;
    supervisor_watch_signals(supervisor);
    result = recover_state(supervisor, err);
    if (result < 0)
        return result;
    supervisor_say_what_is_missing(supervisor);
    egress_start(supervisor);
    api_start(supervisor);
    int64_t check = supervisor->config->task_check_ms;
    supervisor->task_timer =
        event_timer(&supervisor->loop, check, check, tasks_check_all, supervisor);
    disk_start(supervisor);
    return 0;
}

/* Lets go of everything. The kernel closes descriptors; what matters is that no child or jail is
 * left without one who looks after it, and that instances are. */
static void supervisor_end(struct supervisor *supervisor)
{
    child_close(&supervisor->api);
    child_close(&supervisor->egress);
    jails_kill_all(supervisor);
    for (struct sandbox *sandbox = supervisor->sandboxes; sandbox; sandbox = sandbox->next) {
        spending_end(sandbox);
        instance_let_go(sandbox);
    }
    if (supervisor->host)
        sandbox_host_close(supervisor->host);
}

int supervisor_run(const struct config *config, const struct paths *paths, struct secrets *secrets,
                   struct err *err)
{
    static struct supervisor supervisor;
    supervisor = (struct supervisor){.config = config,
                                     .paths = paths,
                                     .secrets = secrets,
                                     .state_fd = -1,
                                     .sandboxes_fd = -1,
                                     .trash_fd = -1,
                                     .recipes_fd = -1,
                                     .common_fd = -1,
                                     .counters = {.started_ms = clock_unix_ms()},
                                     .lock_fd = -1,
                                     .jail_fd = -1,
                                     .image_build_fd = -1,
                                     .api.process.pidfd = -1,
                                     .egress.process.pidfd = -1};
    if (uv_loop_init(&supervisor.loop) < 0)
        return err_set(err, EIO, "cannot make an event loop");
    int result = supervisor_start(&supervisor, err);
    if (result == 0) {
        notify_manager("READY=1");
        uv_run(&supervisor.loop, UV_RUN_DEFAULT);
        leftovers_end(
            &supervisor); /* the table is whole: nothing that runs is taken for a leftover */
    }
    supervisor_end(&supervisor);
    return result;
}
