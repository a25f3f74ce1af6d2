/*
 * Lifecycle of an instance: start, readiness, stop, end, take-over. Nothing here waits: each step
 * ends with something to watch. Whatever happens, the end of init (its pidfd) leads to STOPPED, and
 * there everything that the instance had is given back.
 */
#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "image/image.h"
#include "sandbox/order.h"
#include "supervisor/table.h"
#include "util/cleanup.h"
#include "util/log.h"

/* After init's own grace: it should be gone; then it is killed. */
#define STOP_SLACK_MS 2000

static int instance_boot_id(char ret[40], struct err *err)
{
    unsigned char b[16];
    if (getrandom(b, sizeof(b), 0) != sizeof(b))
        return err_errno(err, errno, "cannot get random bytes");
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40); /* RFC 9562, version 4 */
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    snprintf(ret, 40, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
             b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
    return 0;
}

/* The socket that init listens on for later supervisors. */
static int instance_listen(int folder_fd, struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/init.sock", folder_fd);
    if (unlinkat(folder_fd, "init.sock", 0) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove the old init.sock");
    cleanup_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 4) < 0)
        return err_errno(err, errno, "cannot listen on init.sock");
    return TAKE_FD(fd);
}

/* ------------------------------------------------------------------------------- the end */

static void instance_close_events(struct sandbox *sandbox)
{
    event_free(&sandbox->timer);
    event_free(&sandbox->ended);
    channel_close(&sandbox->init);
    for (size_t i = 0; sandbox->has_listeners && i < SANDBOX_LISTENERS; i++)
        close(sandbox->listeners[i]);
    sandbox->has_listeners = false;
    ports_close(sandbox);
}

void instance_let_go(struct sandbox *sandbox)
{
    instance_close_events(sandbox);
    if (sandbox->state != SANDBOX_STOPPED)
        sandbox_instance_release(&sandbox->instance);
}

static void instance_reap(const struct sandbox *sandbox)
{
    siginfo_t info = {0};
    /* ECHILD for an adopted one: its own parent has reaped it. */
    waitid(P_PIDFD, (id_t)sandbox->instance.init.pidfd, &info, WEXITED | WNOHANG);
    if (info.si_code != CLD_EXITED && info.si_status && info.si_status != SIGKILL)
        log_error("sandbox=%s its init ended by signal %d", sandbox->meta.name, info.si_status);
}

static void instance_on_end(void *ctx)
{
    struct sandbox *sandbox = ctx;
    struct supervisor *supervisor = sandbox->supervisor;
    channel_drain(sandbox->init); /* its last words */
    instance_reap(sandbox);
    bool was_starting = sandbox->state == SANDBOX_STARTING;
    if (!sandbox->failure[0])
        snprintf(sandbox->failure, sizeof(sandbox->failure), "The sandbox ended");
    log_info("sandbox=%s is stopped", sandbox->meta.name);
    egress_detach(supervisor, sandbox);
    instance_close_events(sandbox);
    sandbox_instance_release(&sandbox->instance);
    ids_release(sandbox_host_ids(supervisor->host), sandbox->meta.lease.block);
    sandbox->meta.lease = (struct meta_lease){0};
    expiry_note_stop(sandbox);
    sandbox->state = SANDBOX_STOPPED;
    expiry_watch(sandbox);
    leftovers_clear(supervisor, sandbox->instance.group);
    supervisor->instance_count--;
    sandbox->foreign_runs = 0;
    runs_fail_all(sandbox, was_starting || sandbox->is_stopped_over_disk
                               ? sandbox->failure
                               : "The sandbox was stopped");
    tasks_instance_gone(sandbox);
    table_save(sandbox);
    if (was_starting) {
        supervisor->counters.not_started++;
        table_refuse_starts(sandbox, sandbox->failure);
    }
    trash_empty(supervisor); /* what it had mounted may go now */
    table_pump(sandbox);
}

void instance_fail(struct sandbox *sandbox, const char *why)
{
    struct err err = {0};
    log_error("sandbox=%s is killed: %s", sandbox->meta.name, why);
    if (!sandbox->failure[0])
        snprintf(sandbox->failure, sizeof(sandbox->failure), "%s", why);
    if (sandbox_instance_kill(sandbox->supervisor->host, &sandbox->instance, &err) < 0)
        log_error("sandbox=%s %s", sandbox->meta.name, err.message);
}

/* ----------------------------------------------------------------------------- the start */

static void instance_on_late(void *ctx)
{
    struct sandbox *sandbox = ctx;
    event_free(&sandbox->timer);
    instance_fail(sandbox, sandbox->state == SANDBOX_STARTING ? "it was not ready in time"
                                                              : "it did not stop in time");
}

/* There is an instance now: watches it. */
static void instance_watch(struct sandbox *sandbox, int64_t limit_ms)
{
    struct supervisor *supervisor = sandbox->supervisor;
    sandbox->state = SANDBOX_STARTING;
    event_free(&sandbox->expiry);
    sandbox->failure[0] = '\0';
    sandbox->is_stopped_over_disk = false;
    sandbox->is_silent = false;
    supervisor->instance_count++;
    init_open(sandbox);
    sandbox->ended =
        event_watch(&supervisor->loop, sandbox->instance.init.pidfd, instance_on_end, sandbox);
    sandbox->timer = event_timer(&supervisor->loop, limit_ms, 0, instance_on_late, sandbox);
}

static void instance_note_lease(struct sandbox *sandbox)
{
    const struct sandbox_instance *instance = &sandbox->instance;
    struct meta_lease *lease = &sandbox->meta.lease;
    *lease = (struct meta_lease){.pid = instance->init.pid,
                                 .start_time = instance->init.start_time,
                                 .block = instance->block};
    snprintf(lease->boot_id, sizeof(lease->boot_id), "%s", instance->boot_id);
}

/* What the image says of its programs; its working directory is kept in the sandbox. */
static int instance_image_config(struct sandbox *sandbox, struct image_config *ret, struct err *err)
{
    int result = image_config_read(sandbox->supervisor->state_fd, sandbox->meta.image, ret, err);
    snprintf(sandbox->workdir, sizeof(sandbox->workdir), "%s", result < 0 ? "" : ret->workdir);
    return result;
}

/* The image's environment with the sandbox's own. */
static int instance_environment(struct sandbox *sandbox, struct buf *ret, struct err *err)
{
    cleanup_free struct image_config *image = must_alloc(sizeof(*image));
    int result = instance_image_config(sandbox, image, err);
    if (result < 0)
        return result;
    const struct buf list = {.data = image->env, .len = image->env_bytes};
    result = settings_merge(&list, &sandbox->meta.settings.env, ret);
    return result < 0 ? err_errno(err, -result, "cannot make the environment") : 0;
}

static int instance_make(struct sandbox *sandbox, uint32_t block, struct err *err)
{
    struct supervisor *supervisor = sandbox->supervisor;
    char boot_id[40];
    struct sandbox_make make = {
        .boot_id = boot_id, .block = block, .trust = supervisor_trust(supervisor)};
    int result = instance_boot_id(boot_id, err);
    if (result == 0)
        result = settings_limits(sandbox, &make.limits, err);
    return result < 0 ? result
                      : sandbox_instance_make(supervisor->host, &make, &sandbox->instance, err);
}

/* What is wrong with the sandbox comes out before an instance is made. */
static int instance_start_in(struct sandbox *sandbox, uint32_t block, struct err *err)
{
    struct supervisor *supervisor = sandbox->supervisor;
    cleanup_fd int image = image_open(supervisor->state_fd, sandbox->meta.image, err);
    if (image < 0)
        return image == -ENOENT ? -EAGAIN : image; /* it can be built: try again then */
    cleanup_fd int listener = instance_listen(sandbox->folder_fd, err);
    if (listener < 0)
        return listener;
    cleanup_buf struct buf variables = BUF_INIT(LIMIT_IMAGE_ENV_BYTES + LIMIT_ENV_BYTES);
    int result = instance_environment(sandbox, &variables, err);
    if (result < 0)
        return result;
    const char *environment[SETTINGS_ENVIRONMENT];
    static_assert(SETTINGS_ENVIRONMENT <= ORDER_VARIABLES, "an order has room for all");
    settings_environment(&variables, environment);
    struct sandbox_start start = {
        .name = sandbox->meta.name,
        .image_fd = image,
        .common_fd = supervisor->common_fd,
        .folder_fd = sandbox->folder_fd,
        .listen_fd = listener,
        .environment = environment,
    };
    result = instance_make(sandbox, block, err);
    if (result < 0)
        return result;
    result = sandbox_instance_start(supervisor->host, &start, &sandbox->instance, err);
    if (result < 0)
        sandbox_instance_end(supervisor->host, &sandbox->instance);
    return result;
}

int instance_start(struct sandbox *sandbox, struct err *err)
{
    struct supervisor *supervisor = sandbox->supervisor;
    int64_t max = supervisor->config->max_running;
    if (max && (int64_t)supervisor->instance_count >= max)
        return err_set(err, EAGAIN, "%lld sandboxes run already (max_running): stop one first",
                       (long long)max);
    if (!supervisor->ca_pem.len)
        return err_set(err, EAGAIN,
                       "the egress gateway could not be started yet, and nothing starts without "
                       "it: see paddockd's log");
    uint32_t block = 0;
    int result = floor_check(supervisor, err);
    if (result == 0)
        result = ids_lease(sandbox_host_ids(supervisor->host), &block, err);
    if (result < 0)
        return result;
    result = instance_start_in(sandbox, block, err);
    if (result < 0) {
        ids_release(sandbox_host_ids(supervisor->host), block);
        return result;
    }
    instance_note_lease(sandbox);
    sandbox->meta.was_started = true;
    sandbox->is_adopted = false;
    sandbox->next_number = 1;
    instance_watch(sandbox, LIMIT_START_MS);
    /* While the child sets up. An instance that is on no record is ended by the next supervisor. */
    if (table_save(sandbox) < 0)
        instance_fail(sandbox, "its record could not be written: is the disk full?");
    return 0;
}

/* Numbers of this supervisor's requests must not meet those of the one before. */
static uint64_t instance_fresh_number(void)
{
    return (uint64_t)clock_unix_ms();
}

int instance_adopt(struct sandbox *sandbox, struct err *err)
{
    struct supervisor *supervisor = sandbox->supervisor;
    const struct meta_lease *lease = &sandbox->meta.lease;
    struct ids *ids = sandbox_host_ids(supervisor->host);
    int result = ids_claim(ids, lease->block, err);
    if (result < 0)
        return result;
    struct sandbox_record record = {.name = sandbox->meta.name,
                                    .boot_id = lease->boot_id,
                                    .block = lease->block,
                                    .pid = lease->pid,
                                    .start_time = lease->start_time,
                                    .folder_fd = sandbox->folder_fd};
    result = sandbox_instance_adopt(supervisor->host, &record, &sandbox->instance, err);
    if (result < 0) {
        ids_release(ids, lease->block);
        return result;
    }
    cleanup_free struct image_config *image = must_alloc(sizeof(*image));
    instance_image_config(sandbox, image, NULL); /* without it there is no working directory */
    sandbox->is_adopted = true;
    sandbox->next_number = instance_fresh_number();
    instance_watch(sandbox, LIMIT_ADOPT_MS);
    channel_send(sandbox->init, IPC_INIT_HELLO, sandbox->next_number++, NULL, NULL, 0);
    return 0;
}

/* ------------------------------------------------------------------------- running, stop */

static void instance_watch_activity(struct sandbox *sandbox, int64_t delay_ms);

bool instance_is_busy(const struct sandbox *sandbox)
{
    return sandbox->runs || sandbox->foreign_runs || sandbox->queue || sandbox->base_jail ||
           sandbox->task_number || sandbox->meta.task == TASK_RUNNING;
}

static void instance_on_quiet(void *ctx)
{
    struct sandbox *sandbox = ctx;
    int64_t limit = sandbox->supervisor->config->inactivity_ms;
    event_free(&sandbox->timer);
    if (instance_is_busy(sandbox))
        table_touch(sandbox);
    int64_t quiet = clock_monotonic_ms() - sandbox->activity_ms;
    if (quiet < limit) {
        instance_watch_activity(sandbox, limit - quiet);
        return;
    }
    log_info("sandbox=%s was not used for %lld s", sandbox->meta.name, (long long)quiet / 1000);
    instance_stop(sandbox);
}

static void instance_watch_activity(struct sandbox *sandbox, int64_t delay_ms)
{
    sandbox->timer =
        event_timer(&sandbox->supervisor->loop, delay_ms, 0, instance_on_quiet, sandbox);
}

void instance_ready(struct sandbox *sandbox)
{
    struct supervisor *supervisor = sandbox->supervisor;
    event_free(&sandbox->timer);
    sandbox->state = SANDBOX_RUNNING;
    sandbox->is_new = false;
    table_touch(sandbox);
    egress_attach(supervisor, sandbox);
    instance_watch_activity(sandbox, supervisor->config->inactivity_ms);
    log_info("sandbox=%s %s, boot id %s", sandbox->meta.name,
             sandbox->is_adopted ? "is taken over" : "runs", sandbox->meta.lease.boot_id);
    table_pump(sandbox);
}

static void instance_end(struct sandbox *sandbox, const struct msg_init_grace *grace)
{
    struct supervisor *supervisor = sandbox->supervisor;
    event_free(&sandbox->timer);
    sandbox->state = SANDBOX_STOPPING;
    /* So that the end of a task is recorded as asked for, not as an accident. */
    if (sandbox->meta.task == TASK_RUNNING)
        channel_send(sandbox->init, IPC_INIT_TASK_CANCEL, sandbox->next_number++, grace, NULL, 0);
    channel_send(sandbox->init, IPC_INIT_STOP, 0, grace, NULL, 0);
    sandbox->timer = event_timer(&supervisor->loop, grace->grace_ms + STOP_SLACK_MS, 0,
                                 instance_on_late, sandbox);
}

void instance_stop(struct sandbox *sandbox)
{
    struct msg_init_grace grace = {.grace_ms = LIMIT_STOP_GRACE_MS};
    instance_end(sandbox, &grace);
}

void instance_stop_over_disk(struct sandbox *sandbox, const char *why)
{
    struct msg_init_grace grace = {.is_over_disk = 1};
    sandbox->is_stopped_over_disk = true;
    snprintf(sandbox->failure, sizeof(sandbox->failure), "The sandbox was stopped: %s", why);
    instance_end(sandbox, &grace);
}
