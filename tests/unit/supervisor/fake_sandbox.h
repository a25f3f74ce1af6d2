/* Stands in for src/sandbox: an instance is a socket that the test answers on as init would, and a
 * process that only waits to be killed; a jail is a process that ends well at once. */
#pragma once

#include "sandbox/instance.h"

struct fake_instance {
    char name[64];
    char boot_id[40];
    int socket; /* init's end; -1: not running */
    pid_t pid;
};

extern struct fake_instance fake_instances[8];
extern int fake_starts; /* since the test began */
extern int fake_jails;
extern int fake_busy_cleanups; /* so many clean-ups fail with EBUSY */

struct sandbox_host *fake_host(void);
struct fake_instance *fake_find(const char *name); /* the one that runs, or NULL */
void fake_end(struct fake_instance *instance);     /* init exits */
