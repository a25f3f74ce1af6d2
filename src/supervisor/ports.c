/*
 * Ports that the policies open beside 80 and 443: egress tells them with each load, every init
 * makes a listener for each in its sandbox's network, and egress gets them. A sandbox has them when
 * its first program starts, if the policies are known by then, else as soon as they are.
 */
#include <string.h>
#include <unistd.h>

#include "supervisor/supervisor.h"
#include "supervisor/table.h"
#include "util/cleanup.h"
#include "util/log.h"

/* The first version of messages in which init knows INIT_LISTEN. */
#define LISTEN_VERSION 8

void ports_ask(struct sandbox *sandbox)
{
    const struct msg_ports *wanted = &sandbox->supervisor->ports;
    if (!sandbox->supervisor->has_ports || !sandbox->init || !sandbox->has_listeners ||
        (wanted->count == 0 && !sandbox->asked_ports))
        return;
    if (sandbox->init_version < LISTEN_VERSION) {
        if (wanted->count)
            log_warn(
                "sandbox=%s was started by an older version: the other ports of the policies are "
                "open in it from its next start on",
                sandbox->meta.name);
        return;
    }
    sandbox->asked_ports = true;
    channel_send(sandbox->init, IPC_INIT_LISTEN, 0, wanted, NULL, 0);
}

void ports_close(struct sandbox *sandbox)
{
    for (uint32_t i = 0; i < sandbox->ports.count; i++)
        close(sandbox->port_fds[i]);
    sandbox->ports.count = 0;
    sandbox->asked_ports = false;
}

static void tell_missing(const struct sandbox *sandbox)
{
    const struct msg_ports *wanted = &sandbox->supervisor->ports;
    for (uint32_t i = 0; i < wanted->count; i++) {
        bool is_there = false;
        for (uint32_t j = 0; j < sandbox->ports.count; j++)
            is_there = is_there || sandbox->ports.ports[j] == wanted->ports[i];
        if (!is_there)
            log_warn("sandbox=%s port %u of the policies is taken by a program in it",
                     sandbox->meta.name, wanted->ports[i]);
    }
}

void ports_take(struct sandbox *sandbox, struct ipc_message *message)
{
    const struct msg_ports *body = IPC_BODY(message, msg_ports);
    if (body->count > MSG_PORTS || body->count != message->fd_count) {
        instance_fail(sandbox, "its init sent other listeners than it says");
        return;
    }
    uint32_t count = body->count;
    ports_close(sandbox);
    sandbox->asked_ports = true;
    sandbox->ports = *body;
    for (uint32_t i = 0; i < count; i++)
        sandbox->port_fds[i] = ipc_take_fd(message, i);
    tell_missing(sandbox);
    egress_set_ports(sandbox->supervisor, sandbox);
}

void ports_learn(struct supervisor *supervisor, const struct msg_ports *ports)
{
    supervisor->ports = *ports;
    supervisor->has_ports = true;
    if (supervisor->ports.count > MSG_PORTS)
        supervisor->ports.count = MSG_PORTS;
    for (struct sandbox *sandbox = supervisor->sandboxes; sandbox; sandbox = sandbox->next)
        ports_ask(sandbox);
}
