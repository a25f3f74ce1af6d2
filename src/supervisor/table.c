/*
 * The sandbox table and its queues; see table.h. Invariants: a name is in the table once; a
 * sandbox's folder has a meta.json, with its lease, from its first start on, and before that
 * nothing is answered but refusals; an operation is answered once.
 */
#include "supervisor/table.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent.h"
#include "sandbox/inside.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/log.h"

/* The agent inside, as on disk. */
#define AGENT_ID 1000

struct sandbox *table_find(struct supervisor *supervisor, const char *name)
{
    struct sandbox *sandbox = supervisor->sandboxes;
    while (sandbox && strcmp(sandbox->meta.name, name) != 0)
        sandbox = sandbox->next;
    return sandbox;
}

bool table_has_group(const struct supervisor *supervisor, const char *group)
{
    const struct sandbox *sandbox = supervisor->sandboxes;
    while (sandbox &&
           (sandbox->state == SANDBOX_STOPPED || strcmp(sandbox->instance.group, group) != 0))
        sandbox = sandbox->next;
    return sandbox;
}

struct sandbox *table_add(struct supervisor *supervisor, const struct meta *meta, int folder_fd)
{
    struct sandbox *sandbox = must_alloc(sizeof(*sandbox));
    struct sandbox **at = &supervisor->sandboxes; /* in the order of names, as they are listed */
    while (*at && strcmp((*at)->meta.name, meta->name) < 0)
        at = &(*at)->next;
    *sandbox = (struct sandbox){.next = *at,
                                .supervisor = supervisor,
                                .meta = *meta,
                                .folder_fd = folder_fd,
                                .next_number = 1};
    *at = sandbox;
    table_touch(sandbox);
    return sandbox;
}

int table_save(struct sandbox *sandbox)
{
    struct err err = {0};
    expiry_note_time(sandbox);
    int result = meta_write(sandbox->folder_fd, &sandbox->meta, &err);
    if (result < 0)
        log_error("%s", err.message);
    return result;
}

int64_t table_memory_bytes(const struct sandbox *sandbox)
{
    struct sandbox_limits limits = {0};
    settings_limits(sandbox, &limits, NULL);
    return limits.memory_bytes;
}

/* -------------------------------------------------------------------------- a new sandbox */

static int table_make_folders(struct supervisor *supervisor, int folder_fd, struct err *err)
{
    static const struct sandbox_gift folders[] = {
        {"workspace", AGENT_ID, false}, {"task", 0, true},          {"overlay", 0, false},
        {"overlay/upper", 0, false},    {"overlay/work", 0, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        if (mkdirat(folder_fd, folders[i].path, 0755) < 0)
            return err_errno(err, errno, "cannot make %s", folders[i].path);
    return sandbox_give(supervisor->host, folder_fd, folders, ARRAY_LEN(folders), err);
}

/* Reads recipes_dir/AGENT/agent.json for the image it runs in. */
static int table_agent_image(struct supervisor *supervisor, const char *agent_name,
                             char ret[LIMIT_NAME_BYTES + 1], struct err *err)
{
    struct agent *agent = NULL;
    int result = supervisor_read_agent(supervisor, agent_name, &agent, err);
    if (result < 0)
        return result;
    snprintf(ret, LIMIT_NAME_BYTES + 1, "%s", agent_image(agent));
    agent_free(agent);
    return 0;
}

int table_create(struct supervisor *supervisor, const char *name, const char *agent,
                 struct sandbox **ret, struct err *err)
{
    struct meta meta = {.created_ms = clock_unix_ms(), .settings = SETTINGS_INIT};
    snprintf(meta.name, sizeof(meta.name), "%s", name);
    snprintf(meta.agent, sizeof(meta.agent), "%s", agent);
    int result = state_check_room(supervisor, err);
    if (result == 0)
        result = table_agent_image(supervisor, meta.agent, meta.image, err);
    if (result < 0)
        return result;
    /* sandboxes/ itself is not synced: the sync of the folder, in meta_write, makes its name last
     * on every file system that state_dir may be on (ext4, xfs, btrfs). */
    if (mkdirat(supervisor->sandboxes_fd, name, 0700) < 0)
        return err_errno(err, errno, "cannot make the folder of sandbox %s", name);
    cleanup_fd int folder =
        openat(supervisor->sandboxes_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return err_errno(err, errno, "cannot open the folder of sandbox %s", name);
    result = table_make_folders(supervisor, folder, err);
    if (result < 0) {
        state_to_trash(supervisor, supervisor->sandboxes_fd, name, "sandbox", NULL);
        trash_empty(supervisor);
        return result;
    }
    *ret = table_add(supervisor, &meta, TAKE_FD(folder));
    (*ret)->is_new = true;
    disk_begin(*ret);
    expiry_note_stop(*ret);
    log_info("sandbox=%s is made", name);
    return 0;
}

/* Moves the folder to the trash and takes the sandbox out of the table; it is the caller's to
 * free. */
static int table_discard(struct sandbox *sandbox, struct err *err)
{
    struct supervisor *supervisor = sandbox->supervisor;
    int result =
        state_to_trash(supervisor, supervisor->sandboxes_fd, sandbox->meta.name, "sandbox", err);
    if (result < 0)
        return result;
    struct sandbox **at = &supervisor->sandboxes;
    while (*at != sandbox)
        at = &(*at)->next;
    *at = sandbox->next;
    event_free(&sandbox->expiry);
    event_free(&sandbox->spending);
    disk_forget(sandbox);
    close(sandbox->folder_fd);
    settings_free(&sandbox->meta.settings);
    trash_empty(supervisor);
    return 0;
}

/* A sandbox that was made for a start that failed leaves nothing behind. */
static void table_discard_new(struct sandbox *sandbox)
{
    struct err err = {0};
    if (table_discard(sandbox, &err) < 0)
        log_error("sandbox=%s %s", sandbox->meta.name, err.message);
    else
        free(sandbox);
}

/* ------------------------------------------------------------------------------ the queue */

static void op_free(struct op *op)
{
    if (op->fd >= 0)
        close(op->fd);
    settings_put_free(op->put);
    free(op);
}

static void op_refuse(struct sandbox *sandbox, const struct op *op, enum ipc_status status,
                      const char *why)
{
    reply_status(sandbox->supervisor, op->reply, status, "%s", why);
}

static bool op_needs_instance(const struct op *op)
{
    return op->kind == OP_EXEC || op->kind == OP_TASK;
}

static bool queue_has_end(const struct sandbox *sandbox)
{
    for (const struct op *op = sandbox->queue; op; op = op->next)
        if (op->kind == OP_STOP || op->kind == OP_REMOVE)
            return true;
    return false;
}

enum op_step {
    OP_DONE,  /* answered, or handed over to what runs */
    OP_WAITS, /* stays first */
    OP_GONE,  /* the sandbox is gone, and its queue */
};

/* Starts the instance for the operation. */
static enum op_step op_start(struct sandbox *sandbox, const struct op *op)
{
    if (egress_ca_is_coming(sandbox->supervisor))
        return OP_WAITS;
    struct err err = {0};
    int result = state_check_room(sandbox->supervisor, &err);
    if (result == 0)
        result = instance_start(sandbox, &err);
    if (result == 0)
        return OP_WAITS;
    sandbox->supervisor->counters.not_started++;
    log_error(REQUEST_FIELD "sandbox=%s cannot be started: %s", op->reply.id, sandbox->meta.name,
              err.message);
    reply_failure(sandbox->supervisor, op->reply, result, err.message);
    return OP_DONE;
}

void table_tell_silent(const struct sandbox *sandbox, struct reply reply)
{
    const char *name = sandbox->meta.name;
    reply_status(sandbox->supervisor, reply, IPC_STATUS_UNAVAILABLE,
                 "The sandbox %s does not answer: something outside holds its processes up, or the "
                 "machine is too busy. Try again, or end it: paddock stop %s",
                 name, name);
}

/* What writes is not begun in a sandbox that is over its limit of files. OP_GONE: it may. */
static enum op_step op_check_disk(struct sandbox *sandbox, const struct op *op)
{
    char why[MSG_TEXT / 2];
    if (!sandbox->meta.is_over_disk)
        return OP_GONE;
    if (!disk_ask(sandbox))
        return OP_WAITS;
    disk_explain(sandbox, why, sizeof(why));
    reply_status(
        sandbox->supervisor, op->reply, IPC_STATUS_CONFLICT,
        "The sandbox %s is over its limit: %s. Delete some (paddock exec %s -- rm ...), or "
        "remove it",
        sandbox->meta.name, why, sandbox->meta.name);
    return OP_DONE;
}

static enum op_step op_begin_exec(struct sandbox *sandbox, const struct op *op)
{
    if (op->is_unwanted) {
        op_refuse(sandbox, op, IPC_STATUS_UNAVAILABLE, "The client went away");
        return OP_DONE;
    }
    enum op_step step = op->is_clone ? op_check_disk(sandbox, op) : OP_GONE;
    if (step != OP_GONE)
        return step;
    if (sandbox->state == SANDBOX_STOPPED)
        return op_start(sandbox, op);
    if (sandbox->is_silent) {
        table_tell_silent(sandbox, op->reply);
        return OP_DONE;
    }
    if (!runs_are_full(sandbox)) {
        runs_exec(sandbox, op);
        return OP_DONE;
    }
    if (!queue_has_end(sandbox))
        return OP_WAITS;
    op_refuse(sandbox, op, IPC_STATUS_UNAVAILABLE, "The sandbox is being stopped");
    return OP_DONE;
}

static enum op_step op_begin_task(struct sandbox *sandbox, const struct op *op)
{
    const char *refusal = tasks_refusal(sandbox);
    if (refusal) {
        op_refuse(sandbox, op, IPC_STATUS_CONFLICT, refusal);
        return OP_DONE;
    }
    enum op_step step = op_check_disk(sandbox, op);
    if (step != OP_GONE)
        return step;
    if (sandbox->state == SANDBOX_STOPPED)
        return op_start(sandbox, op);
    if (sandbox->is_silent)
        table_tell_silent(sandbox, op->reply);
    else
        tasks_start(sandbox, op);
    return OP_DONE;
}

static enum op_step op_begin_stop(struct sandbox *sandbox, const struct op *op)
{
    if (sandbox->state == SANDBOX_STOPPED) {
        op_refuse(sandbox, op, IPC_STATUS_OK, "");
        return OP_DONE;
    }
    instance_stop(sandbox);
    return OP_WAITS;
}

/* The sandbox's folder goes to the trash; what was asked of it afterwards is asked anew. */
static enum op_step op_begin_remove(struct sandbox *sandbox, const struct op *op)
{
    struct supervisor *supervisor = sandbox->supervisor;
    if (sandbox->state != SANDBOX_STOPPED && op->is_only_stopped) {
        op_refuse(sandbox, op, IPC_STATUS_CONFLICT, "The sandbox is not stopped");
        return OP_DONE;
    }
    if (sandbox->state != SANDBOX_STOPPED) {
        instance_stop(sandbox);
        return OP_WAITS;
    }
    if (sandbox->base_jail)
        return OP_WAITS;
    struct err err = {0};
    int result = table_discard(sandbox, &err);
    if (result < 0) {
        log_error("sandbox=%s it cannot be removed: %s", sandbox->meta.name, err.message);
        expiry_failed(sandbox);
        reply_failure(supervisor, op->reply, result, err.message);
        return OP_DONE;
    }
    op_refuse(sandbox, op, IPC_STATUS_OK, "");
    log_info("sandbox=%s is removed", sandbox->meta.name);
    audit_end_followers(supervisor, sandbox->meta.name);
    struct op *rest = sandbox->queue->next;
    op_free(sandbox->queue);
    while (rest) {
        struct op *next = rest->next;
        table_submit(supervisor, sandbox->meta.name, rest);
        free(rest);
        rest = next;
    }
    free(sandbox);
    return OP_GONE;
}

/* What an instance has from its start on. */
static bool set_needs_stop(const struct sandbox *sandbox, const struct settings *fresh)
{
    const struct settings *old = &sandbox->meta.settings;
    return strcmp(fresh->size, old->size) != 0 || fresh->memory_mib != old->memory_mib ||
           fresh->cpu_millis != old->cpu_millis || fresh->pids != old->pids ||
           !settings_list_equals(&fresh->env, &old->env);
}

/* What a sandbox is to be set to. */
struct set {
    const char *agent;
    char image[LIMIT_NAME_BYTES + 1];
    struct settings settings;
};

/* The agent that it has already stays with its image, whatever became of its recipe. */
static int set_find_image(const struct sandbox *sandbox, struct set *set, struct err *err)
{
    const struct meta *meta = &sandbox->meta;
    bool is_same = strcmp(set->agent, meta->agent) == 0;
    int result = 0;
    if (!is_same || !meta->was_started)
        result = settings_check_agent(sandbox->supervisor, set->agent, set->image, err);
    if (!is_same || (!meta->was_started && result == 0))
        return result;
    memcpy(set->image, meta->image, sizeof(set->image));
    return 0;
}

/* Why the sandbox may not be set now, or 0. */
static int set_check(const struct sandbox *sandbox, const struct set *set, struct err *err)
{
    const struct meta *meta = &sandbox->meta;
    if (meta->task == TASK_RUNNING || sandbox->task_number)
        return err_set(err, EBUSY, "A task is running: wait for its end, or cancel it");
    if (meta->was_started && strcmp(set->image, meta->image) != 0)
        return err_set(err, EBUSY,
                       "%s was started with the image %s, and the agent %s needs %s: what was "
                       "installed in it lies on its image. Remove it, or make another sandbox",
                       meta->name, meta->image, set->agent, set->image);
    if ((sandbox->runs || sandbox->foreign_runs || sandbox->base_jail) &&
        set_needs_stop(sandbox, &set->settings))
        return err_set(err, EBUSY,
                       "A program is running in it, and other limits or another environment need "
                       "a new start: wait for its end, or stop the sandbox");
    return 0;
}

/* The whole of it, in the order in which clients are told what is wrong. */
static int set_make(const struct sandbox *sandbox, const struct settings_put *put, struct set *ret,
                    struct err *err)
{
    if (put->is_only_new && !sandbox->is_new)
        return err_set(err, ENOTUNIQ, "There is a sandbox %s already", sandbox->meta.name);
    ret->agent = put->agent[0] ? put->agent : sandbox->meta.agent;
    int result = settings_change(&sandbox->meta.settings, put, &ret->settings, err);
    if (result == 0)
        result = set_find_image(sandbox, ret, err);
    if (result == 0)
        result = settings_check(sandbox->supervisor, &ret->settings, &sandbox->meta.settings, err);
    return result == 0 ? set_check(sandbox, ret, err) : result;
}

/* The record on disk comes first: what it cannot keep is not in force. */
static int set_apply(struct sandbox *sandbox, struct set *set, struct err *err)
{
    struct meta fresh = sandbox->meta;
    snprintf(fresh.agent, sizeof(fresh.agent), "%s", set->agent);
    snprintf(fresh.image, sizeof(fresh.image), "%s", set->image);
    fresh.settings = set->settings;
    int result = meta_write(sandbox->folder_fd, &fresh, err);
    if (result < 0)
        return result;
    set->settings = sandbox->meta.settings; /* to be freed */
    sandbox->meta = fresh;
    egress_set_policy(sandbox->supervisor, sandbox);
    egress_tell_task(sandbox->supervisor, sandbox);
    return 0;
}

static void set_refuse(struct supervisor *supervisor, struct reply reply, int result,
                       const char *why)
{
    if (result == -EINVAL)
        reply_status(supervisor, reply, IPC_STATUS_BAD_REQUEST, "%s", why);
    else if (result == -ENOTUNIQ)
        reply_status(supervisor, reply, IPC_STATUS_EXISTS, "%s", why);
    else if (result == -EBUSY)
        reply_status(supervisor, reply, IPC_STATUS_CONFLICT, "%s", why);
    else
        reply_failure(supervisor, reply, result, why);
}

static void set_answer(struct sandbox *sandbox, struct reply reply, bool is_new)
{
    struct err err = {0};
    struct msg_document body = {.is_new = is_new};
    cleanup_fd int document = document_sandbox(sandbox, &err);
    if (document < 0)
        reply_failure(sandbox->supervisor, reply, document, err.message);
    else
        reply_send(sandbox->supervisor, reply, IPC_DOCUMENT, &body, &document, 1);
}

static enum op_step op_begin_set(struct sandbox *sandbox, const struct op *op)
{
    struct set set = {.settings = SETTINGS_INIT};
    struct err err = {0};
    int result = set_make(sandbox, op->put, &set, &err);
    bool must_stop =
        result == 0 && sandbox->state != SANDBOX_STOPPED && set_needs_stop(sandbox, &set.settings);
    bool is_new = sandbox->is_new;
    if (result == 0 && !must_stop)
        result = set_apply(sandbox, &set, &err);
    settings_free(&set.settings);
    if (result < 0) {
        set_refuse(sandbox->supervisor, op->reply, result, err.message);
        return OP_DONE;
    }
    if (must_stop) {
        instance_stop(sandbox);
        return OP_WAITS;
    }
    if (is_new)
        expiry_watch(sandbox);
    sandbox->is_new = false;
    log_info("sandbox=%s is %s", sandbox->meta.name, is_new ? "made and set" : "set");
    set_answer(sandbox, op->reply, is_new);
    return OP_DONE;
}

static enum op_step op_begin(struct sandbox *sandbox, const struct op *op)
{
    switch (op->kind) {
    case OP_EXEC:
        return op_begin_exec(sandbox, op);
    case OP_TASK:
        return op_begin_task(sandbox, op);
    case OP_STOP:
        return op_begin_stop(sandbox, op);
    case OP_REMOVE:
        return op_begin_remove(sandbox, op);
    case OP_SET:
        return op_begin_set(sandbox, op);
    }
    return OP_DONE;
}

void table_pump(struct sandbox *sandbox)
{
    if (sandbox->state == SANDBOX_STARTING || sandbox->state == SANDBOX_STOPPING)
        return;
    while (sandbox->queue) {
        struct op *op = sandbox->queue;
        enum op_step step = op_begin(sandbox, op);
        if (step != OP_DONE)
            return;
        sandbox->queue = op->next;
        op_free(op);
    }
    if (sandbox->is_new && sandbox->state == SANDBOX_STOPPED)
        table_discard_new(sandbox);
}

void table_pump_all(struct supervisor *supervisor)
{
    for (struct sandbox *sandbox = supervisor->sandboxes, *next; sandbox; sandbox = next) {
        next = sandbox->next;
        table_pump(sandbox);
    }
}

void table_refuse_starts(struct sandbox *sandbox, const char *why)
{
    struct op **at = &sandbox->queue;
    while (*at) {
        struct op *op = *at;
        if (!op_needs_instance(op)) {
            at = &op->next;
            continue;
        }
        reply_failure(sandbox->supervisor, op->reply, 0, why);
        *at = op->next;
        op_free(op);
    }
}

/* A sandbox for a PUT: only when it may have what is asked. A PATCH makes none. */
static struct sandbox *table_missing_set(struct supervisor *supervisor, const char *name,
                                         const struct op *op)
{
    struct sandbox *sandbox = NULL;
    struct err err = {0};
    char image[LIMIT_NAME_BYTES + 1];
    const struct settings nothing = SETTINGS_INIT;
    if (op->put->is_patch) {
        reply_status(supervisor, op->reply, IPC_STATUS_NOT_FOUND, "There is no sandbox %s", name);
        return NULL;
    }
    const char *agent = op->put->agent[0] ? op->put->agent : supervisor->config->default_agent;
    int result = settings_check_agent(supervisor, agent, image, &err);
    if (result == 0)
        result = settings_check(supervisor, &op->put->settings, &nothing, &err);
    if (result == 0)
        result = table_create(supervisor, name, agent, &sandbox, &err);
    if (result < 0)
        set_refuse(supervisor, op->reply, result, err.message);
    return sandbox;
}

/* What an operation on a name means that is not in the table. Returns the sandbox to go on with. */
static struct sandbox *table_missing(struct supervisor *supervisor, const char *name,
                                     const struct op *op)
{
    struct sandbox *sandbox = NULL;
    struct err err = {0};
    int result;
    switch (op->kind) {
    case OP_EXEC:
        result = table_create(supervisor, name, supervisor->config->default_agent, &sandbox, &err);
        if (result < 0) {
            log_error(REQUEST_FIELD "sandbox=%s %s", op->reply.id, name, err.message);
            /* a recipe that is not there or not right: the user can go on only if told */
            bool is_recipe = result == -ENOENT || result == -EINVAL;
            reply_failure(supervisor, op->reply, is_recipe ? -EAGAIN : result, err.message);
        }
        break;
    case OP_TASK:
        reply_status(supervisor, op->reply, IPC_STATUS_CONFLICT, "Clone a repository first");
        break;
    case OP_SET:
        sandbox = table_missing_set(supervisor, name, op);
        break;
    case OP_STOP:
    case OP_REMOVE:
        reply_status(supervisor, op->reply, IPC_STATUS_NOT_FOUND, "There is no sandbox %s", name);
        break;
    }
    return sandbox;
}

void table_submit(struct supervisor *supervisor, const char *name, const struct op *from)
{
    struct sandbox *sandbox = table_find(supervisor, name);
    if (!sandbox)
        sandbox = table_missing(supervisor, name, from);
    if (!sandbox) {
        if (from->fd >= 0)
            close(from->fd);
        settings_put_free(from->put);
        return;
    }
    struct op *op = must_alloc(sizeof(*op));
    *op = *from;
    op->next = NULL;
    struct op **last = &sandbox->queue;
    while (*last)
        last = &(*last)->next;
    *last = op;
    table_touch(sandbox);
    table_pump(sandbox);
}
