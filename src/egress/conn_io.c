/* Bytes between the sandbox's socket and the two queues of a connection, TLS in between on port
 * 443. Process: paddock-egress. Nothing here blocks. */
#include <errno.h>
#include <linux/socket.h>
#include <sys/socket.h>

#include <openssl/err.h>

#include "egress/conn.h"

/* A whole TLS record; others may wait inside OpenSSL, which reads ahead. */
#define READ_BYTES (16 * 1024)

static enum conn_io tls_result(struct egress_conn *conn, int result)
{
    conn->read_wants_write = false;
    switch (SSL_get_error(conn->ssl, result)) {
    case SSL_ERROR_WANT_WRITE:
        conn->read_wants_write = true;
        return CONN_IO_WAIT;
    case SSL_ERROR_WANT_READ:
        return CONN_IO_WAIT;
    case SSL_ERROR_ZERO_RETURN:
        return CONN_IO_END;
    default:
        return CONN_IO_FAILED;
    }
}

enum conn_io conn_handshake(struct egress_conn *conn)
{
    ERR_clear_error();
    int result = SSL_accept(conn->ssl);
    return result == 1 ? CONN_IO_DONE : tls_result(conn, result);
}

enum conn_io conn_read(struct egress_conn *conn)
{
    if (conn->in_used) {
        buf_consume(&conn->in, conn->in_used);
        conn->in_used = 0;
    }
    if (!conn->in.data)
        buf_move_memory(&conn->in, &conn->egress->spare_in);
    char *room = buf_reserve(&conn->in, READ_BYTES);
    if (!room)
        return CONN_IO_FAILED;
    ssize_t len;
    if (conn->ssl) {
        ERR_clear_error();
        len = SSL_read(conn->ssl, room, READ_BYTES);
        if (len <= 0)
            return tls_result(conn, (int)len);
        conn->read_wants_write = false;
    } else {
        len = recv(conn->fd, room, READ_BYTES, 0);
        if (len < 0)
            return errno == EAGAIN || errno == EINTR ? CONN_IO_WAIT : CONN_IO_FAILED;
        if (len == 0)
            return CONN_IO_END;
    }
    conn->in.len += (size_t)len;
    return CONN_IO_DONE;
}

static enum conn_io write_some(struct egress_conn *conn)
{
    const char *data = conn->out.data + conn->out_used;
    size_t len = conn->out.len - conn->out_used;
    ssize_t written;
    if (conn->ssl) {
        ERR_clear_error();
        size_t written_bytes = 0;
        int result = SSL_write_ex(conn->ssl, data, len, &written_bytes);
        if (result != 1)
            return SSL_get_error(conn->ssl, result) == SSL_ERROR_WANT_WRITE ? CONN_IO_WAIT
                                                                            : CONN_IO_FAILED;
        written = (ssize_t)written_bytes;
    } else {
        written = send(conn->fd, data, len, MSG_NOSIGNAL);
        if (written < 0)
            return errno == EAGAIN || errno == EINTR ? CONN_IO_WAIT : CONN_IO_FAILED;
    }
    conn->out_used += (size_t)written;
    return CONN_IO_DONE;
}

static void rest_buffer(struct buf *buf, size_t *used, struct buf *spare)
{
    if (*used < buf->len || !buf->data)
        return;
    buf_clear(buf);
    *used = 0;
    if (!spare->data && buf->capacity <= LIMIT_EGRESS_OWN_BUFFER_BYTES)
        buf_move_memory(spare, buf);
    else
        buf_free(buf);
}

struct buf *conn_out(struct egress_conn *conn)
{
    if (!conn->out.data)
        buf_move_memory(&conn->out, &conn->egress->spare_out);
    return &conn->out;
}

void conn_rest(struct egress_conn *conn)
{
    rest_buffer(&conn->in, &conn->in_used, &conn->egress->spare_in);
    rest_buffer(&conn->out, &conn->out_used, &conn->egress->spare_out);
}

/* The socket is full: of the first of a sandbox the kernel may tune the size again, up to
 * net.ipv4.tcp_wmem of the listener's network namespace (asm/socket.h: SO_BUF_LOCK, Linux 5.14). */
static void widen(struct egress_conn *conn)
{
    struct egress_meter *meter = egress_sandbox_meter(conn->sandbox);
    int locked = SOCK_RCVBUF_LOCK;
    if (conn->is_wide || meter->wide_sockets == LIMIT_EGRESS_WIDE_SOCKETS)
        return;
    if (setsockopt(conn->fd, SOL_SOCKET, SO_BUF_LOCK, &locked, sizeof(locked)))
        return;
    conn->is_wide = true;
    meter->wide_sockets++;
}

/* Writes what is queued; CONN_IO_DONE when all of it was taken. */
enum conn_io conn_flush(struct egress_conn *conn)
{
    while (conn->out_used < conn->out.len) {
        enum conn_io result = write_some(conn);
        if (result == CONN_IO_WAIT)
            widen(conn);
        if (result != CONN_IO_DONE) {
            buf_consume(&conn->out, conn->out_used);
            conn->out_used = 0;
            return result;
        }
        conn_touch(conn);
    }
    buf_clear(&conn->out);
    conn->out_used = 0;
    return CONN_IO_DONE;
}

void conn_shut_down_output(struct egress_conn *conn)
{
    if (conn->ssl) {
        ERR_clear_error();
        SSL_shutdown(conn->ssl);
    }
    shutdown(conn->fd, SHUT_WR);
}
