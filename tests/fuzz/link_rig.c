/* See link_rig.h. */
#include "link_rig.h"

#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/cleanup.h"

size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

/* More turns than any input of ours can need: one that asks again for ever is a fault. */
#define TURNS_MAX 10000
#define BODY_BYTES (8 * 1024 * 1024)

static uv_loop_t loop;
static struct turn_queue turns;
static struct egress_upstreams *upstreams;
static struct told *all[256];
static size_t told_count;

/* --- dialling --- */

struct dial {
    void (*done)(void *ctx, int fd, enum egress_failure failure, const char *reason);
    void *ctx;
};
static struct dial dialled;

struct dial *dial_start(uv_loop_t *on, struct turn_queue *queue, const struct dial_request *request,
                        void (*done)(void *ctx, int fd, enum egress_failure failure,
                                     const char *reason),
                        void *ctx)
{
    (void)on;
    (void)queue;
    assert(strcmp(request->host, "127.0.0.1") == 0);
    dialled = (struct dial){done, ctx};
    return &dialled;
}

void dial_cancel(struct dial *dial)
{
    dial->done = NULL;
}

int rig_connect(void)
{
    int fds[2];
    assert(dialled.done);
    assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    struct dial dial = dialled;
    dialled.done = NULL;
    dial.done(dial.ctx, fds[0], EGRESS_COMPLETE, NULL);
    rig_settle();
    return fds[1];
}

void rig_refuse(void)
{
    struct dial dial = dialled;
    dialled.done = NULL;
    if (dial.done)
        dial.done(dial.ctx, -1, EGRESS_FAILED_CONNECT, "nobody is there");
    rig_settle();
}

size_t rig_bytes(void)
{
    if (__sanitizer_get_current_allocated_bytes)
        return __sanitizer_get_current_allocated_bytes();
    return mallinfo2().uordblks;
}

/* --- what is told --- */

static void take_fields(struct buf *ret, const struct http_field *fields, size_t count)
{
    assert(count <= LIMIT_HTTP_FIELDS);
    for (size_t i = 0; i < count; i++) {
        assert(http_is_token(fields[i].name, fields[i].name_len));
        assert(http_is_value(fields[i].value, fields[i].value_len));
        assert(buf_appendf(ret, "%.*s: %.*s\n", (int)fields[i].name_len, fields[i].name,
                           (int)fields[i].value_len, fields[i].value) == 0);
    }
}

static void settle_delimiter(struct told *told, const struct http_field *fields, size_t count)
{
    bool is_empty = told->is_head || told->status == 204 || told->status == 304;
    told->is_delimited = is_empty;
    told->length = -1;
    if (is_empty || told->status == 101)
        return;
    for (size_t i = 0; i < count; i++)
        if (http_field_is(&fields[i], "content-length"))
            told->length = http_length(fields[i].value, fields[i].value_len);
    told->is_delimited = told->length >= 0;
    for (size_t i = 0; i < count; i++)
        if (http_field_is(&fields[i], "transfer-encoding")) {
            told->is_delimited = true;
            told->length = -1; /* RFC 9112, section 6.3: this one counts */
        }
}

static void on_head(void *ctx, int status, const char *reason, const struct http_field *fields,
                    size_t count)
{
    struct told *told = ctx;
    assert(!told->is_over && !told->status && status >= 100 && status <= 999);
    assert(http_is_value(reason, strlen(reason)));
    assert(buf_appendf(&told->heads, "%d %s\n", status, reason) == 0);
    take_fields(&told->heads, fields, count);
    if (status < 200 && status != 101) {
        assert(++told->interims <= INTERIM_MAX);
        return;
    }
    told->status = status;
    settle_delimiter(told, fields, count);
}

static bool on_body(void *ctx, const char *data, size_t len)
{
    struct told *told = ctx;
    assert(!told->is_over && told->status && told->trailers.len == 0);
    assert(len && len <= GIVE_BYTES);
    if (told->pauses >> (told->pieces++ % 8) & 1)
        return false;
    assert(buf_append(&told->body, data, len) == 0);
    return true;
}

static void on_trailers(void *ctx, const struct http_field *fields, size_t count)
{
    struct told *told = ctx;
    assert(!told->is_over && told->status && count && told->trailers.len == 0);
    take_fields(&told->trailers, fields, count);
}

static void on_writable(void *ctx)
{
    struct told *told = ctx;
    assert(!told->is_over);
}

static void on_end(void *ctx, enum egress_failure failure, const char *reason)
{
    struct told *told = ctx;
    assert(!told->is_over);
    assert(failure ? reason && *reason : told->status != 0);
    told->is_over = true;
    told->failure = failure;
    told->exchange = NULL;
}

static const struct egress_exchange_events events = {
    .head = on_head,
    .body = on_body,
    .trailers = on_trailers,
    .writable = on_writable,
    .end = on_end,
};

void told_free(struct told *told)
{
    buf_free(&told->heads);
    buf_free(&told->body);
    buf_free(&told->trailers);
}

static void expect_prefix(const struct buf *one, const struct buf *other)
{
    size_t shorter = one->len < other->len ? one->len : other->len;
    assert(memcmp(buf_text(one), buf_text(other), shorter) == 0);
}

void told_expect_alike(const struct told *one, const struct told *other)
{
    expect_prefix(&one->heads, &other->heads);
    expect_prefix(&one->body, &other->body);
    expect_prefix(&one->trailers, &other->trailers);
}

void told_expect_same(const struct told *one, const struct told *other)
{
    assert(one->is_over == other->is_over && one->failure == other->failure);
    assert(one->heads.len == other->heads.len && one->body.len == other->body.len);
    assert(one->trailers.len == other->trailers.len);
    told_expect_alike(one, other);
}

/* --- the rig --- */

void rig_open(void)
{
    struct err err;
    signal(SIGPIPE, SIG_IGN);
    assert(uv_loop_init(&loop) == 0);
    turn_queue_open(&turns, &loop);
    assert(egress_upstreams_open(&loop, &turns, "", &upstreams, &err) == 0);
}

void rig_start(struct told *told, const struct egress_request *request)
{
    struct egress_request own = *request;
    struct err err;
    own.host = "u.test";
    own.port = own.connect_port = 443;
    own.connect_host = "127.0.0.1";
    own.is_plain = true; /* no TLS in between */
    told->is_head = strcmp(request->method, "HEAD") == 0;
    told->heads = BUF_INIT(BODY_BYTES);
    told->body = BUF_INIT(BODY_BYTES);
    told->trailers = BUF_INIT(BODY_BYTES);
    assert(told_count < ARRAY_LEN(all));
    all[told_count++] = told;
    assert(egress_upstream_start(upstreams, &own, &events, told, &told->exchange, &err) == 0);
}

void rig_settle(void)
{
    int ran = 0;
    do {
        uv_run(&loop, UV_RUN_NOWAIT);
        assert(++ran < TURNS_MAX);
    } while (ran < 2 || turns.ring.next != &turns.ring);
    assert(!uv_is_active((uv_handle_t *)&turns.idle)); /* else the loop never sleeps again */
}

void told_go_on(struct told *told)
{
    for (size_t i = 0; told->exchange && told->exchange->is_paused; i++) {
        assert(i < 8 * told->body.max);
        egress_exchange_resume(told->exchange);
        rig_settle();
    }
}

static void resume_all(void)
{
    for (size_t i = 0; i < told_count; i++)
        if (all[i]->exchange)
            egress_exchange_resume(all[i]->exchange);
    rig_settle();
}

bool rig_feed(int fd, const void *data, size_t len)
{
    const char *at = data;
    int full = 0;
    while (len) {
        ssize_t sent = send(fd, at, len, MSG_NOSIGNAL);
        if (sent > 0) {
            at += sent;
            len -= (size_t)sent;
            full = 0;
        } else if (errno != EAGAIN) {
            return false;
        } else {
            assert(++full < 100); /* the link wants no more, and nobody is to be asked for why */
        }
        resume_all();
    }
    return true;
}

void rig_drain(int fd)
{
    char data[16384];
    while (recv(fd, data, sizeof(data), 0) > 0)
        rig_settle();
}

struct link *rig_link(void)
{
    for (size_t i = 0; i < ORIGIN_BUCKETS; i++)
        if (upstreams->buckets[i])
            return upstreams->buckets[i]->links;
    return NULL;
}

void rig_finish(void)
{
    for (size_t i = 0; i < told_count; i++)
        if (all[i]->exchange)
            egress_exchange_cancel(all[i]->exchange);
    told_count = 0;
    rig_settle();
    while (rig_link())
        link_close(rig_link());
    rig_settle();
    assert(!upstreams->exchanges && !upstreams->link_count && !upstreams->idle_links);
    origins_forget(upstreams, 0);
    assert(upstreams->origin_count == 0);
}
