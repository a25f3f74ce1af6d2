/*
 * An upstream that speaks HTTP/2, of any frames or any bytes, to three requests on one link. What
 * their owners are told has no header that is none, is the same however the bytes are cut and
 * whenever the owners wait, and ends well only by an END_STREAM; no memory grows with what is sent.
 * The first byte chooses frames or bytes, the second and third where they are cut and where the
 * owners wait.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cuts.h"
#include "h2_frames.h"
#include "link_rig.h"
#include "util/cleanup.h"

#define SENT_MAX ((size_t)64 * 1024)
/* Three streams' windows, three heads, and what nghttp2 needs: far less than what can be sent. */
#define MEMORY_MAX ((size_t)4 * 1024 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static const struct egress_request *const requests[] = {
    &(const struct egress_request){.method = "GET", .target = "/", .is_held = true},
    &(const struct egress_request){.method = "HEAD", .target = "/", .is_held = true},
    &(const struct egress_request){.method = "POST",
                                   .target = "/",
                                   .body = EGRESS_BODY_CHUNKED,
                                   .takes_trailers = true,
                                   .is_held = true},
};
#define REQUESTS 3

struct run {
    const uint8_t *data;
    size_t len;
    unsigned cuts, pauses;
    bool cancels; /* the first of them, in the middle */
};

static const char trailer_name[] = "x-t";

/* The three on one link, which speaks HTTP/2 as if the handshake had found it. */
static int start(const struct run *run, struct told told[REQUESTS])
{
    struct http_field trailer = {trailer_name, 3, "1", 1};
    for (size_t i = 0; i < REQUESTS; i++) {
        told[i] = (struct told){.pauses = run->pauses};
        rig_start(&told[i], requests[i]);
    }
    assert(egress_exchange_write(told[2].exchange, "abc", 3, LIMIT_EGRESS_QUEUE_BYTES) == 3);
    egress_exchange_write_end(told[2].exchange, &trailer, 1);
    assert(link_open(told[0].exchange->origin, false) == 0);
    int fd = rig_connect();
    struct link *link = rig_link();
    link->protocol = &link_h2;
    assert(link_h2.open(link) == 0);
    link->origin->speaks_h2 = true;
    for (size_t i = 0; i < REQUESTS; i++)
        egress_exchange_release(told[i].exchange);
    rig_settle();
    rig_drain(fd);
    return fd;
}

static void expect_sound(const struct told *told)
{
    const struct link *link = rig_link();
    assert(!link || link->out.len <= link->out.max);
    for (size_t i = 0; i < REQUESTS; i++)
        assert(!told[i].is_over || told[i].failure || told[i].length < 0 ||
               (uint64_t)told[i].length == told[i].body.len);
}

/* False: what came ended the connection. */
static bool run(const struct run *run, struct told told[REQUESTS])
{
    static const uint8_t settings[H2_FRAME_HEAD] = {0, 0, 0, 4};
    size_t before = rig_bytes();
    int fd = start(run, told);
    size_t used = 0;
    unsigned cuts = run->cuts;
    const struct link *link = rig_link();
    rig_feed(fd, settings, sizeof(settings));
    while (used < run->len && rig_link()) {
        size_t piece = next_piece(&cuts, run->len - used);
        if (run->cancels && used >= run->len / 2 && told[0].exchange)
            egress_exchange_cancel(TAKE_PTR(told[0].exchange));
        rig_feed(fd, run->data + used, piece);
        used += piece;
        expect_sound(told);
        assert(rig_bytes() < before + MEMORY_MAX);
    }
    bool is_open = rig_link() == link;
    bool was_over[REQUESTS];
    for (size_t i = 0; i < REQUESTS; i++) {
        told_go_on(&told[i]);
        was_over[i] = told[i].is_over;
    }
    close(fd);
    rig_settle();
    rig_refuse(); /* what is tried again */
    for (size_t i = 0; i < REQUESTS; i++) {
        told_go_on(&told[i]);
        assert(told[i].is_over || (run->cancels && i == 0));
        assert(was_over[i] || told[i].failure || !told[i].is_over);
    }
    expect_sound(told);
    rig_finish();
    return is_open;
}

/* Behind what ends the connection nghttp2 reads on until it has said so, later or sooner, and a
 * flood is what waits to be said; of what waits nothing more is told when its stream fails. */
static void expect_same(const struct told whole[REQUESTS], const struct told cut[REQUESTS],
                        bool is_open)
{
    for (size_t i = 0; i < REQUESTS; i++) {
        told_expect_alike(&whole[i], &cut[i]);
        if (!is_open)
            continue;
        assert(!whole[i].failure == !cut[i].failure && whole[i].status == cut[i].status);
        if (!whole[i].failure)
            told_expect_same(&whole[i], &cut[i]);
    }
}

static void free_all(struct told told[REQUESTS])
{
    for (size_t i = 0; i < REQUESTS; i++)
        told_free(&told[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static bool is_open;
    static uint8_t frames[SENT_MAX];
    if (len < 3 || len > 64 * 1024)
        return 0;
    if (!is_open)
        rig_open();
    is_open = true;
    struct run in_one = {.data = data + 3, .len = len - 3};
    if (data[0] & 1) {
        in_one.len = h2_frames(data + 3, len - 3, frames, sizeof(frames));
        in_one.data = frames;
    }
    struct run in_pieces = in_one;
    in_pieces.cuts = data[1] + 1U;
    in_pieces.pauses = data[2] & 0x7f; /* never for ever */
    struct told whole[REQUESTS], cut[REQUESTS];
    bool is_open_whole = run(&in_one, whole);
    bool is_open_cut = run(&in_pieces, cut);
    expect_same(whole, cut, is_open_whole && is_open_cut);
    free_all(cut);
    in_pieces.cancels = true;
    run(&in_pieces, cut);
    free_all(cut);
    free_all(whole);
    return 0;
}
