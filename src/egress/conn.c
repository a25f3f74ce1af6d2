/*
 * The life of a sandbox's connection: phases, clocks, end. Process: paddock-egress. Invariants: all
 * moving of bytes is in conn_turn; a connection is freed only after libuv has closed its two
 * handles; a request in flight has its audit line before its connection ends.
 */
#include "egress/conn.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "egress/ca.h"

/* Heads are read whole, and one more read behind them. */
#define IN_BYTES (LIMIT_EGRESS_HEAD_BYTES + 32 * 1024)
/* The queue's limit is looked at before the upstream's bytes are added, and heads come on top. */
#define OUT_BYTES (LIMIT_EGRESS_QUEUE_BYTES + LIMIT_EGRESS_ANSWER_HEAD_BYTES + 64 * 1024)
/* Reads in one turn, so that one connection cannot hold up the loop. */
#define READS_PER_TURN 16
/* Requests that we answer ourselves need no upstream, so that a client which sends without end
 * could keep a turn going for ever: after so many the others have theirs. */
#define REQUESTS_PER_TURN 8
#define FILLS_PER_TURN 8
/* Of all connections of a sandbox together, each of which has its part: what a byte costs differs a
 * hundredfold (frames, chunks, and fields of one byte), and so what so many reads take. */
#define TURNS_NS ((uint64_t)8 * 1000 * 1000)

static void on_handle_closed(uv_handle_t *handle)
{
    struct egress_conn *conn = handle->data;
    if (--conn->open_handles > 0)
        return;
    buf_free(&conn->in);
    buf_free(&conn->out);
    buf_free(&conn->trailers);
    egress_sandbox_unref(conn->sandbox);
    free(conn);
}

static void count_bytes(struct egress_conn *conn)
{
    size_t bytes = 0;
    if (conn->phase != CONN_CLOSED)
        bytes = egress_large(&conn->in) + egress_large(&conn->out);
    if (conn->call.exchange)
        bytes += egress_exchange_large_bytes(conn->call.exchange);
    if (conn->h2)
        bytes += conn_h2_large_bytes(conn);
    egress_sandbox_count_bytes(conn->sandbox, conn->counted_bytes, bytes);
    conn->counted_bytes = bytes;
}

size_t conn_queue_max(struct egress_conn *conn)
{
    count_bytes(conn);
    return egress_sandbox_is_full(conn->sandbox) ? LIMIT_EGRESS_TIGHT_QUEUE_BYTES
                                                 : LIMIT_EGRESS_QUEUE_BYTES;
}

void conn_close(struct egress_conn *conn)
{
    if (conn->phase == CONN_CLOSED)
        return;
    if (conn->phase == CONN_EXCHANGE && conn->finish == FINISH_NONE) {
        call_abandon(&conn->call);
        conn->finish = FINISH_RESET;
    }
    conn->phase = CONN_CLOSED;
    call_close(&conn->call);
    if (conn->h2)
        conn_h2_close(conn);
    count_bytes(conn);
    if (conn->is_wide)
        egress_sandbox_meter(conn->sandbox)->wide_sockets--;
    uv_poll_stop(&conn->poll);
    if (conn->finish == FINISH_RESET) {
        struct linger reset = {.l_onoff = 1, .l_linger = 0};
        setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    }
    SSL_free(conn->ssl);
    conn->ssl = NULL;
    close(conn->fd);
    conn->fd = -1;
    egress_sandbox_remove_conn(conn->sandbox, conn);
    uv_close((uv_handle_t *)&conn->poll, on_handle_closed);
    uv_close((uv_handle_t *)&conn->timer, on_handle_closed);
    turn_cancel(&conn->turn);
}

static void on_h2_deadline(struct egress_conn *conn)
{
    if (conn_h2_is_idle(conn)) {
        conn_shut_down_output(conn);
        conn_close(conn);
        return;
    }
    conn_set_deadline(conn, conn_h2_on_deadline(conn));
    conn_ask_turn(conn);
}

static void on_deadline(struct egress_conn *conn)
{
    switch (conn->phase) {
    case CONN_EXCHANGE:
        if (conn->finish == FINISH_NONE)
            call_fail(&conn->call, 504, "no byte came or went for too long", "limit");
        else
            conn->finish = FINISH_RESET; /* the answer was not taken */
        if (conn->finish == FINISH_RESET)
            break; /* what is still queued would wait for a reader without a clock */
        conn_ask_turn(conn);
        return;
    case CONN_HEAD:
        if (conn->has_head_bytes) {
            conn_h1_refuse(conn, 408, "the request's head took too long");
            return;
        }
        conn_shut_down_output(conn); /* idle between two requests: a clean end */
        break;
    case CONN_H2:
        on_h2_deadline(conn);
        return;
    case CONN_HANDSHAKE:
    case CONN_LINGER:
    case CONN_CLOSED:
        break;
    }
    conn_close(conn);
}

static void on_timer(uv_timer_t *timer)
{
    struct egress_conn *conn = timer->data;
    conn->timer_is_at = 0;
    uint64_t now = uv_now(conn->egress->loop);
    if (now >= conn->deadline)
        on_deadline(conn);
    else
        conn_set_deadline(conn, (int64_t)(conn->deadline - now));
}

/* The timer is moved only when it would look too late: a deadline that moves on costs nothing. */
void conn_set_deadline(struct egress_conn *conn, int64_t ms)
{
    conn->deadline = uv_now(conn->egress->loop) + (uint64_t)ms;
    if (conn->timer_is_at && conn->timer_is_at <= conn->deadline)
        return;
    conn->timer_is_at = conn->deadline;
    uv_timer_start(&conn->timer, on_timer, (uint64_t)ms, 0);
}

void conn_touch(struct egress_conn *conn)
{
    if (conn->phase == CONN_EXCHANGE)
        conn_set_deadline(conn, conn->egress->idle_ms);
}

/* No clock of ours is longer than the idle limit of the configuration. */
static int64_t at_most_idle(const struct egress_conn *conn, int64_t ms)
{
    return ms < conn->egress->idle_ms ? ms : conn->egress->idle_ms;
}

static void begin_head(struct egress_conn *conn)
{
    conn->phase = CONN_HEAD;
    conn->finish = FINISH_NONE;
    conn->has_head_bytes = false;
    conn_set_deadline(conn, at_most_idle(conn, LIMIT_EGRESS_KEEP_ALIVE_MS));
}

static void begin_linger(struct egress_conn *conn)
{
    conn_shut_down_output(conn);
    conn->phase = CONN_LINGER;
    conn_set_deadline(conn, LIMIT_EGRESS_LINGER_MS);
}

static bool has_input(const struct egress_conn *conn)
{
    return conn->in_used < conn->in.len;
}

/* A long head needs a large buffer. */
static bool may_grow_head(struct egress_conn *conn)
{
    if (conn->in.len - conn->in_used <= conn_queue_max(conn))
        return true;
    conn_h1_refuse(conn, 503,
                   "too many bytes of this sandbox's requests and answers wait to be taken");
    return false;
}

/* Uses what was read. Returns true when more may be read. */
static bool use_input(struct egress_conn *conn)
{
    switch (conn->phase) {
    case CONN_HEAD:
        if (!has_input(conn))
            return true;
        if (!conn->has_head_bytes) {
            conn->has_head_bytes = true;
            conn_set_deadline(conn, at_most_idle(conn, LIMIT_EGRESS_HEAD_MS));
        }
        return conn_take_head(conn) == HTTP1_MORE && may_grow_head(conn);
    case CONN_EXCHANGE:
        conn_feed_body(conn);
        return conn->call.exchange && !conn->body.is_done && !has_input(conn);
    case CONN_H2:
        return conn_h2_feed(conn);
    case CONN_LINGER:
        conn->lingered_bytes += conn->in.len - conn->in_used;
        buf_clear(&conn->in);
        conn->in_used = 0;
        return conn->lingered_bytes < LIMIT_EGRESS_LINGER_BYTES;
    case CONN_HANDSHAKE:
    case CONN_CLOSED:
        break;
    }
    return false;
}

static bool has_time(const struct egress_conn *conn)
{
    return uv_hrtime() < conn->turn_ends;
}

/* Reads and uses until the socket has no more, or no more is wanted. */
static void pump(struct egress_conn *conn)
{
    for (int reads = 0; reads == 0 || (reads <= READS_PER_TURN && has_time(conn)); reads++) {
        enum conn_phase before;
        bool wants_more;
        do { /* a head that was taken may have its body behind it */
            before = conn->phase;
            wants_more = use_input(conn);
        } while (conn->phase != before);
        if (!wants_more) {
            if (conn->phase == CONN_LINGER || conn->phase == CONN_H2)
                conn_close(conn);
            return;
        }
        enum conn_io result = conn_read(conn);
        if (result == CONN_IO_WAIT)
            return;
        if (result == CONN_IO_END && conn_end_tunnel_input(conn))
            return;
        if (result != CONN_IO_DONE) {
            conn_close(conn);
            return;
        }
        conn_touch(conn);
    }
    conn_ask_turn(conn); /* what was read last is not used yet, and no event will tell of it */
}

/* Everything was written: what the finish asks for. Returns true when input may be used again. */
static bool apply_finish(struct egress_conn *conn)
{
    switch (conn->finish) {
    case FINISH_NONE:
        return false;
    case FINISH_KEEP:
        call_close(&conn->call);
        begin_head(conn);
        return true;
    case FINISH_CLOSE:
        call_close(&conn->call);
        begin_linger(conn);
        return true;
    case FINISH_RESET:
        conn_close(conn);
        return false;
    }
    return false;
}

/* Writes the queue. Returns false when the connection is gone. */
static bool flush(struct egress_conn *conn)
{
    if (conn_flush(conn) == CONN_IO_FAILED) {
        conn_close(conn);
        return false;
    }
    if (conn->call.is_paused && conn->out.len < conn_queue_max(conn) / 2)
        call_resume(&conn->call);
    return true;
}

static void update_poll(struct egress_conn *conn);

/* What the handshake agreed on. False: the connection is gone. */
static bool begin(struct egress_conn *conn)
{
    const unsigned char *name = NULL;
    unsigned len = 0;
    conn->call.sni = egress_ca_sni(conn->ssl);
    conn->call.tls = SSL_get_version(conn->ssl);
    SSL_get0_alpn_selected(conn->ssl, &name, &len);
    if (len != 2 || memcmp(name, "h2", 2) != 0) {
        begin_head(conn);
        return true;
    }
    if (conn_h2_open(conn)) {
        conn_close(conn);
        return false;
    }
    conn->phase = CONN_H2;
    conn_set_deadline(conn, at_most_idle(conn, LIMIT_EGRESS_KEEP_ALIVE_MS));
    return true;
}

/* Says what there is to say, as long as the socket takes it. */
static void turn_h2(struct egress_conn *conn)
{
    pump(conn);
    for (int fills = 0; fills < FILLS_PER_TURN && conn->phase == CONN_H2; fills++) {
        bool goes_on = conn_h2_fill(conn);
        if (conn->out.len == 0 && goes_on)
            break;
        if (!flush(conn))
            return;
        if (conn->out.len)
            break;
        if (!goes_on) {
            conn->finish = FINISH_NONE;
            begin_linger(conn);
        }
    }
}

void conn_turn(struct egress_conn *conn)
{
    conn->turn_ends = uv_hrtime() + TURNS_NS / egress_sandbox_conn_count(conn->sandbox);
    if (conn->phase == CONN_HANDSHAKE) {
        enum conn_io result = conn_handshake(conn);
        if (result == CONN_IO_DONE) {
            if (!begin(conn))
                return;
        } else if (result == CONN_IO_WAIT) {
            egress_ca_prepare(conn->egress->ca);
        } else {
            conn_close(conn);
            return;
        }
    }
    if (conn->phase == CONN_H2) {
        turn_h2(conn);
        if (conn->phase == CONN_CLOSED)
            return;
    }
    bool goes_on = conn->phase != CONN_HANDSHAKE && conn->phase != CONN_H2;
    for (int requests = 0; goes_on; requests++) {
        if (requests == REQUESTS_PER_TURN || (requests && !has_time(conn))) {
            conn_ask_turn(conn);
            break;
        }
        pump(conn);
        if (conn->phase == CONN_CLOSED || !flush(conn))
            return;
        goes_on = conn->phase == CONN_EXCHANGE && conn->out.len == 0 && apply_finish(conn);
        if (conn->phase == CONN_CLOSED)
            return;
    }
    conn_rest(conn);
    count_bytes(conn);
    update_poll(conn);
}

static void on_turn(struct turn *turn)
{
    conn_turn((struct egress_conn *)((char *)turn - offsetof(struct egress_conn, turn)));
}

void conn_ask_turn(struct egress_conn *conn)
{
    if (conn->phase != CONN_CLOSED)
        turn_ask(conn->egress->turns, &conn->turn);
}

static int wanted_events(const struct egress_conn *conn)
{
    int events = 0;
    if (conn->phase == CONN_EXCHANGE)
        events |= UV_DISCONNECT;
    if (conn->phase != CONN_EXCHANGE ||
        (conn->call.exchange && !conn->body.is_done && !has_input(conn)))
        events |= UV_READABLE;
    if (conn->out_used < conn->out.len || conn->read_wants_write)
        events |= UV_WRITABLE;
    return events;
}

/* In an exchange the peer's FIN (or reset) means that nobody waits for the answer any more: the
 * upstream is cancelled. A TLS close_notify alone is a half-close, and is served. */
static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct egress_conn *conn = poll->data;
    bool is_gone = conn->phase == CONN_EXCHANGE && (events & UV_DISCONNECT);
    conn->has_unwanted = (events & UV_READABLE) && !(wanted_events(conn) & UV_READABLE);
    if (status < 0 || is_gone)
        conn_close(conn);
    else
        conn_turn(conn);
}

/* Most requests are whole before their answer is: to be told of what the client sends meanwhile is
 * given up only when it does send, so that the others cost no epoll_ctl(2). */
static void update_poll(struct egress_conn *conn)
{
    int events = wanted_events(conn);
    if (!conn->has_unwanted)
        events |= conn->poll_events & (UV_READABLE | UV_DISCONNECT);
    conn->has_unwanted = false;
    if (events == conn->poll_events)
        return;
    conn->poll_events = events;
    if (uv_poll_start(&conn->poll, events, on_poll))
        conn_close(conn);
}

static int conn_open_tls(struct egress_conn *conn)
{
    conn->ssl = SSL_new(egress_ca_server_context(conn->egress->ca));
    return conn->ssl && SSL_set_fd(conn->ssl, conn->fd) == 1 ? 0 : -ENOMEM;
}

static int conn_init(struct egress_conn *conn)
{
    int on = 1;
    int bytes = LIMIT_EGRESS_SOCKET_BYTES;
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(conn->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    setsockopt(conn->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    if (conn->is_tls && conn_open_tls(conn))
        return -ENOMEM;
    if (uv_poll_init_socket(conn->egress->loop, &conn->poll, conn->fd))
        return -EIO;
    uv_timer_init(conn->egress->loop, &conn->timer);
    conn->turn.run = on_turn;
    conn->poll.data = conn->timer.data = conn;
    conn->open_handles = 2;
    return 0;
}

void egress_conn_start(struct egress *egress, struct egress_sandbox *sandbox, int fd, uint16_t port,
                       bool is_tls)
{
    struct egress_conn *conn = calloc(1, sizeof(*conn));
    if (!conn) {
        close(fd);
        return;
    }
    conn->egress = egress;
    conn->fd = fd;
    conn->is_tls = is_tls;
    conn->in = BUF_INIT(IN_BYTES);
    conn->out = BUF_INIT(OUT_BYTES);
    conn->trailers = BUF_INIT(LIMIT_EGRESS_CHUNK_OVERHEAD);
    if (conn_init(conn)) {
        SSL_free(conn->ssl);
        close(fd);
        free(conn);
        return;
    }
    conn->sandbox = egress_sandbox_ref(sandbox);
    conn->call = (struct call){.egress = egress,
                               .sandbox = sandbox,
                               .front = &conn_h1_front,
                               .is_tls = is_tls,
                               .conn_port = port,
                               .protocol = "http/1.1"};
    egress_sandbox_add_conn(sandbox, conn);
    if (is_tls) {
        conn->phase = CONN_HANDSHAKE;
        conn_set_deadline(conn, at_most_idle(conn, LIMIT_EGRESS_HANDSHAKE_MS));
    } else {
        begin_head(conn);
    }
    update_poll(conn);
}

void egress_conn_close_all(struct egress_sandbox *sandbox)
{
    egress_sandbox_each_conn(sandbox, conn_close);
}

static void judge_again(struct egress_conn *conn)
{
    call_judge_again(&conn->call);
    if (conn->h2)
        conn_h2_judge_all(conn);
}

void egress_conn_judge_all(struct egress_sandbox *sandbox)
{
    egress_sandbox_each_conn(sandbox, judge_again);
}
