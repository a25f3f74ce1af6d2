/* An attached sandbox: its listeners, its DNS and its connections. Runs in paddock-egress. What one
 * sandbox does is bounded here, so that it cannot take what the others need. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "egress/dns.h"
#include "egress/listener.h"
#include "egress/process.h"
#include "egress/upstream.h"
#include "ipc/ipc.h"
#include "util/cleanup.h"
#include "util/limits.h"

enum { LISTENER_HTTP, LISTENER_HTTPS, LISTENER_DNS_TCP, LISTENER_DNS_UDP };

/* A listener for requests. */
struct sandbox_port {
    struct egress_sandbox *sandbox;
    struct egress_listener *listener;
    uint16_t port;
};
#define OWN_PORTS 2 /* 80 and 443, which each sandbox has */

struct egress_sandbox {
    size_t references;
    struct egress *egress;
    char name[MSG_NAME];
    char boot_id[MSG_BOOT_ID];
    char policy[MSG_NAME]; /* "": the main one */
    char repository[LIMIT_REPOSITORY_BYTES + 1];
    struct egress_meter meter;
    struct sandbox_port ports[OWN_PORTS + MSG_PORTS];
    size_t port_count;
    struct egress_dns *dns;
    bool is_detached;
    size_t buffer_bytes;
    size_t stream_count;
    size_t conn_count;
    struct egress_conn *conns[LIMIT_EGRESS_CONNECTIONS];
};

struct egress_sandbox *egress_sandbox_ref(struct egress_sandbox *sandbox)
{
    sandbox->references++;
    return sandbox;
}

void egress_sandbox_unref(struct egress_sandbox *sandbox)
{
    if (--sandbox->references > 0)
        return;
    assert(sandbox->is_detached && !sandbox->conn_count);
    egress_upstreams_leave(sandbox->egress->upstreams, sandbox->meter.id);
    free(sandbox);
}

const char *egress_sandbox_name(const struct egress_sandbox *sandbox)
{
    return sandbox->name;
}

const char *egress_sandbox_boot_id(const struct egress_sandbox *sandbox)
{
    return sandbox->boot_id;
}

struct egress_meter *egress_sandbox_meter(struct egress_sandbox *sandbox)
{
    return &sandbox->meter;
}

void egress_sandbox_set_policy(struct egress_sandbox *sandbox, const char *name,
                               const char *repository)
{
    IPC_SET_TEXT(sandbox->policy, name);
    IPC_SET_TEXT(sandbox->repository, repository);
}

const char *egress_sandbox_repository(const struct egress_sandbox *sandbox)
{
    return sandbox->repository;
}

static const struct egress_named_policy *sandbox_named(const struct egress_sandbox *sandbox)
{
    const struct egress *egress = sandbox->egress;
    for (size_t i = 0; i < egress->named_count; i++)
        if (strcmp(egress->named[i].name, sandbox->policy) == 0)
            return &egress->named[i];
    return NULL;
}

/* A policy that is not there (any more) is no reason to fall back on another. */
struct policy *egress_policy_of(const struct egress_sandbox *sandbox)
{
    if (!sandbox->policy[0])
        return sandbox->egress->policy;
    const struct egress_named_policy *named = sandbox_named(sandbox);
    return named ? named->policy : NULL;
}

void egress_policy_lack(const struct egress_sandbox *sandbox, char *ret, size_t size)
{
    const struct egress *egress = sandbox->egress;
    const struct egress_named_policy *named = sandbox_named(sandbox);
    const char *reason = named ? named->reason : egress->policy_refusal;
    if (egress->policy && !named)
        snprintf(ret, size,
                 "the policy %s is not there, so that nothing may leave this sandbox, which is "
                 "under it",
                 sandbox->policy);
    else
        snprintf(ret, size, "no policy is in force, so that nothing may leave this sandbox%s%s",
                 *reason ? ": " : "", reason);
}

void egress_sandbox_count_bytes(struct egress_sandbox *sandbox, size_t before, size_t now)
{
    assert(sandbox->buffer_bytes >= before);
    sandbox->buffer_bytes += now - before;
}

bool egress_sandbox_is_full(const struct egress_sandbox *sandbox)
{
    return sandbox->buffer_bytes >= LIMIT_EGRESS_SANDBOX_BYTES;
}

bool egress_sandbox_add_stream(struct egress_sandbox *sandbox)
{
    if (sandbox->stream_count == LIMIT_EGRESS_STREAMS)
        return false;
    sandbox->stream_count++;
    return true;
}

void egress_sandbox_remove_stream(struct egress_sandbox *sandbox)
{
    assert(sandbox->stream_count > 0);
    sandbox->stream_count--;
}

size_t egress_sandbox_conn_count(const struct egress_sandbox *sandbox)
{
    return sandbox->conn_count;
}

void egress_sandbox_add_conn(struct egress_sandbox *sandbox, struct egress_conn *conn)
{
    assert(sandbox->conn_count < LIMIT_EGRESS_CONNECTIONS);
    sandbox->conns[sandbox->conn_count++] = conn;
    if (sandbox->conn_count < LIMIT_EGRESS_CONNECTIONS)
        return;
    for (size_t i = 0; i < sandbox->port_count; i++)
        egress_listener_pause(sandbox->ports[i].listener);
}

void egress_sandbox_remove_conn(struct egress_sandbox *sandbox, struct egress_conn *conn)
{
    for (size_t i = 0; i < sandbox->conn_count; i++) {
        if (sandbox->conns[i] != conn)
            continue;
        sandbox->conns[i] = sandbox->conns[--sandbox->conn_count];
        break;
    }
    if (sandbox->is_detached || sandbox->conn_count != LIMIT_EGRESS_CONNECTIONS - 1)
        return;
    for (size_t i = 0; i < sandbox->port_count; i++)
        egress_listener_resume(sandbox->ports[i].listener);
}

/* Backwards: what a removal moves down is one that was called already. */
void egress_sandbox_each_conn(struct egress_sandbox *sandbox, void (*found)(struct egress_conn *))
{
    for (size_t i = sandbox->conn_count; i-- > 0;)
        if (i < sandbox->conn_count)
            found(sandbox->conns[i]);
}

/* What the sandbox's policy takes a port for. False: for nothing. */
static bool port_kind(const struct sandbox_port *port, bool *ret_is_tls)
{
    struct policy_port ports[POLICY_PORTS_MAX];
    const struct policy *policy = egress_policy_of(port->sandbox);
    *ret_is_tls = port->port == POLICY_PORT_HTTPS;
    if (*ret_is_tls || port->port == POLICY_PORT_HTTP)
        return true;
    size_t count = policy ? policy_ports(policy, ports) : 0;
    for (size_t i = 0; i < count; i++) {
        *ret_is_tls = ports[i].is_tls;
        if (ports[i].port == port->port)
            return true;
    }
    return false;
}

static void sandbox_accepted(void *ctx, int fd)
{
    const struct sandbox_port *port = ctx;
    bool is_tls;
    if (port_kind(port, &is_tls)) {
        egress_conn_start(port->sandbox->egress, port->sandbox, fd, port->port, is_tls);
        return;
    }
    struct linger reset = {.l_onoff = 1, .l_linger = 0}; /* as where nobody listens */
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(fd);
}

static int sandbox_listen_on(struct egress_sandbox *sandbox, uint16_t number, int fd,
                             struct err *err)
{
    struct sandbox_port *port = &sandbox->ports[sandbox->port_count];
    *port = (struct sandbox_port){.sandbox = sandbox, .port = number};
    int result = egress_listener_start(sandbox->egress->loop, fd, sandbox_accepted, port,
                                       &port->listener, err);
    if (result < 0)
        return result;
    sandbox->port_count++;
    if (sandbox->conn_count >= LIMIT_EGRESS_CONNECTIONS)
        egress_listener_pause(port->listener);
    return 0;
}

int egress_sandbox_set_ports(struct egress_sandbox *sandbox, const uint16_t *ports, size_t count,
                             const int *listeners, struct err *err)
{
    int result = 0;
    while (sandbox->port_count > OWN_PORTS)
        egress_listener_close(sandbox->ports[--sandbox->port_count].listener);
    for (size_t i = 0; i < count; i++) {
        cleanup_fd int fd = listeners[i];
        if (result == 0 && sandbox->port_count < ARRAY_LEN(sandbox->ports))
            result = sandbox_listen_on(sandbox, ports[i], TAKE_FD(fd), err);
    }
    return result;
}

static int sandbox_listen(struct egress_sandbox *sandbox, int fds[EGRESS_LISTENERS],
                          struct err *err)
{
    uv_loop_t *loop = sandbox->egress->loop;
    int result = sandbox_listen_on(sandbox, POLICY_PORT_HTTP, TAKE_FD(fds[LISTENER_HTTP]), err);
    if (result == 0)
        result = sandbox_listen_on(sandbox, POLICY_PORT_HTTPS, TAKE_FD(fds[LISTENER_HTTPS]), err);
    if (result < 0)
        return result;
    return egress_dns_start(loop, TAKE_FD(fds[LISTENER_DNS_UDP]), TAKE_FD(fds[LISTENER_DNS_TCP]),
                            &sandbox->dns, err);
}

int egress_sandbox_attach(struct egress *egress, const char *name, const char *boot_id,
                          const int listeners[EGRESS_LISTENERS], struct egress_sandbox **ret,
                          struct err *err)
{
    int fds[EGRESS_LISTENERS];
    static uint64_t last_id;
    memcpy(fds, listeners, sizeof(fds));
    struct egress_sandbox *sandbox = calloc(1, sizeof(*sandbox));
    int result = sandbox ? 0 : err_errno(err, ENOMEM, "no memory for a sandbox");
    if (sandbox) {
        sandbox->references = 1;
        sandbox->meter.id = ++last_id;
        sandbox->egress = egress;
        IPC_SET_TEXT(sandbox->name, name);
        IPC_SET_TEXT(sandbox->boot_id, boot_id);
        result = sandbox_listen(sandbox, fds, err);
    }
    for (size_t i = 0; i < EGRESS_LISTENERS; i++)
        cleanup_fd_at(&fds[i]);
    if (result < 0) {
        if (sandbox)
            egress_sandbox_detach(sandbox);
        return err_context(err, result, "cannot attach %s", name);
    }
    *ret = sandbox;
    return 0;
}

void egress_sandbox_detach(struct egress_sandbox *sandbox)
{
    sandbox->is_detached = true;
    for (size_t i = 0; i < sandbox->port_count; i++)
        egress_listener_close(sandbox->ports[i].listener);
    egress_dns_close(sandbox->dns);
    egress_conn_close_all(sandbox);
    egress_sandbox_unref(sandbox);
}
