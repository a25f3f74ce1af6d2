/* See fake.h. */
#include "fake.h"

#include "../client.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "api/api.h"
#include "util/cleanup.h"
#include "util/fd.h"

struct ipc_message fake_message;
static uv_loop_t loop;
static struct api *api;
static int supervisor = -1;
static bool is_lost;
static int descriptors;
static struct sockaddr_un address;
static socklen_t address_len;

static void on_lost(void *ctx, const char *reason)
{
    (void)ctx;
    assert(reason[0]);
    is_lost = true;
}

void fake_start(bool is_tcp)
{
    static int number;
    int pair[2];
    /* libuv keeps two descriptors for good after the first loop. */
    assert(uv_loop_init(&loop) == 0 && uv_loop_close(&loop) == 0);
    descriptors = count_descriptors();
    is_lost = false;
    assert(uv_loop_init(&loop) == 0 && ipc_pair(pair, NULL) == 0);
    supervisor = pair[0];
    assert(api_open(&loop, pair[1], 20, on_lost, NULL, &api, NULL) == 0);
    address.sun_family = AF_UNIX; /* an abstract name; its listener is told to be TCP's or not */
    int len = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "paddock-api-%d-%d",
                       getpid(), number++);
    address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
    cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert(fd >= 0 && bind(fd, (struct sockaddr *)&address, address_len) == 0);
    assert(listen(fd, 16) == 0);
    struct msg_api_listen body = {.is_tcp = is_tcp};
    fake_send_unasked(IPC_API_LISTEN, &body, &fd, 1);
    for (int i = 0; i < 10; i++)
        fake_turn();
}

void fake_stop(void)
{
    ipc_message_close(&fake_message);
    if (supervisor >= 0)
        close(supervisor);
    supervisor = -1;
    api_close(api);
    while (uv_run(&loop, UV_RUN_ONCE))
        ;
    assert(uv_loop_close(&loop) == 0);
    assert(count_descriptors() == descriptors);
}

void fake_turn(void)
{
    uv_run(&loop, UV_RUN_NOWAIT);
}

static int fake_receive(int turns)
{
    ipc_message_close(&fake_message);
    for (int i = 0; i < turns; i++) {
        fake_turn();
        struct pollfd ready = {.fd = supervisor, .events = POLLIN};
        if (poll(&ready, 1, 1) == 1)
            return ipc_recv(supervisor, IPC_SUPERVISOR, IPC_API, &fake_message, NULL);
    }
    return -EAGAIN;
}

void fake_expect(enum ipc_type type)
{
    assert(fake_receive(5000) == 1);
    if (fake_message.header.type != type)
        fprintf(stderr, "%s came\n", ipc_type_name((enum ipc_type)fake_message.header.type));
    assert(fake_message.header.type == type && fake_message.header.id != 0);
}

void fake_expect_nothing(void)
{
    assert(fake_receive(20) == -EAGAIN);
}

void fake_send(enum ipc_type type, const void *body, const int *fds, size_t count)
{
    assert(ipc_send(supervisor, type, fake_message.header.id, body, fds, count, NULL) == 0);
}

void fake_send_unasked(enum ipc_type type, const void *body, const int *fds, size_t count)
{
    assert(ipc_send(supervisor, type, 0, body, fds, count, NULL) == 0);
}

void fake_status(enum ipc_status code, const char *text)
{
    assert(ipc_send_status(supervisor, fake_message.header.id, (int)code, "%s", text) == 0);
}

void fake_started(int ret_write_fds[2])
{
    int read_fds[2];
    for (int i = 0; i < 2; i++) {
        int ends[2];
        assert(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
        read_fds[i] = ends[0];
        ret_write_fds[i] = ends[1];
    }
    fake_send(IPC_RUN_STARTED, NULL, read_fds, 2);
    close(read_fds[0]);
    close(read_fds[1]);
}

void fake_ended(int kind, int code, const char *text)
{
    struct msg_run_ended body = {.end = {.kind = kind, .code = code}};
    IPC_SET_TEXT(body.text, text);
    fake_send(IPC_RUN_ENDED, &body, NULL, 0);
}

int fake_file(const char *text)
{
    int fd = memfd_create("file", MFD_CLOEXEC);
    assert(fd >= 0 && fd_write_all(fd, text, strlen(text)) == 0);
    assert(lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

bool fake_is_lost(void)
{
    return is_lost;
}

void fake_hang_up(void)
{
    close(supervisor);
    supervisor = -1;
}

int client_request(const char *method, const char *path, const char *body)
{
    return client_request_with(method, path, "", body);
}

int client_request_with(const char *method, const char *path, const char *more, const char *body)
{
    cleanup_buf struct buf text = BUF_INIT(1 << 20);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert(fd >= 0 && connect(fd, (struct sockaddr *)&address, address_len) == 0);
    assert(buf_appendf(&text,
                       "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                       "%sContent-Length: %zu\r\n\r\n%s",
                       method, path, more, strlen(body), body) == 0);
    assert(send(fd, text.data, text.len, MSG_NOSIGNAL) == (ssize_t)text.len);
    return fd;
}

const char *client_until(int fd, const char *until)
{
    static char text[16 << 20];
    client_receive(fd, fake_turn, until, text, sizeof(text));
    return text;
}

const char *client_answer(int fd, int status, const char *body)
{
    const char *text = client_until(fd, NULL);
    const char *found = strstr(text, "\r\n\r\n");
    close(fd);
    if (strtol(text + strlen("HTTP/1.1 "), NULL, 10) != status ||
        (body && (!found || strcmp(found + 4, body) != 0)))
        fprintf(stderr, "wanted %d %s\nfound %.2000s\n", status, body ? body : "", text);
    assert(strtol(text + strlen("HTTP/1.1 "), NULL, 10) == status);
    assert(found && (!body || strcmp(found + 4, body) == 0));
    return text;
}
