/*
 * The process: messages of the supervisor (its only peer in ipc/) and the table of attached
 * sandboxes. Runs in paddock-egress, confined, one thread. Hears EGRESS_START once and first, then
 * AUDIT_FILE,
 * AUDIT_WATCH, POLICY_FILE, POLICY_LOAD, SECRET, STATUS, SANDBOX_ATTACH, SANDBOX_POLICY,
 * SANDBOX_TASK, SANDBOX_DETACH. When the supervisor is gone, so is this process: its sandboxes'
 * listeners live on in their inits.
 */
#include "egress/process.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "egress/audit.h"
#include "egress/ca.h"
#include "egress/counts.h"
#include "egress/policies.h"
#include "egress/turn.h"
#include "egress/upstream.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "util/log.h"
#include "json/json.h"

#define RENEW_CHECK_MS (60ULL * 60 * 1000)
/* A new intermediate comes with a new start of this process: wanted with so long to go, and taken
 * at a moment without connections, or without regard to them when it is urgent. */
#define RENEW_WANTED_S (7 * 24 * 60 * 60)
#define RENEW_URGENT_S (24 * 60 * 60)

struct process {
    struct egress egress; /* the first: conn.c knows only this */
    int sock;
    bool is_started;
    int result; /* of the run, once it stops */
    struct err *err;
    uv_loop_t loop;
    uv_poll_t poll;
    uv_timer_t renewal;
    struct turn_queue turns;
    struct egress_policies *policies;
    struct egress_sandbox **sandboxes;
    size_t sandbox_count;
};

const struct secret *egress_secret(void *egress, const char *name)
{
    const struct process *process = egress;
    return egress_policies_secret(process->policies, name);
}

/* ------------------------------------------------------------------------------ EGRESS_START */

/* The bytes behind a descriptor from its beginning: the supervisor's memfds share their offset with
 * whoever filled them. */
static int process_read(int fd, const char *what, struct buf *ret, struct err *err)
{
    if (fd < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return err_set(err, EPROTO, "EGRESS_START without %s", what);
    int result = fd_read_all(fd, ret);
    return result < 0 ? err_errno(err, -result, "cannot read %s", what) : 0;
}

static int process_open_ca(struct process *process, int fd, struct err *err)
{
    struct buf pem = BUF_INIT(LIMIT_CA_PEM_BYTES);
    /* all of the room at once: a buffer that grows would leave copies of the key behind */
    int result = buf_reserve(&pem, LIMIT_CA_PEM_BYTES) ? 0 : -ENOMEM;
    if (result == 0)
        result = process_read(fd, "the intermediate", &pem, err);
    if (result == 0)
        result = egress_ca_open(pem.data, pem.len, &process->egress.ca, err);
    if (pem.data)
        explicit_bzero(pem.data, pem.capacity);
    buf_free(&pem);
    return result;
}

static int process_open_policies(struct process *process, int fd, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    cleanup_json struct json *vars = NULL;
    int result = process_read(fd, "the variables", &text, err);
    if (result == 0)
        result = json_parse(buf_text(&text), text.len, JSON_STRICT, &vars, err);
    if (result == 0)
        result = egress_policies_open(process->sock, &process->egress, TAKE_PTR(vars),
                                      &process->policies, err);
    return result < 0 ? err_context(err, result, "the variables") : 0;
}

static bool process_tell_counts(void *ctx, const struct rule_counts *counts)
{
    const struct process *process = ctx;
    struct msg_rule_count body = {.counts = *counts};
    return ipc_send(process->sock, IPC_RULE_COUNT, 0, &body, NULL, 0, NULL) == 0;
}

static int process_start(struct process *process, struct ipc_message *message, struct err *err)
{
    const struct msg_egress_start *start = IPC_BODY(message, msg_egress_start);
    cleanup_fd int intermediate = ipc_take_fd(message, 0);
    cleanup_fd int audit = ipc_take_fd(message, 1);
    cleanup_fd int vars = ipc_take_fd(message, 2);
    process->egress.idle_ms = start->idle_ms > 0 ? start->idle_ms : LIMIT_EGRESS_IDLE_MS;
    int result = process_open_ca(process, intermediate, err);
    if (result == 0)
        result = egress_audit_open(TAKE_FD(audit), &process->egress.audit, err);
    if (result == 0)
        result = process_open_policies(process, vars, err);
    if (result == 0)
        result = egress_counts_open(&process->loop, process_tell_counts, process,
                                    &process->egress.counts, err);
    if (result == 0)
        result =
            egress_upstreams_open(&process->loop, &process->turns, IPC_TEXT(start->upstream_proxy),
                                  &process->egress.upstreams, err);
    process->is_started = result == 0;
    return result;
}

static bool process_audit_is_full(void *ctx)
{
    const struct process *process = ctx;
    return ipc_send(process->sock, IPC_AUDIT_FULL, 0, NULL, NULL, 0, NULL) == 0;
}

static int process_turn_audit(struct process *process, struct ipc_message *message, struct err *err)
{
    const struct msg_audit_file *body = IPC_BODY(message, msg_audit_file);
    int fd = ipc_take_fd(message, 0);
    if (fd < 0)
        return err_set(err, EPROTO, "AUDIT_FILE without a file");
    egress_audit_turn(process->egress.audit, fd, body->max_bytes, process_audit_is_full, process);
    return 0;
}

/* ------------------------------------------------------------------------------ sandboxes */

/* The sandbox's place in the table, or its end. */
static size_t process_find(const struct process *process, const char *name)
{
    size_t i = 0;
    while (i < process->sandbox_count &&
           strcmp(egress_sandbox_name(process->sandboxes[i]), name) != 0)
        i++;
    return i;
}

static void process_remove(struct process *process, size_t index)
{
    if (index == process->sandbox_count)
        return;
    struct egress_sandbox *sandbox = process->sandboxes[index];
    process->sandboxes[index] = process->sandboxes[--process->sandbox_count];
    egress_sandbox_detach(sandbox);
}

/* A second attach under one name is a new instance: the old one's connections end. That listeners
 * cannot be served (no memory, no descriptors) is the end of this process: the next one is given
 * all of them anew, and until then connections wait. */
static int process_attach(struct process *process, struct ipc_message *message, struct err *err)
{
    const struct msg_sandbox_attach *body = IPC_BODY(message, msg_sandbox_attach);
    const char *name = IPC_TEXT(body->name);
    if (message->fd_count != EGRESS_LISTENERS)
        return err_set(err, EPROTO, "SANDBOX_ATTACH with %zu descriptors", message->fd_count);
    struct egress_sandbox **grown = reallocarray(process->sandboxes, process->sandbox_count + 1,
                                                 sizeof(struct egress_sandbox *));
    if (!grown)
        return err_errno(err, ENOMEM, "cannot attach %s", name);
    process->sandboxes = grown;
    process_remove(process, process_find(process, name));
    int fds[EGRESS_LISTENERS];
    for (size_t i = 0; i < EGRESS_LISTENERS; i++)
        fds[i] = ipc_take_fd(message, i);
    struct egress_sandbox *sandbox = NULL;
    int result =
        egress_sandbox_attach(&process->egress, name, IPC_TEXT(body->boot_id), fds, &sandbox, err);
    if (result < 0)
        return result;
    egress_sandbox_set_policy(sandbox, IPC_TEXT(body->policy), IPC_TEXT(body->repository));
    process->sandboxes[process->sandbox_count++] = sandbox;
    return 0;
}

static void process_set_task(const struct process *process, const struct ipc_message *message)
{
    const struct msg_sandbox_task *body = IPC_BODY(message, msg_sandbox_task);
    size_t index = process_find(process, IPC_TEXT(body->name));
    if (index == process->sandbox_count)
        return;
    struct egress_meter *meter = egress_sandbox_meter(process->sandboxes[index]);
    meter->task = body->task;
    meter->budget_output_tokens = body->budget_output_tokens;
    meter->budget_requests = body->budget_requests;
    egress_conn_judge_all(process->sandboxes[index]);
    if (!body->is_attached)
        return;
    meter->output_tokens = body->output_tokens;
    meter->requests = body->requests;
}

static bool process_tell_usage(struct egress *egress, const char *sandbox, int64_t task,
                               const struct model_usage *usage)
{
    const struct process *process = (struct process *)egress; /* its first member */
    struct msg_usage body = {.task = task, .usage = *usage};
    IPC_SET_TEXT(body.name, sandbox);
    return ipc_send(process->sock, IPC_USAGE, 0, &body, NULL, 0, NULL) == 0;
}

static int process_set_ports(const struct process *process, struct ipc_message *message,
                             struct err *err)
{
    const struct msg_sandbox_ports *body = IPC_BODY(message, msg_sandbox_ports);
    size_t index = process_find(process, IPC_TEXT(body->name));
    int fds[MSG_PORTS];
    if (body->ports.count > MSG_PORTS || body->ports.count != message->fd_count)
        return err_set(err, EPROTO, "SANDBOX_PORTS with %zu descriptors", message->fd_count);
    if (index == process->sandbox_count)
        return 0;
    for (size_t i = 0; i < body->ports.count; i++)
        fds[i] = ipc_take_fd(message, i);
    return egress_sandbox_set_ports(process->sandboxes[index], body->ports.ports, body->ports.count,
                                    fds, err);
}

static void process_set_policy(const struct process *process, const struct ipc_message *message)
{
    const struct msg_sandbox_attach *body = IPC_BODY(message, msg_sandbox_attach);
    size_t index = process_find(process, IPC_TEXT(body->name));
    if (index == process->sandbox_count)
        return;
    egress_sandbox_set_policy(process->sandboxes[index], IPC_TEXT(body->policy),
                              IPC_TEXT(body->repository));
    egress_conn_judge_all(process->sandboxes[index]);
}

static void process_policy_changed(struct egress *egress)
{
    const struct process *process = (struct process *)egress; /* its first member */
    for (size_t i = 0; i < process->sandbox_count; i++)
        egress_conn_judge_all(process->sandboxes[i]);
}

/* A detach that came late, for an instance that was replaced, changes nothing. */
static void process_detach(struct process *process, const struct ipc_message *message)
{
    const struct msg_sandbox_attach *body = IPC_BODY(message, msg_sandbox_attach);
    size_t index = process_find(process, IPC_TEXT(body->name));
    if (index < process->sandbox_count &&
        strcmp(egress_sandbox_boot_id(process->sandboxes[index]), IPC_TEXT(body->boot_id)) == 0)
        process_remove(process, index);
}

/* ------------------------------------------------------------------------------ messages */

static int process_dispatch(struct process *process, struct ipc_message *message, struct err *err)
{
    unsigned type = message->header.type;
    if ((type == IPC_EGRESS_START) == process->is_started)
        return err_set(err, EPROTO, "%s at the wrong time", ipc_type_name(type));
    if (type == IPC_EGRESS_START)
        return process_start(process, message, err);
    if (type == IPC_POLICY_FILE)
        return egress_policies_on_file(process->policies, message, err);
    if (type == IPC_POLICY_LOAD)
        return egress_policies_on_load(process->policies, message, err);
    if (type == IPC_SECRET || type == IPC_STATUS)
        return egress_policies_on_secret(process->policies, message, err);
    if (type == IPC_AUDIT_FILE)
        return process_turn_audit(process, message, err);
    if (type == IPC_SANDBOX_ATTACH)
        return process_attach(process, message, err);
    if (type == IPC_SANDBOX_PORTS)
        return process_set_ports(process, message, err);
    if (type == IPC_AUDIT_WATCH)
        egress_audit_watch(process->egress.audit,
                           IPC_TEXT(IPC_BODY(message, msg_sandbox_name)->name),
                           ipc_take_fd(message, 0));
    else if (type == IPC_SANDBOX_POLICY)
        process_set_policy(process, message);
    else if (type == IPC_SANDBOX_TASK)
        process_set_task(process, message);
    else if (type == IPC_SANDBOX_DETACH)
        process_detach(process, message);
    return 0;
}

static void process_stop(struct process *process, int result)
{
    process->result = result;
    uv_stop(&process->loop);
}

static void process_readable(uv_poll_t *poll, int status, int events)
{
    struct process *process = poll->data;
    (void)events; /* whatever it is, receiving tells */
    for (;;) {
        cleanup_ipc_message struct ipc_message message = {0};
        int result = ipc_recv(process->sock, IPC_EGRESS, IPC_SUPERVISOR, &message, process->err);
        if (result == -EAGAIN && status >= 0)
            return;
        if (result > 0)
            result = process_dispatch(process, &message, process->err);
        else if (result == 0) {
            process_stop(process, 0);
            return;
        }
        if (result < 0) {
            process_stop(process, result);
            return;
        }
    }
}

static void process_renew(uv_timer_t *timer)
{
    struct process *process = timer->data;
    if (!process->is_started)
        return;
    int64_t left_s = egress_ca_end(process->egress.ca) - time(NULL);
    size_t conns = 0;
    for (size_t i = 0; i < process->sandbox_count; i++)
        conns += egress_sandbox_conn_count(process->sandboxes[i]);
    if (left_s > RENEW_WANTED_S || (left_s > RENEW_URGENT_S && conns))
        return;
    log_info("the intermediate certificate nears its end: a new start fetches a new one");
    process_stop(process, 0);
}

/* The loop's data is never freed: the process ends with it, and what a callback could still touch
 * stays valid until then. */
int egress_process_run(int sock, struct err *err)
{
    static struct process process;
    process.sock = sock;
    process.err = err;
    int result = uv_loop_init(&process.loop);
    if (result == 0)
        result = uv_poll_init(&process.loop, &process.poll, sock);
    if (result == 0)
        result = uv_timer_init(&process.loop, &process.renewal);
    if (result < 0)
        return err_set(err, -result, "cannot make the loop: %s", uv_strerror(result));
    process.egress.loop = &process.loop;
    process.egress.turns = &process.turns;
    process.egress.policy_changed = process_policy_changed;
    process.egress.tell_usage = process_tell_usage;
    turn_queue_open(&process.turns, &process.loop);
    process.poll.data = &process;
    process.renewal.data = &process;
    uv_timer_start(&process.renewal, process_renew, RENEW_CHECK_MS, RENEW_CHECK_MS);
    uv_poll_start(&process.poll, UV_READABLE | UV_DISCONNECT, process_readable);
    uv_run(&process.loop, UV_RUN_DEFAULT);
    for (size_t i = 0; i < process.sandbox_count; i++)
        egress_conn_close_all(process.sandboxes[i]); /* what is under way has its line, too */
    return process.result;
}
