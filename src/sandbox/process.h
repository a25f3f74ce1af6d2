/* Small things about one child process: its maps, its end, its start time. Supervisor only. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/err.h"

/* A line of uid_map or gid_map (user_namespaces(7)). */
struct id_map {
    uint32_t inside, outside, count;
};

/* Writes the map `name` ("uid_map", "gid_map") of the process's new user namespace. */
int process_write_map(pid_t pid, const char *name, const struct id_map *lines, size_t count,
                      struct err *err);

/* Maps ids 0..65535 of the process's new user namespace to base... */
int process_write_maps(pid_t pid, uint32_t base, struct err *err);

/* Field 22 of /proc/PID/stat: with the pid it names one process for ever. -ESRCH: there is none. */
int process_start_time(pid_t pid, uint64_t *ret, struct err *err);

/* Kills and reaps a child that was never told to anyone, and closes its pidfd. */
void process_end(int pidfd);
