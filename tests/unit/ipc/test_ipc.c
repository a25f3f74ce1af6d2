/* The promises of ipc/: what the table does not allow never arrives, and no descriptor leaks. */
#include <assert.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../client.h"
#include "ipc/ipc.h"
#include "util/cleanup.h"

static void test_message_and_descriptors_arrive(void)
{
    int pair[2];
    assert(ipc_pair(pair, NULL) == 0);
    struct msg_exec body = {.user = EXEC_AS_ROOT};
    IPC_SET_TEXT(body.name, "agent-1");
    cleanup_fd int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert(ipc_send(pair[0], IPC_EXEC, 7, &body, &null, 1, NULL) == 0);
    struct ipc_message message;
    assert(ipc_recv(pair[1], IPC_SUPERVISOR, IPC_API, &message, NULL) == 1);
    assert(message.header.type == IPC_EXEC && message.header.id == 7 && message.fd_count == 1);
    assert(strcmp(IPC_TEXT(IPC_BODY(&message, msg_exec)->name), "agent-1") == 0);
    cleanup_fd int fd = ipc_take_fd(&message, 0);
    assert(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    assert(ipc_take_fd(&message, 0) == -1 && ipc_take_fd(&message, 1) == -1);
    ipc_message_close(&message);
    assert(ipc_recv(pair[1], IPC_SUPERVISOR, IPC_API, &message, NULL) == -EAGAIN);
    close(pair[0]);
    assert(ipc_recv(pair[1], IPC_SUPERVISOR, IPC_API, &message, NULL) == 0);
    close(pair[1]);
}

static void send_raw(int sock, struct ipc_header header, size_t body_len, int fds)
{
    char bytes[LIMIT_IPC_MESSAGE_BYTES + 64] = {0};
    memcpy(bytes, &header, sizeof(header));
    struct iovec part = {.iov_base = bytes, .iov_len = sizeof(header) + body_len};
    union {
        struct cmsghdr align;
        char data[CMSG_SPACE(sizeof(int) * 64)];
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fds) {
        message.msg_control = control.data;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)fds);
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&message);
        assert(cmsg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)fds);
        int *list = (int *)(void *)CMSG_DATA(cmsg);
        for (int i = 0; i < fds; i++)
            list[i] = 0;
    }
    assert(sendmsg(sock, &message, 0) >= 0);
}

static void test_a_broken_peer_is_refused_and_nothing_leaks(void)
{
    int pair[2];
    assert(ipc_pair(pair, NULL) == 0);
    int before = count_descriptors();
    const uint32_t name_size = sizeof(struct msg_sandbox_name);
    const struct {
        struct ipc_header header;
        size_t len;
        int fds;
    } cases[] = {
        {{IPC_VERSION, IPC_TASK_GET, name_size, 1}, name_size - 1, 0},     /* short */
        {{IPC_VERSION, IPC_TASK_GET, name_size + 1, 1}, name_size + 1, 0}, /* long */
        {{IPC_VERSION, IPC_TYPE_COUNT, 0, 1}, 0, 0},                       /* unknown */
        {{IPC_VERSION, IPC_NONE, 0, 1}, 0, 0},
        {{IPC_VERSION + 1, IPC_TASK_GET, name_size, 1}, name_size, 0},
        {{IPC_VERSION, IPC_TASK_GET, name_size, 1}, name_size, 1},  /* a descriptor too many */
        {{IPC_VERSION, IPC_TASK_GET, name_size, 1}, name_size, 30}, /* and thirty */
        {{IPC_VERSION, IPC_SECRET_GET, sizeof(struct msg_secret_get), 1},
         sizeof(struct msg_secret_get),
         0}, /* only egress may */
        {{IPC_VERSION, IPC_TASK_GET, LIMIT_IPC_MESSAGE_BYTES + 8, 1},
         LIMIT_IPC_MESSAGE_BYTES + 8,
         0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        send_raw(pair[0], cases[i].header, cases[i].len, cases[i].fds);
        struct ipc_message message;
        struct err err = {0};
        assert(ipc_recv(pair[1], IPC_SUPERVISOR, IPC_API, &message, &err) == -EPROTO);
        assert(strstr(err.message, "refused message"));
        assert(count_descriptors() == before);
    }
    close(pair[0]);
    close(pair[1]);
}

/* An empty packet looks like the end of file, but descriptors may come with it. */
static void test_an_empty_packet_leaves_no_descriptor(void)
{
    int pair[2];
    assert(ipc_pair(pair, NULL) == 0);
    int before = count_descriptors();
    union {
        struct cmsghdr align;
        char data[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_control = control.data, .msg_controllen = sizeof(control.data)};
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&message);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(cmsg), &pair[0], sizeof(int));
    assert(sendmsg(pair[0], &message, 0) == 0);
    struct ipc_message got;
    assert(ipc_recv(pair[1], IPC_SUPERVISOR, IPC_API, &got, NULL) == 0);
    assert(count_descriptors() == before);
    close(pair[0]);
    close(pair[1]);
}

static void test_init_of_another_version_is_understood(void)
{
    int pair[2];
    assert(ipc_pair(pair, NULL) == 0);
    struct ipc_header old = {IPC_VERSION - 1, IPC_INIT_STATE, MSG_BOOT_ID, 0};
    send_raw(pair[0], old, MSG_BOOT_ID, 0);
    struct ipc_message message;
    assert(ipc_recv(pair[1], IPC_SUPERVISOR, IPC_INIT, &message, NULL) == 1);
    assert(IPC_BODY(&message, msg_init_state)->task == 0);
    close(pair[0]);
    close(pair[1]);
}

static void test_unterminated_text_is_empty(void)
{
    char array[4] = {'a', 'b', 'c', 'd'};
    assert(strcmp(IPC_TEXT(array), "") == 0);
    IPC_SET_TEXT(array, "longer");
    assert(strcmp(IPC_TEXT(array), "lon") == 0);
}

int main(void)
{
    test_message_and_descriptors_arrive();
    test_a_broken_peer_is_refused_and_nothing_leaks();
    test_an_empty_packet_leaves_no_descriptor();
    test_init_of_another_version_is_understood();
    test_unterminated_text_is_empty();
    return 0;
}
