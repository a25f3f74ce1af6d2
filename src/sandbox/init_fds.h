/* Descriptors that init of a sandbox finds at its start; between sandbox/child*.c and src/init. */
#pragma once

enum {
    INIT_FD_SUPERVISOR = 3,  /* SOCK_SEQPACKET to the supervisor that started it */
    INIT_FD_LISTEN = 4,      /* listening SOCK_SEQPACKET socket, for the supervisors after it */
    INIT_FD_TASK_FOLDER = 5, /* the task folder, writable through this descriptor alone */
    INIT_FD_LISTENERS = 6,   /* TCP 80, TCP 443, TCP 53, UDP 53, of the sandbox's network */
    INIT_LISTENER_COUNT = 4,
    INIT_FD_END = INIT_FD_LISTENERS + INIT_LISTENER_COUNT,
};
