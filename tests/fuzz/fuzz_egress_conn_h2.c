/*
 * A client's HTTP/2, of any frames or any bytes behind the preface. No request is passed on with a
 * header, a target or a length that is none; which are passed on does not depend on how the bytes
 * are cut; an answer that the upstream cut never ends well; every request has its line in the
 * audit; and neither streams nor memory grow with what is sent, even when nothing is read. The
 * first byte chooses frames or bytes, the second where they are cut, the next four how upstreams
 * answer.
 */
#include <assert.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "cuts.h"
#include "egress/conn_h2.h"
#include "front_rig.h"
#include "h2_frames.h"
#include "util/cleanup.h"

#define SENT_MAX ((size_t)64 * 1024)
#define CHOICES 6
/* A hundred streams, each with a head of 64 KiB and a body of one window, and our own records. */
#define MEMORY_MAX ((size_t)24 * 1024 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";

struct run {
    const uint8_t *data;
    size_t len;
    unsigned cuts;
    const uint8_t *scripts;
    bool never_reads;
};

static size_t memory(void)
{
    if (__sanitizer_get_current_allocated_bytes)
        return __sanitizer_get_current_allocated_bytes();
    return mallinfo2().uordblks;
}

/* --- what comes back --- */

static uint8_t came[1 << 23];
static size_t came_len;

static void read_all(int fd)
{
    ssize_t got;
    while ((got = recv(fd, came + came_len, sizeof(came) - came_len, 0)) > 0) {
        came_len += (size_t)got;
        assert(came_len < sizeof(came));
        front_settle();
    }
}

/* Of the frames that came: whether the stream's answer was ended as one that is whole. */
static bool has_ended_well(int32_t stream)
{
    bool has = false;
    for (size_t at = 0; at + H2_FRAME_HEAD <= came_len;) {
        const uint8_t *head = came + at;
        size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
        int32_t id = (int32_t)((uint32_t)(head[5] & 0x7f) << 24 | (uint32_t)head[6] << 16 |
                               (uint32_t)head[7] << 8 | head[8]);
        has |= id == stream && head[3] <= 1 && head[4] & 1;
        at += H2_FRAME_HEAD + len;
    }
    return has;
}

/* --- the runs --- */

static void expect_bounded(size_t before)
{
    const struct egress_conn *conn = front_conn();
    assert(memory() < before + MEMORY_MAX);
    if (!conn || !conn->h2)
        return;
    assert(conn->h2->stream_count <= 100 && conn->out.len <= conn->out.max);
    for (const struct stream *at = conn->h2->streams; at; at = at->next)
        assert(at->in.len - at->in_used <= 65535);
}

static int run(const struct run *run)
{
    size_t before = memory();
    size_t used = 0;
    unsigned cuts = run->cuts;
    int fd = front_start(true, run->scripts, 4);
    came_len = 0;
    assert(front_feed(fd, preface, sizeof(preface) - 1) == sizeof(preface) - 1);
    while (used < run->len && front_conn()) {
        size_t sent = front_feed(fd, run->data + used, next_piece(&cuts, run->len - used));
        used += sent;
        if (!run->never_reads)
            read_all(fd);
        else if (sent == 0)
            break;
        expect_bounded(before);
    }
    if (!run->never_reads)
        read_all(fd);
    for (size_t i = 0; i < front_passed_count; i++)
        assert(!front_passed[i].has_answer || !FRONT_CUTS(front_passed[i].script) ||
               !has_ended_well(front_passed[i].stream));
    return fd;
}

/* What was passed on. */
struct seen {
    struct buf heads, rest;
    bool was_ended; /* the connection, for what came on it */
};

static void look(struct seen *ret)
{
    const struct egress_conn *conn = front_conn();
    *ret = (struct seen){BUF_INIT(1 << 25), BUF_INIT(1 << 25), !conn || conn->phase != CONN_H2};
    for (size_t i = 0; i < front_passed_count; i++) {
        const struct passed *passed = &front_passed[i];
        assert(buf_appendf(&ret->heads, "%d %s\n", passed->stream, buf_text(&passed->head)) == 0);
        assert(buf_appendf(&ret->rest, "%s%d\n", buf_text(&passed->trailers), passed->has_ended) ==
               0);
        if (passed->has_ended) /* else it came in part, until it was found to be wrong, say */
            assert(buf_append(&ret->rest, buf_text(&passed->body), passed->body.len) == 0);
    }
}

static bool is_same(const struct buf *one, const struct buf *other, size_t len)
{
    return memcmp(buf_text(one), buf_text(other), len) == 0;
}

/* Behind what ends the connection nghttp2 reads on until it has said so, later or sooner; and what
 * comes on a stream that it refused ends the connection only when that was said. */
static void expect_same(const struct seen *whole, const struct seen *pieces)
{
    size_t whole_len = whole->heads.len;
    size_t pieces_len = pieces->heads.len;
    assert(is_same(&whole->heads, &pieces->heads, whole_len < pieces_len ? whole_len : pieces_len));
    if (whole->was_ended || pieces->was_ended)
        return;
    assert(whole_len == pieces_len && whole->rest.len == pieces->rest.len);
    assert(is_same(&whole->rest, &pieces->rest, pieces->rest.len));
}

static void free_seen(struct seen *seen)
{
    buf_free(&seen->heads);
    buf_free(&seen->rest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static bool is_open;
    static uint8_t frames[SENT_MAX];
    static const uint8_t silent[4] = {FRONT_SILENT};
    if (len < CHOICES || len > SENT_MAX)
        return 0;
    if (!is_open)
        front_open();
    is_open = true;
    struct run all = {.data = data + CHOICES, .len = len - CHOICES, .scripts = silent};
    if (data[0] & 1) {
        all.len = h2_frames(data + CHOICES, len - CHOICES, frames, sizeof(frames));
        all.data = frames;
    }
    struct run cut = all;
    cut.cuts = data[1] + 1U;
    struct seen whole, pieces;
    int fd = run(&all);
    look(&whole);
    front_finish(fd);
    fd = run(&cut);
    look(&pieces);
    front_finish(fd);
    /* a flood is when a thousand acknowledgements wait, which others let go between */
    if (all.len < (size_t)1000 * H2_FRAME_HEAD)
        expect_same(&whole, &pieces);
    free_seen(&whole);
    free_seen(&pieces);
    cut.scripts = data + 2;
    front_finish(run(&cut));
    all.scripts = data + 2;
    all.never_reads = true;
    front_finish(run(&all));
    return 0;
}
