/* What the tests of the HTTP server and of the API share: a client, and the descriptors counted. */
#pragma once

#include <assert.h>
#include <dirent.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

/* Lets the loop turn and reads what comes until `until` is in it or the connection is closed. At
 * most size - 1 bytes, and a NUL. Returns how many. */
static inline size_t client_receive(int fd, void (*turn)(void), const char *until, char *ret,
                                    size_t size)
{
    size_t len = 0;
    for (int turns = 0; turns < 100000; turns++) {
        turn();
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, 1) == 0)
            continue;
        ssize_t n = recv(fd, ret + len, size - 1 - len, MSG_DONTWAIT);
        if (n <= 0)
            break;
        len += (size_t)n;
        ret[len] = '\0';
        if (until && strstr(ret, until))
            break;
    }
    ret[len] = '\0';
    return len;
}

static inline int count_descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}
