/* Descriptors that init of a sandbox finds at its start; between sandbox/child*.c and src/init. */
#pragma once

enum {
    INIT_FD_SUPERVISOR = 3,  /* SOCK_SEQPACKET to the supervisor that started it */
    INIT_FD_LISTEN = 4,      /* listening SOCK_SEQPACKET socket, for the supervisors after it */
    INIT_FD_TASK_FOLDER = 5, /* the task folder, writable through this descriptor alone */
    INIT_FD_LISTENERS = 6,   /* TCP 80, TCP 443, TCP 53, UDP 53, of the sandbox's network */
    INIT_LISTENER_COUNT = 4,
    INIT_FD_FILTER =
        INIT_FD_LISTENERS + INIT_LISTENER_COUNT, /* with INIT_NESTS: the memfd of the seccomp filter
                                                    that init gives its programs; else /dev/null */
    INIT_FD_END,
};

/* Third argument of an init that puts the task into a pid namespace of its own, since no control
 * group can be made to kill it by. Such an init has CAP_SYS_ADMIN and CAP_SYS_CHROOT in its user
 * namespace and a wider seccomp filter, and takes both from what it starts. */
#define INIT_NESTS "nests"
