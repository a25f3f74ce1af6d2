/* See front_rig.h. */
#include "front_rig.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../unit/egress/stand_in.h"
#include "egress/audit.h"
#include "egress/conn_h2.h"
#include "util/cleanup.h"

#define TURNS_MAX 100000
#define BIG_BYTES ((size_t)40 * 1024)

static uv_loop_t loop;
static struct turn_queue turns;
static struct egress egress;
static const uint8_t *scripts;
static size_t script_count;

struct passed front_passed[FRONT_PASSED_MAX];
size_t front_passed_count;
size_t front_audited;

void egress_audit_write(struct egress_audit *audit, const struct egress_audit_entry *entry)
{
    (void)audit;
    assert(entry->decision && entry->protocol && entry->ended_by);
    front_audited++;
}

/* --- the upstream --- */

struct egress_exchange {
    struct passed *passed;
    const struct egress_exchange_events *events;
    size_t sent; /* of the answer's body */
    unsigned interims;
    bool is_paused, wants_writable;
    bool is_cancelled, is_over;
    struct egress_exchange *next;
};
static struct egress_exchange *exchanges;

static void take_fields(struct buf *ret, const struct http_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct http_field *field = &fields[i];
        assert(http_is_token(field->name, field->name_len));
        assert(http_is_value(field->value, field->value_len));
        assert(!field->value_len || !strchr(" \t", field->value[0]));
        assert(!field->value_len || !strchr(" \t", field->value[field->value_len - 1]));
        assert(!http1_is_hop_by_hop(NULL, 0, field->name, field->name_len));
        assert(!http_field_is(field, "host") && !http_field_is(field, "content-length"));
        assert(!http_field_is(field, "expect") && !http_field_is(field, "x-api-key"));
        assert(buf_appendf(ret, "%.*s: %.*s\n", (int)field->name_len, field->name,
                           (int)field->value_len, field->value) == 0);
    }
}

/* What was judged is what is sent: the target is its own canonical form. */
static void expect_canonical(const char *target)
{
    cleanup_buf struct buf path = BUF_INIT(65536);
    cleanup_buf struct buf query = BUF_INIT(65536);
    struct err err;
    assert(target[0] == '/' && http_is_visible(target, strlen(target)));
    assert(policy_canonical_target(target, strlen(target), &path, &query, &err) == 0);
    assert(strncmp(target, buf_text(&path), path.len) == 0);
    assert(strlen(target) - path.len == (query.len ? query.len + 1 : 0));
}

static void expect_good(const struct egress_request *request)
{
    size_t credentials = 0;
    assert(http_is_token(request->method, strlen(request->method)));
    assert(strlen(request->method) < HTTP1_METHOD_MAX);
    assert(strcmp(request->method, "CONNECT") != 0 && strcmp(request->method, "TRACE") != 0);
    expect_canonical(request->target);
    assert(strcmp(request->host, "u.test") == 0 && request->port == 443 && !request->is_plain);
    assert(request->header_count <= LIMIT_HTTP_FIELDS + 1);
    for (size_t i = 0; i < request->header_count; i++)
        credentials += http_field_is(&request->headers[i], "authorization");
    const struct http_field *last = &request->headers[request->header_count - 1];
    assert(credentials == 1 &&
           http_equals(last->value, last->value_len, "Bearer " STAND_IN_SECRET));
}

int egress_upstream_start(struct egress_upstreams *upstreams, const struct egress_request *request,
                          const struct egress_exchange_events *events, void *ctx,
                          struct egress_exchange **ret, struct err *err)
{
    (void)upstreams;
    (void)err;
    expect_good(request);
    struct egress_exchange *exchange = calloc(1, sizeof(*exchange));
    assert(exchange && front_passed_count < FRONT_PASSED_MAX);
    struct passed *passed = &front_passed[front_passed_count];
    *passed = (struct passed){.head = BUF_INIT(1 << 20),
                              .body = BUF_INIT(1 << 24),
                              .trailers = BUF_INIT(1 << 20),
                              .length = request->body_length,
                              .kind = request->body,
                              .script = scripts[front_passed_count++ % script_count],
                              .has_ended = request->body == EGRESS_BODY_NONE,
                              .ctx = ctx};
    assert(buf_appendf(&passed->head, "%s %s %d\n", request->method, request->target,
                       request->body) == 0);
    take_fields(&passed->head, request->headers, request->header_count);
    struct egress_conn *conn = front_conn();
    if (conn && conn->h2)
        passed->stream = ((struct stream *)((char *)ctx - offsetof(struct stream, call)))->id;
    *exchange = (struct egress_exchange){passed, events, .next = exchanges};
    exchanges = *ret = exchange;
    return 0;
}

size_t egress_exchange_write(struct egress_exchange *exchange, const char *data, size_t len,
                             size_t most)
{
    struct passed *passed = exchange->passed;
    assert(!exchange->is_cancelled && !exchange->is_over && !passed->has_ended && len);
    size_t taken = len < most ? len : most;
    if (passed->script & FRONT_SLOW && taken > 3)
        taken = 3;
    exchange->wants_writable = taken < len;
    assert(buf_append(&passed->body, data, taken) == 0);
    assert(passed->kind != EGRESS_BODY_LENGTH || passed->body.len <= passed->length);
    return taken;
}

void egress_exchange_write_end(struct egress_exchange *exchange, const struct http_field *trailers,
                               size_t count)
{
    struct passed *passed = exchange->passed;
    assert(!exchange->is_cancelled && !exchange->is_over);
    assert(!passed->has_ended || passed->kind == EGRESS_BODY_NONE);
    assert(passed->kind != EGRESS_BODY_LENGTH || passed->body.len == passed->length);
    passed->has_ended = true;
    take_fields(&passed->trailers, trailers, count);
}

bool egress_exchange_is_framed(const struct egress_exchange *exchange)
{
    return exchange->passed->script & FRONT_FRAMED;
}
const char *egress_exchange_protocol(const struct egress_exchange *exchange)
{
    return egress_exchange_is_framed(exchange) ? "h2" : "http/1.1";
}
const char *egress_exchange_tls(const struct egress_exchange *exchange)
{
    (void)exchange;
    return "TLSv1.3";
}
bool egress_exchange_was_sent(const struct egress_exchange *exchange)
{
    (void)exchange;
    return true;
}
size_t egress_exchange_large_bytes(const struct egress_exchange *exchange)
{
    (void)exchange;
    return 0;
}
const char *egress_exchange_held(const struct egress_exchange *exchange, size_t *ret_len)
{
    *ret_len = exchange->passed->body.len;
    return buf_text(&exchange->passed->body);
}
void egress_exchange_release(struct egress_exchange *exchange)
{
    (void)exchange;
    abort(); /* no rule of ours holds any */
}
void egress_exchange_resume(struct egress_exchange *exchange)
{
    assert(!exchange->is_cancelled && !exchange->is_over);
    exchange->is_paused = false;
}
void egress_exchange_cancel(struct egress_exchange *exchange)
{
    assert(!exchange->is_cancelled && !exchange->is_over);
    exchange->is_cancelled = true;
    exchange->passed->is_over = true;
}

static void end(struct egress_exchange *exchange, enum egress_failure failure)
{
    void *ctx = exchange->passed->ctx;
    exchange->is_over = exchange->passed->is_over = true;
    exchange->events->end(ctx, failure, failure ? "the upstream's fault" : NULL);
}

static void tell_head(struct egress_exchange *exchange, int status, const char *name,
                      const char *value)
{
    const struct http_field fields[] = {{"x-a", 3, "b", 1},
                                        {name, strlen(name), value, strlen(value)}};
    exchange->passed->has_answer |= status >= 200;
    exchange->events->head(exchange->passed->ctx, status, "Reason", fields, 2);
}

/* `len` bytes, as long as they are taken; true: all were. */
static bool tell_body(struct egress_exchange *exchange, size_t len)
{
    static char bytes[16384];
    while (exchange->sent < len && !exchange->is_cancelled) {
        size_t piece = len - exchange->sent;
        piece = piece < sizeof(bytes) ? piece : sizeof(bytes);
        if (!exchange->events->body(exchange->passed->ctx, bytes, piece)) {
            exchange->is_paused = !exchange->is_cancelled;
            return false;
        }
        exchange->sent += piece;
    }
    return !exchange->is_cancelled;
}

static void answer(struct egress_exchange *exchange)
{
    static const struct http_field trailer = {"x-t", 3, "1", 1};
    struct passed *passed = exchange->passed;
    unsigned kind = passed->script % 8;
    if (kind == FRONT_SILENT || exchange->is_paused)
        return;
    if (kind == 5) {
        end(exchange, EGRESS_FAILED_CONNECT);
        return;
    }
    for (; kind == 3 && exchange->interims < 4 && !exchange->is_cancelled; exchange->interims++)
        tell_head(exchange, exchange->interims ? 103 : 100, "link", "</a>");
    if (!exchange->is_cancelled && !passed->has_answer)
        tell_head(exchange, kind == 3 ? 204 : 200,
                  kind == 2 || kind == 7 ? "transfer-encoding" : "content-length",
                  kind == 2 || kind == 7 ? "chunked"
                  : kind == 3            ? "0"
                  : kind == 1            ? "5"
                                         : "40960");
    size_t len = kind == 1 ? 5 : kind == 3 ? 0 : kind == 6 ? BIG_BYTES - 1 : BIG_BYTES;
    if (exchange->is_cancelled || !tell_body(exchange, len))
        return;
    if (kind == 2)
        exchange->events->trailers(passed->ctx, &trailer, 1);
    if (!exchange->is_cancelled)
        end(exchange, kind == 4 ? EGRESS_FAILED_CUT : EGRESS_COMPLETE);
}

/* What is due at the upstreams; true: something was. */
static bool serve(void)
{
    bool was_due = false;
    for (struct egress_exchange *at = exchanges; at; at = at->next) {
        if (at->wants_writable && !at->is_cancelled && !at->is_over) {
            at->wants_writable = false;
            was_due = true;
            at->events->writable(at->passed->ctx);
        }
        if (!at->is_cancelled && !at->is_over)
            answer(at);
    }
    struct egress_exchange **at = &exchanges;
    while (*at) {
        struct egress_exchange *exchange = *at;
        if (!exchange->is_cancelled && !exchange->is_over) {
            at = &exchange->next;
            continue;
        }
        *at = exchange->next;
        free(exchange);
        was_due = true;
    }
    return was_due;
}

/* --- the client's side --- */

void front_open(void)
{
    signal(SIGPIPE, SIG_IGN);
    assert(uv_loop_init(&loop) == 0);
    turn_queue_open(&turns, &loop);
    stand_in_load_policy("{ \"rules\": ["
                         "{ \"name\": \"u\", \"host\": \"u.test\", \"headers\": {"
                         "  \"remove\": [\"x-api-key\", \"authorization\"],"
                         "  \"set\": { \"authorization\": \"Bearer ${secret:TOKEN}\" } } } ] }",
                         NULL);
    egress.loop = &loop;
    egress.turns = &turns;
    egress.policy = stand_in_policy;
    egress.idle_ms = 600000;
}

struct egress_conn *front_conn(void)
{
    return stand_in_sandbox.conn;
}

int front_start(bool is_h2, const uint8_t *with, size_t count)
{
    int fds[2];
    scripts = with;
    script_count = count;
    assert(front_passed_count == 0);
    front_audited = 0;
    assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    egress_conn_start(&egress, &stand_in_sandbox, fds[0], 443, false);
    struct egress_conn *conn = front_conn();
    assert(conn);
    conn->call.is_tls = true; /* as if a handshake had been made */
    conn->call.sni = "u.test";
    if (is_h2) {
        assert(conn_h2_open(conn) == 0);
        conn->phase = CONN_H2;
    }
    conn_ask_turn(conn);
    front_settle();
    return fds[1];
}

void front_settle(void)
{
    int ran = 0;
    do {
        uv_run(&loop, UV_RUN_NOWAIT);
        assert(++ran < TURNS_MAX);
    } while (serve() || ran < 2 || turns.ring.next != &turns.ring);
    assert(!uv_is_active((uv_handle_t *)&turns.idle)); /* else the loop never sleeps again */
}

size_t front_feed(int fd, const void *data, size_t len)
{
    ssize_t sent = send(fd, data, len, MSG_NOSIGNAL);
    assert(sent >= 0 || errno == EAGAIN || errno == EPIPE || errno == ECONNRESET);
    front_settle();
    return sent > 0 ? (size_t)sent : 0;
}

void front_finish(int fd)
{
    close(fd);
    egress_conn_close_all(&stand_in_sandbox);
    front_settle();
    assert(!front_conn() && !exchanges);
    assert(stand_in_sandbox.buffer_bytes == 0 && stand_in_sandbox.streams == 0);
    assert(front_audited >= front_passed_count); /* one each, and those that were refused */
    while (front_passed_count) {
        struct passed *passed = &front_passed[--front_passed_count];
        buf_free(&passed->head);
        buf_free(&passed->body);
        buf_free(&passed->trailers);
    }
}
