/*
 * The connection to the supervisor. It may break at any time: then the sandbox goes on, and the
 * next supervisor connects to init.sock and says INIT_HELLO. What it must know but cannot read from
 * INIT_STATE (the ends of programs) is kept until then. No send waits.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "init/init.h"
#include "util/cleanup.h"
#include "util/fd.h"

/* An end and a start for each program, and some room for replies. */
#define QUEUE_MAX (2 * LIMIT_EXECS + 16)
#define BODY_MAX sizeof(struct msg_init_started)

struct outgoing {
    enum ipc_type type;
    uint64_t id;
    int fds[LIMIT_IPC_DESCRIPTORS];
    size_t fd_count;
    _Alignas(8) char body[BODY_MAX];
};

static struct {
    int sock; /* -1: nobody is there */
    bool is_greeted;
    size_t first;
    size_t count;
    struct outgoing queue[QUEUE_MAX];
} link_ = {.sock = -1};

static struct outgoing *queue_at(size_t i)
{
    return &link_.queue[(link_.first + i) % QUEUE_MAX];
}

static void drop_first(void)
{
    struct outgoing *out = queue_at(0);
    for (size_t i = 0; i < out->fd_count; i++)
        close(out->fds[i]);
    link_.first = (link_.first + 1) % QUEUE_MAX;
    link_.count--;
}

/* Ends of programs outlive a connection; replies do not: their question came from a process that
 * is gone. */
static bool is_lasting(enum ipc_type type)
{
    return type == IPC_INIT_EXEC_ENDED;
}

static bool enqueue(enum ipc_type type, uint64_t id, const void *body, const int *fds,
                    size_t fd_count)
{
    size_t size = ipc_type_size(type);
    if (link_.count == QUEUE_MAX || size > BODY_MAX || fd_count > LIMIT_IPC_DESCRIPTORS)
        return false;
    struct outgoing *out = queue_at(link_.count);
    *out = (struct outgoing){.type = type, .id = id};
    memcpy(out->body, body, size);
    for (size_t i = 0; i < fd_count; i++) {
        int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
            break; /* the receiver sees that one is missing */
        out->fds[out->fd_count++] = fd;
    }
    link_.count++;
    return true;
}

static void link_close(void)
{
    if (link_.sock < 0)
        return;
    loop_unwatch(link_.sock);
    close(TAKE_FD(link_.sock));
    link_.is_greeted = false;
    for (size_t i = link_.count; i > 0; i--) {
        struct outgoing *out = queue_at(0);
        if (is_lasting(out->type))
            enqueue(out->type, out->id, out->body, NULL, 0);
        drop_first();
    }
}

void link_open(int sock, bool greeted)
{
    link_close();
    if (loop_watch(sock, SOURCE_LINK, EPOLLIN, NULL) < 0) {
        close(sock);
        return;
    }
    link_.sock = sock;
    link_.is_greeted = greeted;
}

void link_accept(void)
{
    int sock = accept4(INIT_FD_LISTEN, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (sock >= 0)
        link_open(sock, false);
}

void link_flush(void)
{
    while (link_.sock >= 0 && link_.is_greeted && link_.count) {
        struct outgoing *out = queue_at(0);
        int result =
            ipc_send(link_.sock, out->type, out->id, out->body, out->fds, out->fd_count, NULL);
        if (result == -EAGAIN) {
            loop_rewatch(link_.sock, SOURCE_LINK, EPOLLIN | EPOLLOUT);
            return;
        }
        if (result < 0) {
            link_close();
            return;
        }
        drop_first();
    }
    if (link_.sock >= 0)
        loop_rewatch(link_.sock, SOURCE_LINK, EPOLLIN);
}

void link_send(enum ipc_type type, uint64_t id, const void *body, const int *fds, size_t fd_count)
{
    bool is_ready = link_.sock >= 0 && link_.is_greeted;
    if (!is_ready && !is_lasting(type))
        return;
    if (!enqueue(type, id, body, fds, fd_count))
        link_close(); /* a supervisor that reads nothing; its successor asks for the state */
    else if (is_ready)
        link_flush();
}

void link_send_status(uint64_t id, int code, const char *text)
{
    struct msg_status status = {.code = code};
    IPC_SET_TEXT(status.text, text);
    link_send(IPC_STATUS, id, &status, NULL, 0);
}

/* Ends of programs that no supervisor has been told. */
static uint32_t count_untold(void)
{
    uint32_t count = 0;
    for (size_t i = 0; i < link_.count; i++)
        count += is_lasting(queue_at(i)->type);
    return count;
}

void link_greet(uint64_t id)
{
    /* A program whose end is told right after this still counts: else its end would be taken for
     * that of another one. */
    struct msg_init_state state = {.execs = exec_count() + count_untold()};
    IPC_SET_TEXT(state.boot_id, loop_boot_id());
    task_fill_state(&state);
    int fds[INIT_LISTENER_COUNT];
    for (int i = 0; i < INIT_LISTENER_COUNT; i++)
        fds[i] = INIT_FD_LISTENERS + i;
    int result = ipc_send(link_.sock, IPC_INIT_STATE, id, &state, fds, INIT_LISTENER_COUNT, NULL);
    if (result == -EAGAIN) /* behind answers to this same supervisor: it asked twice */
        enqueue(IPC_INIT_STATE, id, &state, fds, INIT_LISTENER_COUNT);
    else if (result < 0) {
        link_close();
        return;
    }
    link_.is_greeted = true;
    link_flush();
}

static void handle(struct ipc_message *message)
{
    switch ((enum ipc_type)message->header.type) {
    case IPC_INIT_HELLO:
        link_greet(message->header.id);
        break;
    case IPC_INIT_TASK:
        task_start(message);
        break;
    case IPC_INIT_TASK_CANCEL:
        task_cancel(message);
        break;
    case IPC_INIT_TASK_WATCH:
        task_watch(message);
        break;
    case IPC_INIT_EXEC:
        exec_start(message);
        break;
    case IPC_INIT_EXEC_END:
        exec_end(message);
        break;
    case IPC_INIT_LISTEN:
        ports_listen(message);
        break;
    case IPC_INIT_STOP:
        loop_stop(IPC_BODY(message, msg_init_grace)->grace_ms);
        break;
    default: /* ipc_recv lets through what a supervisor may send to init: these, and STATUS */
        break;
    }
}

void link_receive(void)
{
    while (link_.sock >= 0) {
        static struct ipc_message message;
        int result = ipc_recv(link_.sock, IPC_INIT, IPC_SUPERVISOR, &message, NULL);
        if (result == -EAGAIN)
            return;
        if (result <= 0) {
            link_close();
            return;
        }
        handle(&message);
        ipc_message_close(&message);
    }
}
