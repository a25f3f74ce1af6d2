/* Listeners beside those that are there from the start: of the ports that the policies name. The
 * supervisor tells them, and tells them again as they change; each is kept here, as the others are,
 * so that connections wait in its backlog while egress or the supervisor is away. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "init/init.h"
#include "util/cleanup.h"
#include "util/listen.h"

static struct {
    uint32_t count;
    uint16_t ports[MSG_PORTS];
    int fds[MSG_PORTS];
} open_;

static bool is_among(const struct msg_ports *list, uint16_t port)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->ports[i] == port)
            return true;
    return false;
}

static bool is_open(uint16_t port)
{
    for (uint32_t i = 0; i < open_.count; i++)
        if (open_.ports[i] == port)
            return true;
    return false;
}

static void close_unwanted(const struct msg_ports *wanted)
{
    for (uint32_t i = 0; i < open_.count;) {
        if (is_among(wanted, open_.ports[i])) {
            i++;
            continue;
        }
        close(open_.fds[i]);
        open_.count--;
        open_.ports[i] = open_.ports[open_.count];
        open_.fds[i] = open_.fds[open_.count];
    }
}

/* As the listeners that are there from the start. */
static bool has_ipv6(void)
{
    int domain = AF_INET;
    socklen_t len = sizeof(domain);
    getsockopt(INIT_FD_LISTENERS, SOL_SOCKET, SO_DOMAIN, &domain, &len);
    return domain == AF_INET6;
}

void ports_listen(const struct ipc_message *message)
{
    struct msg_ports wanted = *IPC_BODY(message, msg_ports);
    if (wanted.count > MSG_PORTS)
        wanted.count = MSG_PORTS;
    close_unwanted(&wanted);
    for (uint32_t i = 0; i < wanted.count && open_.count < MSG_PORTS; i++) {
        if (is_open(wanted.ports[i]))
            continue;
        int fd = listen_everywhere(has_ipv6(), SOCK_STREAM, wanted.ports[i], NULL);
        if (fd < 0)
            continue; /* a program of the sandbox has it: it is not in the answer */
        open_.ports[open_.count] = wanted.ports[i];
        open_.fds[open_.count++] = fd;
    }
    struct msg_ports answer = {.count = open_.count};
    memcpy(answer.ports, open_.ports, sizeof(answer.ports));
    link_send(IPC_INIT_LISTENING, message->header.id, &answer, open_.fds, open_.count);
}
