/* A WebSocket to the daemon: the handshake (RFC 6455, section 4.1). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/cli.h"
#include "http/websocket.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"

#define HEAD_BYTES ((size_t)64 * 1024)

static int send_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static ssize_t read_more(int fd, struct buf *buf)
{
    char piece[4096];
    ssize_t n;
    do
        n = read(fd, piece, sizeof(piece));
    while (n < 0 && errno == EINTR && !cli_is_interrupted());
    return n > 0 && buf_append(buf, piece, (size_t)n) < 0 ? -1 : n;
}

static int send_head(int fd, const char *host, const char *path, const char *key)
{
    cleanup_buf struct buf head = BUF_INIT(HEAD_BYTES);
    const char *token = getenv("PADDOCK_TOKEN");
    int r = buf_appendf(&head,
                        "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\n"
                        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                        "Sec-WebSocket-Key: %s\r\n",
                        path, host, key);
    if (r == 0 && token && token[0])
        r = strpbrk(token, "\r\n") ? -EINVAL
                                   : buf_appendf(&head, "Authorization: Bearer %s\r\n", token);
    if (r == 0)
        r = buf_append_string(&head, "\r\n");
    if (r == 0)
        r = send_all(fd, head.data, head.len);
    if (head.data)
        explicit_bzero(head.data, head.len);
    return r;
}

/* Another answer than 101, to its end. */
static enum cli_exit refused(const struct cli *cli, int fd, struct buf *bytes, size_t head,
                             struct err *err)
{
    cleanup_reply struct cli_reply reply = {.body = BUF_INIT(LIMIT_CLI_REPLY_BYTES)};
    reply.status = strtol(buf_text(bytes) + strlen("HTTP/1.1 "), NULL, 10);
    shutdown(fd, SHUT_WR);
    while (read_more(fd, bytes) > 0)
        ;
    buf_append(&reply.body, bytes->data + head, bytes->len - head);
    return cli_refused(cli, &reply, err);
}

enum cli_exit cli_upgrade(const struct cli *cli, const char *path, int *ret_fd,
                          struct buf *ret_rest, struct err *err)
{
    char host[256], key[WEBSOCKET_KEY_SIZE], accept[WEBSOCKET_ACCEPT_SIZE], line[64];
    cleanup_fd int fd = -1;
    const char *end = NULL;
    enum cli_exit status = cli_connect(cli, path, host, sizeof(host), &fd, err);
    if (status != CLI_OK)
        return status;
    if (websocket_make_key(key) < 0 || send_head(fd, host, path, key) < 0)
        return cli_fail(err, CLI_UNREACHABLE, "the daemon broke off");
    while (!(end = strstr(buf_text(ret_rest), "\r\n\r\n")))
        if (read_more(fd, ret_rest) <= 0)
            return cli_fail(err, CLI_UNREACHABLE, "the daemon broke off");
    size_t head = (size_t)(end - ret_rest->data) + 4;
    websocket_accept(key, accept);
    snprintf(line, sizeof(line), "\r\nSec-WebSocket-Accept: %s\r\n", accept);
    if (strncmp(ret_rest->data, "HTTP/1.1 101 ", 13) != 0)
        return refused(cli, fd, ret_rest, head, err);
    if (!strstr(ret_rest->data, line))
        return cli_fail(err, CLI_UNREACHABLE, "the daemon's answer is not understood");
    buf_consume(ret_rest, head);
    *ret_fd = TAKE_FD(fd);
    return CLI_OK;
}
