/*
 * Messages of an instance's init. init is ours but runs among programs of an agent: its messages
 * are taken as they are typed, checked against what this sandbox expects, and one that makes no
 * sense ends the instance.
 */
#include <stdio.h>
#include <string.h>

#include "supervisor/table.h"
#include "util/log.h"

static void init_take_listeners(struct sandbox *sandbox, struct ipc_message *message)
{
    if (sandbox->has_listeners || message->fd_count != SANDBOX_LISTENERS)
        return;
    for (size_t i = 0; i < SANDBOX_LISTENERS; i++)
        sandbox->listeners[i] = ipc_take_fd(message, i);
    sandbox->has_listeners = true;
}

/* Unasked when the instance is ready, else the answer to INIT_HELLO. */
static void init_on_state(struct sandbox *sandbox, struct ipc_message *message)
{
    const struct msg_init_state *body = IPC_BODY(message, msg_init_state);
    if (strcmp(IPC_TEXT(body->boot_id), sandbox->meta.lease.boot_id) != 0) {
        instance_fail(sandbox, "its boot id is not the one on record");
        return;
    }
    init_take_listeners(sandbox, message);
    if (!sandbox->has_listeners) {
        instance_fail(sandbox, "it sent no listeners");
        return;
    }
    sandbox->init_version = message->header.version;
    bool was_starting = sandbox->state == SANDBOX_STARTING;
    /* a former supervisor may have opened ports */
    sandbox->asked_ports = sandbox->asked_ports || (was_starting && sandbox->is_adopted);
    ports_ask(sandbox); /* before any program is started */
    if (was_starting && sandbox->is_adopted)
        sandbox->foreign_runs = body->execs;
    if (was_starting)
        hits_begin(sandbox);
    tasks_learn(sandbox, (enum task_state)body->task, &body->end);
    if (was_starting && sandbox->foreign_runs == 0)
        runs_resume_clone(sandbox);
    if (was_starting) {
        sandbox->supervisor->counters.ready += !sandbox->is_adopted;
        instance_ready(sandbox);
    }
}

static void init_on_status(struct sandbox *sandbox, const struct msg_status *body)
{
    if (body->code != 0)
        log_warn("sandbox=%s init says: %s", sandbox->meta.name, IPC_TEXT(body->text));
}

static void init_on_failed(struct sandbox *sandbox, const struct msg_status *body)
{
    snprintf(sandbox->failure, sizeof(sandbox->failure), "The sandbox cannot be started: %s",
             IPC_TEXT(body->text));
    instance_fail(sandbox, sandbox->failure);
}

static void init_on_message(void *ctx, struct ipc_message *message)
{
    struct sandbox *sandbox = ctx;
    sandbox->is_silent = false;
    switch (message->header.type) {
    case IPC_INIT_STATE:
        init_on_state(sandbox, message);
        return;
    case IPC_INIT_FAILED:
        init_on_failed(sandbox, IPC_BODY(message, msg_status));
        return;
    case IPC_INIT_STARTED:
        if (!runs_started(sandbox, message) && !tasks_started(sandbox, message))
            break;
        return;
    case IPC_INIT_TASK_ENDED:
        tasks_ended(sandbox, &IPC_BODY(message, msg_init_ended)->end);
        return;
    case IPC_INIT_EXEC_ENDED:
        runs_ended(sandbox, IPC_BODY(message, msg_init_ended));
        return;
    case IPC_INIT_LISTENING:
        ports_take(sandbox, message);
        return;
    case IPC_STATUS:
        init_on_status(sandbox, IPC_BODY(message, msg_status));
        return;
    default:
        break;
    }
    instance_fail(sandbox, "its init sent a message that makes no sense");
}

/* At its end init closes the socket, and the end of its process follows. Without one that listens
 * an instance is good for nothing. */
static void init_on_broken(void *ctx, const char *why)
{
    struct sandbox *sandbox = ctx;
    if (sandbox->state != SANDBOX_STOPPING)
        instance_fail(sandbox, why);
}

void init_open(struct sandbox *sandbox)
{
    struct channel_owner owner = {sandbox, init_on_message, init_on_broken};
    int sock = sandbox->instance.socket;
    sandbox->instance.socket = -1; /* the channel closes it */
    sandbox->init = channel_open(&sandbox->supervisor->loop, sock, IPC_INIT, &owner);
}
