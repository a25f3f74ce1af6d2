/*
 * Requests of the api: one table row per message. api has checked what clients sent; names and
 * numbers are checked again here, because api is the process that strangers talk to.
 */
#include <string.h>
#include <unistd.h>

#include "supervisor/table.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/name.h"

/* The name at the start of most bodies, or NULL when it is none. */
static const char *dispatch_name(const char name[MSG_NAME])
{
    const char *text = ipc_text(name, MSG_NAME);
    return name_is_valid(text, strlen(text)) ? text : NULL;
}

static struct sandbox *dispatch_find(struct supervisor *supervisor, struct reply reply,
                                     const char *name)
{
    struct sandbox *sandbox = table_find(supervisor, name);
    if (!sandbox)
        reply_status(supervisor, reply, IPC_STATUS_NOT_FOUND, "There is no sandbox %s", name);
    return sandbox;
}

/* Sends the document, or why there is none; takes fd. */
static void dispatch_document(struct supervisor *supervisor, struct reply reply, int fd,
                              const struct err *err)
{
    cleanup_fd int document = fd;
    if (document < 0)
        reply_status(supervisor, reply, IPC_STATUS_FAILED, "%s", err->message);
    else
        reply_send(supervisor, reply, IPC_DOCUMENT, NULL, &document, 1);
}

static bool dispatch_health(struct supervisor *supervisor, struct reply reply,
                            struct ipc_message *message)
{
    struct err err = {0};
    (void)message;
    dispatch_document(supervisor, reply, document_health(supervisor, &err), &err);
    return true;
}

static bool dispatch_metrics(struct supervisor *supervisor, struct reply reply,
                             struct ipc_message *message)
{
    struct err err = {0};
    (void)message;
    dispatch_document(supervisor, reply, document_metrics(supervisor, &err), &err);
    return true;
}

static bool dispatch_sandbox_list(struct supervisor *supervisor, struct reply reply,
                                  struct ipc_message *message)
{
    const struct msg_sandbox_list *only = IPC_BODY(message, msg_sandbox_list);
    bool is_good = only->state <= 1U + SANDBOX_STOPPING &&
                   only->label_count <= LIMIT_LABEL_FILTERS &&
                   !only->labels[sizeof(only->labels) - 1];
    struct err err = {0};
    if (is_good)
        dispatch_document(supervisor, reply, document_sandboxes(supervisor, only, &err), &err);
    return is_good;
}

static bool dispatch_sandbox_get(struct supervisor *supervisor, struct reply reply,
                                 struct ipc_message *message)
{
    const char *name = dispatch_name(IPC_BODY(message, msg_sandbox_name)->name);
    const struct sandbox *sandbox = name ? dispatch_find(supervisor, reply, name) : NULL;
    struct err err = {0};
    if (sandbox)
        dispatch_document(supervisor, reply, document_sandbox(sandbox, &err), &err);
    return name;
}

static bool dispatch_end(struct supervisor *supervisor, struct reply reply,
                         struct ipc_message *message, enum op_kind kind)
{
    const char *name = dispatch_name(IPC_BODY(message, msg_sandbox_name)->name);
    struct op op = {.kind = kind,
                    .reply = reply,
                    .fd = -1,
                    .is_only_stopped = message->header.type == IPC_SANDBOX_PRUNE};
    if (name)
        table_submit(supervisor, name, &op);
    return name;
}

static bool dispatch_sandbox_stop(struct supervisor *supervisor, struct reply reply,
                                  struct ipc_message *message)
{
    return dispatch_end(supervisor, reply, message, OP_STOP);
}

static bool dispatch_sandbox_remove(struct supervisor *supervisor, struct reply reply,
                                    struct ipc_message *message)
{
    return dispatch_end(supervisor, reply, message, OP_REMOVE);
}

/* The one descriptor of a request that must have it, sealed so that it cannot change under init. */
static int dispatch_take_sealed(struct ipc_message *message)
{
    cleanup_fd int fd = ipc_take_fd(message, 0);
    return fd >= 0 && fd_is_sealed(fd) ? TAKE_FD(fd) : -1;
}

static int dispatch_read_list(int fd, uint32_t len, size_t at, struct buf *ret)
{
    char *room = len <= ret->max ? buf_reserve(ret, len) : NULL;
    if (!room || pread(fd, room, len, (off_t)at) != (ssize_t)len)
        return -EPROTO;
    ret->len = len;
    ret->data[len] = '\0';
    return 0;
}

static bool dispatch_read_lists(const struct msg_sandbox_put *body, int fd,
                                struct settings_put *put)
{
    const struct {
        struct buf *list;
        enum settings_list kind;
        uint32_t bytes;
    } lists[] = {
        {&put->settings.env, SETTINGS_ENV, body->env_bytes},
        {&put->settings.labels, SETTINGS_LABELS, body->label_bytes},
        {&put->env_gone, SETTINGS_ENV, body->env_gone_bytes},
        {&put->labels_gone, SETTINGS_LABELS, body->label_gone_bytes},
    };
    size_t at = 0;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        if (dispatch_read_list(fd, lists[i].bytes, at, lists[i].list) < 0 ||
            !settings_list_is_valid(lists[i].kind, lists[i].list))
            return false;
        at += lists[i].bytes;
    }
    return true;
}

/* What a PUT or PATCH sets, checked; NULL: no client of ours could have sent it. */
static struct settings_put *dispatch_take_put(const struct msg_sandbox_put *body, int fd)
{
    struct settings_put *put = must_alloc(sizeof(*put));
    struct settings *settings = &put->settings;
    *settings = SETTINGS_INIT;
    put->env_gone = BUF_INIT(LIMIT_ENV_BYTES);
    put->labels_gone = BUF_INIT(LIMIT_LABELS_BYTES);
    put->is_patch = body->is_patch;
    put->named = body->named;
    IPC_SET_TEXT(put->agent, IPC_TEXT(body->agent));
    IPC_SET_TEXT(settings->policy, IPC_TEXT(body->policy));
    IPC_SET_TEXT(settings->size, IPC_TEXT(body->size));
    put->is_only_new = body->is_only_new;
    settings->memory_mib = body->memory_mib;
    settings->cpu_millis = body->cpu_millis;
    settings->pids = body->pids;
    settings->disk_mib = body->disk_mib;
    settings->inodes = body->inodes;
    settings->budget_output_tokens = body->budget_output_tokens;
    settings->budget_requests = body->budget_requests;
    bool is_good =
        (!put->agent[0] || name_is_valid(put->agent, strlen(put->agent))) &&
        (!settings->policy[0] || name_is_valid(settings->policy, strlen(settings->policy))) &&
        (!settings->size[0] || name_is_valid(settings->size, strlen(settings->size))) &&
        settings->memory_mib >= 0 && settings->cpu_millis >= 0 && settings->pids >= 0 &&
        settings->disk_mib >= 0 && settings->inodes >= 0 && settings->budget_output_tokens >= 0 &&
        settings->budget_requests >= 0 && (body->named & ~(uint32_t)PATCH_ALL) == 0 &&
        dispatch_read_lists(body, fd, put);
    if (is_good)
        return put;
    settings_put_free(put);
    return NULL;
}

static bool dispatch_sandbox_put(struct supervisor *supervisor, struct reply reply,
                                 struct ipc_message *message)
{
    const struct msg_sandbox_put *body = IPC_BODY(message, msg_sandbox_put);
    const char *name = dispatch_name(body->name);
    cleanup_fd int fd = dispatch_take_sealed(message);
    struct op op = {.kind = OP_SET, .reply = reply, .fd = -1};
    op.put = name && fd >= 0 ? dispatch_take_put(body, fd) : NULL;
    if (!op.put)
        return false;
    table_submit(supervisor, name, &op);
    return true;
}

static bool dispatch_exec(struct supervisor *supervisor, struct reply reply,
                          struct ipc_message *message)
{
    const struct msg_exec *body = IPC_BODY(message, msg_exec);
    const char *name = dispatch_name(body->name);
    int spec = dispatch_take_sealed(message);
    const char *repository = IPC_TEXT(body->repository);
    if (!name || spec < 0 || body->user > EXEC_AS_ROOT || body->timeout_ms < 0 ||
        body->timeout_ms > LIMIT_EXEC_TIMEOUT_MS ||
        (repository[0] && !name_is_repository(repository))) {
        if (spec >= 0)
            close(spec);
        return false;
    }
    if (body->user == EXEC_AS_ROOT && supervisor->row.kind == ROW_SINGLE) {
        close(spec);
        reply_status(supervisor, reply, IPC_STATUS_CONFLICT,
                     "This sandbox has no root: paddockd runs with a single id. %s; %s",
                     supervisor->row.why, supervisor->row.cure);
        return true;
    }
    struct op op = {.kind = OP_EXEC,
                    .reply = reply,
                    .fd = spec,
                    .user = body->user,
                    .is_clone = body->is_clone,
                    .no_cwd = body->no_cwd,
                    .has_stdin = body->has_stdin,
                    .is_terminal = body->is_terminal,
                    .rows = body->rows,
                    .cols = body->cols,
                    .is_ended_apart = body->is_ended_apart || body->timeout_ms,
                    .timeout_ms = body->timeout_ms};
    IPC_SET_TEXT(op.repository, repository);
    table_submit(supervisor, name, &op);
    return true;
}

static bool dispatch_exec_end(struct supervisor *supervisor, struct reply reply,
                              struct ipc_message *message)
{
    (void)message;
    runs_end(supervisor, reply);
    return true;
}

static bool dispatch_task_start(struct supervisor *supervisor, struct reply reply,
                                struct ipc_message *message)
{
    const struct msg_task_start *body = IPC_BODY(message, msg_task_start);
    const char *name = dispatch_name(body->name);
    int prompt = dispatch_take_sealed(message);
    if (!name || prompt < 0 || body->deadline_ms < 0 || body->deadline_ms > LIMIT_EXEC_TIMEOUT_MS) {
        if (prompt >= 0)
            close(prompt);
        return false;
    }
    struct op op = {.kind = OP_TASK, .reply = reply, .fd = prompt, .timeout_ms = body->deadline_ms};
    table_submit(supervisor, name, &op);
    return true;
}

static bool dispatch_task_get(struct supervisor *supervisor, struct reply reply,
                              struct ipc_message *message)
{
    const char *name = dispatch_name(IPC_BODY(message, msg_sandbox_name)->name);
    if (name)
        tasks_get(supervisor, reply, name);
    return name;
}

static bool dispatch_task_cancel(struct supervisor *supervisor, struct reply reply,
                                 struct ipc_message *message)
{
    const char *name = dispatch_name(IPC_BODY(message, msg_sandbox_name)->name);
    struct sandbox *sandbox = name ? dispatch_find(supervisor, reply, name) : NULL;
    if (sandbox)
        tasks_cancel(sandbox, reply);
    return name;
}

static bool dispatch_task_log(struct supervisor *supervisor, struct reply reply,
                              struct ipc_message *message)
{
    const struct msg_task_log *body = IPC_BODY(message, msg_task_log);
    const char *name = dispatch_name(body->name);
    struct sandbox *sandbox = name ? dispatch_find(supervisor, reply, name) : NULL;
    if (sandbox)
        tasks_log(sandbox, reply, body);
    return name;
}

static bool dispatch_egress_log(struct supervisor *supervisor, struct reply reply,
                                struct ipc_message *message)
{
    const struct msg_egress_log *body = IPC_BODY(message, msg_egress_log);
    const char *name = dispatch_name(body->name);
    const struct sandbox *sandbox = name ? dispatch_find(supervisor, reply, name) : NULL;
    if (sandbox)
        audit_read(supervisor, reply, sandbox, body->follow);
    return name;
}

static bool dispatch_diff(struct supervisor *supervisor, struct reply reply,
                          struct ipc_message *message)
{
    const struct msg_diff *body = IPC_BODY(message, msg_diff);
    bool has_revision = IPC_TEXT(body->revision)[0];
    if (!dispatch_name(body->name) || body->against > DIFF_REVISION ||
        has_revision != (body->against == DIFF_REVISION))
        return false;
    runs_diff(supervisor, reply, body);
    return true;
}

static bool dispatch_image_list(struct supervisor *supervisor, struct reply reply,
                                struct ipc_message *message)
{
    const char *prefix = IPC_TEXT(IPC_BODY(message, msg_sandbox_name)->name);
    struct err err = {0};
    dispatch_document(supervisor, reply, document_images(supervisor, prefix, &err), &err);
    return true;
}

static bool dispatch_image_build(struct supervisor *supervisor, struct reply reply,
                                 struct ipc_message *message)
{
    const struct msg_image_name *body = IPC_BODY(message, msg_image_name);
    const char *name = dispatch_name(body->name);
    if (name)
        images_build(supervisor, reply, name, body->rebuild);
    return name;
}

static bool dispatch_image_import(struct supervisor *supervisor, struct reply reply,
                                  struct ipc_message *message)
{
    const char *name = dispatch_name(IPC_BODY(message, msg_image_name)->name);
    if (name)
        images_import(supervisor, reply, name);
    return name;
}

static bool dispatch_image_whole(struct supervisor *supervisor, struct reply reply,
                                 struct ipc_message *message)
{
    (void)message;
    images_import_whole(supervisor, reply);
    return true;
}

static bool dispatch_image_remove(struct supervisor *supervisor, struct reply reply,
                                  struct ipc_message *message)
{
    const char *name = dispatch_name(IPC_BODY(message, msg_image_name)->name);
    if (name)
        images_remove(supervisor, reply, name);
    return name;
}

static bool dispatch_disk_usage(struct supervisor *supervisor, struct reply reply,
                                struct ipc_message *message)
{
    (void)message;
    usage_measure(supervisor, reply);
    return true;
}

static bool dispatch_trash_empty(struct supervisor *supervisor, struct reply reply,
                                 struct ipc_message *message)
{
    (void)message;
    trash_reopen(supervisor); /* what could not be removed before is tried again */
    trash_empty(supervisor);
    reply_status(supervisor, reply, IPC_STATUS_OK, "%s", "");
    return true;
}

static bool dispatch_agent_list(struct supervisor *supervisor, struct reply reply,
                                struct ipc_message *message)
{
    struct err err = {0};
    (void)message;
    dispatch_document(supervisor, reply, document_agents(supervisor, &err), &err);
    return true;
}

static bool dispatch_policy_list(struct supervisor *supervisor, struct reply reply,
                                 struct ipc_message *message)
{
    struct err err = {0};
    (void)message;
    dispatch_document(supervisor, reply, document_policies(supervisor, &err), &err);
    return true;
}

static bool dispatch_policy_reload(struct supervisor *supervisor, struct reply reply,
                                   struct ipc_message *message)
{
    (void)message;
    egress_reload(supervisor, reply);
    return true;
}

static bool dispatch_token_list(struct supervisor *supervisor, struct reply reply,
                                struct ipc_message *message)
{
    struct err err = {0};
    (void)message;
    dispatch_document(supervisor, reply, document_tokens(supervisor, &err), &err);
    return true;
}

static bool dispatch_token_add(struct supervisor *supervisor, struct reply reply,
                               struct ipc_message *message)
{
    const struct msg_api_token *token = IPC_BODY(message, msg_api_token);
    bool is_valid = token_is_valid(token);
    if (is_valid)
        tokens_add(supervisor, reply, token);
    return is_valid;
}

static bool dispatch_token_remove(struct supervisor *supervisor, struct reply reply,
                                  struct ipc_message *message)
{
    tokens_remove(supervisor, reply, IPC_TEXT(IPC_BODY(message, msg_token_id)->id));
    return true;
}

bool dispatch_api(struct supervisor *supervisor, struct ipc_message *message)
{
    static bool (*const handlers[IPC_TYPE_COUNT])(struct supervisor *, struct reply,
                                                  struct ipc_message *) = {
        [IPC_HEALTH] = dispatch_health,
        [IPC_METRICS] = dispatch_metrics,
        [IPC_SANDBOX_LIST] = dispatch_sandbox_list,
        [IPC_SANDBOX_GET] = dispatch_sandbox_get,
        [IPC_SANDBOX_STOP] = dispatch_sandbox_stop,
        [IPC_SANDBOX_REMOVE] = dispatch_sandbox_remove,
        [IPC_EXEC] = dispatch_exec,
        [IPC_EXEC_END] = dispatch_exec_end,
        [IPC_TASK_START] = dispatch_task_start,
        [IPC_TASK_GET] = dispatch_task_get,
        [IPC_TASK_CANCEL] = dispatch_task_cancel,
        [IPC_TASK_LOG] = dispatch_task_log,
        [IPC_EGRESS_LOG] = dispatch_egress_log,
        [IPC_DIFF] = dispatch_diff,
        [IPC_IMAGE_LIST] = dispatch_image_list,
        [IPC_IMAGE_BUILD] = dispatch_image_build,
        [IPC_IMAGE_IMPORT] = dispatch_image_import,
        [IPC_IMAGE_WHOLE] = dispatch_image_whole,
        [IPC_IMAGE_REMOVE] = dispatch_image_remove,
        [IPC_SANDBOX_PUT] = dispatch_sandbox_put,
        [IPC_SANDBOX_PRUNE] = dispatch_sandbox_remove,
        [IPC_DISK_USAGE] = dispatch_disk_usage,
        [IPC_TRASH_EMPTY] = dispatch_trash_empty,
        [IPC_AGENT_LIST] = dispatch_agent_list,
        [IPC_POLICY_LIST] = dispatch_policy_list,
        [IPC_POLICY_RELOAD] = dispatch_policy_reload,
        [IPC_TOKEN_LIST] = dispatch_token_list,
        [IPC_TOKEN_ADD] = dispatch_token_add,
        [IPC_TOKEN_REMOVE] = dispatch_token_remove,
    };
    struct reply reply = {message->header.id, supervisor->api_generation};
    return reply.id && handlers[message->header.type] &&
           handlers[message->header.type](supervisor, reply, message);
}
