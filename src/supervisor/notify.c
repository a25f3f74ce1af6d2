/* Messages to the service manager; see notify.h. */
#include "supervisor/notify.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "supervisor/secrets.h"
#include "util/cleanup.h"
#include "util/log.h"

void notify_manager(const char *state)
{
    const char *name = secrets_variable("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = name ? strlen(name) : 0;
    if (len < 2 || len >= sizeof(address.sun_path) || (name[0] != '/' && name[0] != '@'))
        return;
    memcpy(address.sun_path, name, len);
    if (name[0] == '@')
        address.sun_path[0] = '\0'; /* of the abstract namespace: unix(7) */
    cleanup_fd int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    if (fd < 0 ||
        sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, size) < 0)
        log_warn("the service manager cannot be told: %s", strerror(errno));
}

void notify_reloading(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    char state[96];
    snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%" PRId64,
             (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    notify_manager(state);
}
