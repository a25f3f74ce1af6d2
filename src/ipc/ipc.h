/*
 * Messages over SOCK_SEQPACKET Unix sockets (unix(7)): framing, descriptors, checks. The table is
 * messages.def. A message is one packet: header, then the body of fixed size; descriptors travel
 * as SCM_RIGHTS and arrive CLOEXEC. Nothing here allocates. Used by every daemon and by init.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/messages.h"
#include "util/err.h"

struct ipc_header {
    uint16_t version; /* IPC_VERSION of the sender */
    uint16_t type;    /* enum ipc_type */
    uint32_t size;    /* bytes of the body */
    uint64_t id;      /* of the request; 0 where nothing is asked or answered */
};

/* A received message. The descriptors are the receiver's: take those that are wanted with
 * ipc_take_fd and call ipc_message_close at the end. */
struct ipc_message {
    struct ipc_header header;
    union {
        uint64_t align;
        char body[LIMIT_IPC_MESSAGE_BYTES];
    };
    int fds[LIMIT_IPC_DESCRIPTORS];
    size_t fd_count;
};

/* A pair of connected sockets, CLOEXEC, both non-blocking. */
int ipc_pair(int ret[2], struct err *err);

/* Sends one message; body points to the struct of its type (NULL: all zeroes). The descriptors stay
 * the caller's. Errors: -EAGAIN when the peer does not read (its queue is full), -EPIPE when it is
 * gone. Never blocks, never raises SIGPIPE. */
int ipc_send(int sock, enum ipc_type type, uint64_t id, const void *body, const int *fds,
             size_t fd_count, struct err *err);

/* STATUS with a printed text. */
int ipc_send_status(int sock, uint64_t id, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Receives one message that `self` may hear from `peer`. 1: a message is in *ret; 0: the peer is
 * gone (end of file); -EAGAIN: none there; -EPROTO: the peer broke the protocol, end it. */
int ipc_recv(int sock, enum ipc_peer self, enum ipc_peer peer, struct ipc_message *ret,
             struct err *err);

/* The body, whose size was checked against the type: IPC_BODY(&message, msg_status)->code. */
#define IPC_BODY(message, type) ((const struct type *)(const void *)(message)->body)

/* Text of a body as a C string: the array's text when it is terminated, else "". */
const char *ipc_text(const char *array, size_t size);
#define IPC_TEXT(array) ipc_text((array), sizeof(array))

/* Copies text into an array of a body, cut at its size, the rest zeroed. */
void ipc_set_text(char *array, size_t size, const char *text);
#define IPC_SET_TEXT(array, text) ipc_set_text((array), sizeof(array), (text))

/* The descriptor at `index`, now the caller's; -1 when there is none. */
int ipc_take_fd(struct ipc_message *message, size_t index);
void ipc_message_close(struct ipc_message *message);
#define cleanup_ipc_message __attribute__((cleanup(ipc_message_close)))

const char *ipc_type_name(enum ipc_type type);
size_t ipc_type_size(enum ipc_type type);
