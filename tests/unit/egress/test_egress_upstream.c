/* What an upstream may do to exchanges: the rig of the fuzz targets, with frames chosen here. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../fuzz/link_rig.h"

static const struct egress_request get = {.method = "GET", .target = "/", .is_held = true};

/* The upstream's end of a link with one exchange on it. */
static int start(struct told *told, const struct link_protocol *protocol)
{
    rig_start(told, &get);
    assert(link_open(told->exchange->origin, false) == 0);
    int fd = rig_connect();
    struct link *link = rig_link();
    link->protocol = protocol;
    assert(protocol->open(link) == 0);
    link->origin->speaks_h2 = protocol == &link_h2;
    egress_exchange_release(told->exchange);
    rig_settle();
    rig_drain(fd);
    return fd;
}

/* The answer came whole, its client takes none of it, and the upstream has gone: the origin is
 * still the exchange's, also when others are forgotten. */
static void test_an_origin_outlives_its_connection(void)
{
    static const char answer[] = "\0\0\0\4\0\0\0\0\0"     /* SETTINGS */
                                 "\0\0\1\1\4\0\0\0\1\x88" /* HEADERS, :status 200 */
                                 "\0\0\3\0\1\0\0\0\1"
                                 "abc"; /* DATA, END_STREAM */
    struct told told = {.pauses = 0xff};
    int fd = start(&told, &link_h2);
    assert(rig_feed(fd, answer, sizeof(answer) - 1));
    close(fd);
    rig_settle();
    assert(told.status == 200 && told.exchange && !rig_link());
    struct egress_upstreams *upstreams = told.exchange->upstreams;
    origins_forget(upstreams, 0);
    assert(upstreams->origin_count == 1);
    rig_finish();
    told_free(&told);
}

/* LIMIT_EGRESS_ANSWER_HEAD_BYTES is for all heads of an answer: its client may take none of them.
 */
static void test_interim_heads_are_bounded_together(void)
{
    enum { HEAD = 30000 };
    static char h1[HEAD + 200], h2[HEAD + 200];
    size_t h1_len = (size_t)snprintf(h1, sizeof(h1), "HTTP/1.1 103 Early Hints\r\nlink: ");
    memset(h1 + h1_len, 'a', HEAD);
    h1_len += HEAD;
    memcpy(h1 + h1_len, "\r\n\r\n", 4);
    h1_len += 4;
    /* literal fields, never indexed (RFC 7541): :status 103, link, and the length of its value, an
     * integer with a prefix of 7 bits; HEADERS of 16384 bytes and CONTINUATION */
    char block[HEAD + 100];
    size_t block_len = 0;
    memcpy(block,
           "\x18\x03"
           "103"
           "\x10\x04"
           "link",
           11);
    block_len = 11;
    block[block_len++] = 0x7f;
    for (size_t left = HEAD - 127;; left >>= 7) {
        block[block_len++] = (char)(left >= 128 ? (left & 127) | 128 : left);
        if (left < 128)
            break;
    }
    memset(block + block_len, 'a', HEAD);
    block_len += HEAD;
    size_t rest = block_len - 16384;
    memcpy(h2, "\0\x40\0\1\0\0\0\0\1", 9);
    memcpy(h2 + 9, block, 16384);
    char continuation[9] = {0, (char)(rest >> 8), (char)rest, 9, 4, 0, 0, 0, 1};
    memcpy(h2 + 9 + 16384, continuation, 9);
    memcpy(h2 + 9 + 16384 + 9, block + 16384, rest);
    size_t h2_len = 9 + 16384 + 9 + rest;

    struct told told = {0};
    int fd = start(&told, &link_h1);
    assert(rig_feed(fd, h1, h1_len) && rig_feed(fd, h1, h1_len));
    assert(told.interims == 2 && !told.is_over);
    rig_feed(fd, h1, h1_len);
    assert(told.interims == 2 && told.failure == EGRESS_FAILED_ANSWER);
    close(fd);
    rig_finish();
    told_free(&told);

    told = (struct told){0};
    fd = start(&told, &link_h2);
    assert(rig_feed(fd, "\0\0\0\4\0\0\0\0\0", 9));
    assert(rig_feed(fd, h2, h2_len) && rig_feed(fd, h2, h2_len));
    assert(told.interims == 2 && !told.is_over);
    rig_feed(fd, h2, h2_len);
    assert(told.interims == 2 && told.failure == EGRESS_FAILED_ANSWER);
    close(fd);
    rig_finish();
    told_free(&told);
}

/* Its socket is never connected, as where no packet is answered. */
static void test_a_connection_that_is_not_made_in_time_is_given_up(void)
{
    struct told told = {0};
    rig_start(&told, &get);
    assert(link_open(told.exchange->origin, false) == 0);
    egress_exchange_release(told.exchange);
    rig_settle();
    struct link *link = rig_link();
    uv_loop_t *loop = link->upstreams->loop;
    uint64_t left = link->deadline - uv_now(loop);
    assert(left > LIMIT_EGRESS_CONNECT_MS / 2 && left <= LIMIT_EGRESS_CONNECT_MS);
    link->deadline = uv_now(loop); /* so much time has passed */
    while (!told.is_over)
        uv_run(loop, UV_RUN_ONCE);
    assert(told.failure == EGRESS_FAILED_TIMEOUT && !rig_link());
    rig_finish();
    told_free(&told);
}

int main(void)
{
    rig_open();
    test_an_origin_outlives_its_connection();
    test_interim_heads_are_bounded_together();
    test_a_connection_that_is_not_made_in_time_is_given_up();
    return 0;
}
