/*
 * The life of a connection to an upstream: dialled (through a proxy's tunnel), TLS, its protocol by
 * ALPN, until somebody ends it. Process: paddock-egress. Invariants: memory goes when libuv has
 * closed the handle; no callback of an exchange is called from within a call of its owner.
 */
#include "egress/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/cleanup.h"

#define READS_PER_TURN 8
#define FILLS_PER_TURN 8
/* Idle links that are kept, all together. */
#define POOL_LINKS 256
/* A record that is as long as one may be has others behind it. */
#define FULL_RECORD_BYTES (16 * 1024)

static void on_poll_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void free_buffers(struct link *link)
{
    if (link->out.data)
        explicit_bzero(link->out.data, link->out.capacity); /* heads with secrets were in it */
    buf_free(&link->out);
    buf_free(&link->in);
}

static void unlink_origin(struct link *link)
{
    struct origin *origin = link->origin;
    if (link->previous)
        link->previous->next = link->next;
    else
        origin->links = link->next;
    if (link->next)
        link->next->previous = link->previous;
    if (link->phase != LINK_OPEN)
        origin->dialing--;
    link->upstreams->link_count--;
    origin->used_at = uv_now(link->upstreams->loop);
}

void link_close(struct link *link)
{
    if (link->phase == LINK_CLOSED)
        return;
    link_set_idle(link, false);
    unlink_origin(link);
    if (link->protocol)
        link->protocol->close(link);
    link->phase = LINK_CLOSED;
    turn_cancel(&link->turn);
    if (link->dial)
        dial_cancel(link->dial);
    if (link->ssl) {
        trust_forget(link->ssl);
        SSL_free(link->ssl);
    }
    free_buffers(link);
    if (link->is_polling)
        uv_poll_stop(&link->poll);
    if (link->fd >= 0)
        close(link->fd);
    if (link->is_polling)
        uv_close((uv_handle_t *)&link->poll, on_poll_closed);
    else
        free(link);
}

void link_fail(struct link *link, enum egress_failure failure, const char *reason)
{
    struct origin *origin = link->origin;
    bool was_open = link->phase == LINK_OPEN;
    bool only_http1 = link->only_http1;
    if (link->protocol)
        link->protocol->fail(link, failure, reason);
    link_close(link);
    if (!was_open)
        origin_dial_failed(origin, only_http1, failure, reason);
}

void link_set_idle(struct link *link, bool is_idle)
{
    struct egress_upstreams *upstreams = link->upstreams;
    if (link->is_idle == is_idle)
        return;
    link->is_idle = is_idle;
    upstreams->idle_links += is_idle ? 1 : (size_t)-1;
    /* One too many goes with the next sweep, unless somebody takes it before: a link that was just
     * opened for somebody must never be refused to them. */
    uint64_t keep_ms = upstreams->idle_links > POOL_LINKS ? 0 : LIMIT_EGRESS_POOL_IDLE_MS;
    link->deadline = is_idle ? uv_now(upstreams->loop) + keep_ms : 0;
}

/* ------------------------------------------------------------------------------ bytes */

/* False: the socket gives or takes no more for now. */
static bool tls_failed(struct link *link, int result)
{
    link->wants_write = false;
    switch (SSL_get_error(link->ssl, result)) {
    case SSL_ERROR_WANT_WRITE:
        link->wants_write = true;
        return false;
    case SSL_ERROR_WANT_READ:
        return false;
    default:
        return true;
    }
}

enum io { IO_DONE, IO_WAIT, IO_END, IO_FAILED };

static enum io write_some(struct link *link, const char *data, size_t len, size_t *ret_written)
{
    if (!link->ssl) {
        ssize_t sent = send(link->fd, data, len, MSG_NOSIGNAL);
        *ret_written = sent > 0 ? (size_t)sent : 0;
        return sent >= 0 ? IO_DONE : errno == EAGAIN ? IO_WAIT : IO_FAILED;
    }
    ERR_clear_error();
    int result = SSL_write_ex(link->ssl, data, len, ret_written);
    if (result == 1)
        return IO_DONE;
    return SSL_get_error(link->ssl, result) == SSL_ERROR_WANT_WRITE ? IO_WAIT : IO_FAILED;
}

/* Writes what is queued. */
static void flush(struct link *link)
{
    while (link->out_used < link->out.len) {
        size_t written = 0;
        enum io result = write_some(link, link->out.data + link->out_used,
                                    link->out.len - link->out_used, &written);
        if (result == IO_DONE) {
            link->out_used += written;
            continue;
        }
        if (result == IO_WAIT)
            break;
        /* What the peer said before it closed is still to be read: reading finds the end. */
        link->out_used = link->out.len;
    }
    if (link->out_used < link->out.len) {
        buf_consume(&link->out, link->out_used);
    } else {
        if (link->out.data && link->out.len)
            explicit_bzero(link->out.data, link->out.len);
        buf_clear(&link->out);
        if (link->out.capacity > LIMIT_EGRESS_OWN_BUFFER_BYTES)
            buf_free(&link->out);
    }
    link->out_used = 0;
}

static void update_poll(struct link *link);

/* Without TLS nobody can tell an end that the upstream meant from one that somebody else made. */
static enum io read_plain(struct link *link, char *data, size_t *ret_len, bool *ret_more)
{
    ssize_t len = recv(link->fd, data, LINK_READ_BYTES, 0);
    *ret_len = len > 0 ? (size_t)len : 0;
    *ret_more = len == LINK_READ_BYTES;
    return len > 0 ? IO_DONE : len == 0 ? IO_END : errno == EAGAIN ? IO_WAIT : IO_FAILED;
}

static enum io read_tls(struct link *link, char *data, size_t *ret_len, bool *ret_more)
{
    ERR_clear_error();
    int len = SSL_read(link->ssl, data, LINK_READ_BYTES);
    *ret_len = len > 0 ? (size_t)len : 0;
    *ret_more = len > 0 && (len >= FULL_RECORD_BYTES || SSL_has_pending(link->ssl));
    if (len > 0)
        return IO_DONE;
    if (!tls_failed(link, len))
        return IO_WAIT;
    return SSL_get_error(link->ssl, len) == SSL_ERROR_ZERO_RETURN ? IO_END : IO_FAILED;
}

/* TLS 1.3 tells a client that its certificate is wanted, or not accepted, behind the handshake.
 * True: that was it, and the link is over. */
static bool was_refused(struct link *link)
{
    char text[256];
    unsigned long code = link->ssl ? ERR_peek_last_error() : 0;
    if (ERR_GET_LIB(code) != ERR_LIB_SSL || ERR_GET_REASON(code) < SSL_AD_REASON_OFFSET)
        return false;
    const char *why = ERR_reason_error_string(code);
    snprintf(text, sizeof(text), "it ended the connection: %s", why ? why : "a TLS alert");
    link_fail(link, EGRESS_FAILED_TRUST, text);
    return true;
}

/* False: the link is over. *ret_more: there may be more to be read at once. */
static bool read_some(struct link *link, bool *ret_more)
{
    char *scratch = link->upstreams->scratch;
    size_t len = 0;
    enum io result = link->ssl ? read_tls(link, scratch, &len, ret_more)
                               : read_plain(link, scratch, &len, ret_more);
    if (result == IO_DONE)
        return link->protocol->feed(link, scratch, len);
    if (result == IO_WAIT)
        return true;
    if (result == IO_END || !was_refused(link))
        link->protocol->ended(link, result == IO_END);
    return false;
}

/* What waited is used first. */
static bool read_all(struct link *link)
{
    if (link->in.len && link->protocol->wants_input(link) && !link->protocol->feed(link, "", 0))
        return false;
    bool has_more = true;
    for (int reads = 0; has_more && link->protocol->wants_input(link); reads++) {
        if (reads == READS_PER_TURN) {
            link_ask_turn(link);
            return true;
        }
        if (!read_some(link, &has_more))
            return false;
    }
    return true;
}

static void move_bytes(struct link *link)
{
    if (!read_all(link))
        return;
    /* as long as the socket takes it, and there is more; a bounded number of times */
    for (int fills = 0; fills < FILLS_PER_TURN; fills++) {
        if (!link->protocol->fill(link))
            return;
        if (link->out.len == 0)
            break;
        flush(link);
        if (link->out.len)
            break;
    }
    update_poll(link);
}

/* ------------------------------------------------------------------------------ becoming open */

static void link_opened(struct link *link)
{
    const unsigned char *name = NULL;
    unsigned len = 0;
    struct origin *origin = link->origin;
    if (link->ssl)
        SSL_get0_alpn_selected(link->ssl, &name, &len);
    bool is_h2 = len == 2 && memcmp(name, "h2", 2) == 0;
    const struct link_protocol *protocol = is_h2 ? &link_h2 : &link_h1;
    if (protocol->open(link)) {
        link_fail(link, EGRESS_FAILED_SELF, "out of memory for a connection");
        return;
    }
    link->protocol = protocol;
    link->phase = LINK_OPEN;
    link->deadline = 0;
    origin->dialing--;
    if (!link->only_http1) {
        origin->speaks_h2 = is_h2;
        origin->is_known = true;
    }
    link_set_idle(link, true);
    origin_serve(origin);
    if (link->phase == LINK_OPEN)
        move_bytes(link);
}

static void shake_hands(struct link *link)
{
    ERR_clear_error();
    int result = SSL_do_handshake(link->ssl);
    if (result == 1) {
        link_opened(link);
        return;
    }
    if (!tls_failed(link, result)) {
        update_poll(link);
        return;
    }
    char text[512];
    unsigned long code = ERR_peek_last_error();
    const char *why = trust_refusal(link->ssl);
    if (*why) {
        snprintf(text, sizeof(text), "%s", why);
        link_fail(link, EGRESS_FAILED_TRUST, text);
        return;
    }
    why = code ? ERR_reason_error_string(code) : NULL;
    snprintf(text, sizeof(text), "the TLS handshake failed: %s",
             why ? why : "the connection was closed");
    link_fail(link, EGRESS_FAILED_CONNECT, text);
}

static bool keep_session(void *ctx, SSL_SESSION *session)
{
    struct link *link = ctx;
    SSL_SESSION_free(link->origin->session);
    link->origin->session = session;
    return true;
}

/* There is a way to the upstream: TLS, where it is not a plain one. */
static void begin(struct link *link)
{
    struct origin *origin = link->origin;
    if (origin->is_plain) {
        link_opened(link);
        return;
    }
    link->phase = LINK_HANDSHAKE;
    link->ssl = trust_connect(origin->trust, link->fd, origin->host, link->only_http1,
                              origin->session, keep_session, link);
    if (link->ssl)
        shake_hands(link);
    else
        link_fail(link, EGRESS_FAILED_SELF, "out of memory for a connection");
}

/* CONNECT through the proxy (RFC 9110, section 9.3.6). */
static void ask_proxy(struct link *link)
{
    struct egress_upstreams *upstreams = link->upstreams;
    const char *authorization = upstreams->proxy_authorization;
    const struct origin *origin = link->origin;
    link->phase = LINK_TUNNEL;
    int result = buf_appendf(&link->out, "CONNECT %s:%u HTTP/1.1\r\nHost: %s:%u\r\n%s%s%s\r\n",
                             origin->host, origin->port, origin->host, origin->port,
                             *authorization ? "Proxy-Authorization: Basic " : "", authorization,
                             *authorization ? "\r\n" : "");
    if (result)
        link_fail(link, EGRESS_FAILED_SELF, "out of memory for a connection");
    else
        update_poll(link);
}

/* The proxy's answer is read byte by byte: what follows its head is TLS's. */
static void tunnel(struct link *link)
{
    char text[256];
    while (link->out_used < link->out.len) {
        ssize_t sent = send(link->fd, link->out.data + link->out_used,
                            link->out.len - link->out_used, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0) {
            link_fail(link, EGRESS_FAILED_CONNECT, "the proxy closed the connection");
            return;
        }
        link->out_used += (size_t)sent;
    }
    for (;;) {
        char *room = buf_reserve(&link->in, 1);
        ssize_t got = room ? recv(link->fd, room, 1, 0) : 0;
        if (got < 0 && errno == EAGAIN) {
            update_poll(link);
            return;
        }
        if (got <= 0) {
            link_fail(link, EGRESS_FAILED_CONNECT, "the proxy ended the connection");
            return;
        }
        link->in.len++;
        if (link->in.len > 3 && memcmp(link->in.data + link->in.len - 4, "\r\n\r\n", 4) == 0)
            break;
    }
    bool is_answer = link->in.len > 12 && memcmp(link->in.data, "HTTP/1.", 7) == 0;
    if (is_answer && link->in.data[9] == '2') {
        buf_clear(&link->in);
        explicit_bzero(link->out.data, link->out.len);
        buf_clear(&link->out);
        link->out_used = 0;
        begin(link);
        return;
    }
    snprintf(text, sizeof(text), "the proxy refuses to connect, with status %.3s",
             is_answer ? link->in.data + 9 : "???");
    link_fail(link, EGRESS_FAILED_CONNECT, text);
}

static void link_act(struct link *link)
{
    if (link->is_doomed) {
        link_close(link);
        return;
    }
    switch (link->phase) {
    case LINK_TUNNEL:
        tunnel(link);
        break;
    case LINK_HANDSHAKE:
        shake_hands(link);
        break;
    case LINK_OPEN:
        move_bytes(link);
        break;
    case LINK_DIAL:
    case LINK_CLOSED:
        break;
    }
}

static void on_turn(struct turn *turn)
{
    link_act((struct link *)((char *)turn - offsetof(struct link, turn)));
}

void link_ask_turn(struct link *link)
{
    turn_ask(link->upstreams->turns, &link->turn);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status; /* what it is, reading or writing tells */
    (void)events;
    link_act(poll->data);
}

/* A socket that is readable while nothing is wanted of it is not watched: it would wake us for
 * ever. Reading is what finds an idle link's end, too. */
static void update_poll(struct link *link)
{
    bool is_open = link->phase == LINK_OPEN;
    int events = 0;
    if (!is_open || link->protocol->wants_input(link))
        events |= UV_READABLE;
    if (link->out_used < link->out.len || link->wants_write)
        events |= UV_WRITABLE;
    if (events == link->poll_events)
        return;
    link->poll_events = events;
    if (events == 0)
        uv_poll_stop(&link->poll);
    else if (uv_poll_start(&link->poll, events, on_poll))
        link_fail(link, EGRESS_FAILED_SELF, "a connection cannot be watched");
}

static void set_socket_options(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

static void on_dialed(void *ctx, int fd, enum egress_failure failure, const char *reason)
{
    struct link *link = ctx;
    link->dial = NULL;
    if (fd < 0) {
        link_fail(link, failure, reason);
        return;
    }
    link->fd = fd;
    set_socket_options(fd);
    if (uv_poll_init_socket(link->upstreams->loop, &link->poll, fd)) {
        link_fail(link, EGRESS_FAILED_SELF, "a connection cannot be watched");
        return;
    }
    link->is_polling = true;
    link->poll.data = link;
    if (link->upstreams->proxy_host[0] && !link->origin->connect_host[0])
        ask_proxy(link);
    else
        begin(link);
}

int link_open(struct origin *origin, bool only_http1)
{
    struct egress_upstreams *upstreams = origin->upstreams;
    bool has_proxy = upstreams->proxy_host[0] && !origin->connect_host[0];
    struct dial_request request = {
        .owner = origin->owner,
        .host = has_proxy                 ? upstreams->proxy_host
                : origin->connect_host[0] ? origin->connect_host
                                          : origin->host,
        .port = has_proxy                 ? upstreams->proxy_port
                : origin->connect_host[0] ? origin->connect_port
                                          : origin->port,
        .may_be_private = has_proxy || origin->connect_host[0],
    };
    struct link *link = calloc(1, sizeof(*link));
    if (!link)
        return -ENOMEM;
    link->upstreams = upstreams;
    link->origin = origin;
    link->fd = -1;
    link->only_http1 = only_http1;
    link->turn.run = on_turn;
    link->in = BUF_INIT(LIMIT_EGRESS_ANSWER_HEAD_BYTES + LINK_READ_BYTES);
    link->out = BUF_INIT(LIMIT_EGRESS_LINK_OUT_BYTES);
    link->deadline = uv_now(upstreams->loop) + LIMIT_EGRESS_CONNECT_MS;
    link->dial = dial_start(upstreams->loop, upstreams->turns, &request, on_dialed, link);
    if (!link->dial) {
        free(link);
        return -ENOMEM;
    }
    link->next = origin->links;
    if (link->next)
        link->next->previous = link;
    origin->links = link;
    origin->dialing++;
    if (upstreams->link_count++ == 0)
        upstreams_begin_sweep(upstreams);
    return 0;
}
