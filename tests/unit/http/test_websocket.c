/* The promises of the frames: messages come out as they went in, however the bytes are cut; what is
 * against RFC 6455 ends the connection with the code for it. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "http/websocket.h"
#include "util/cleanup.h"

static struct {
    struct buf bytes;
    int texts, pieces;
} got = {.bytes = {.max = 1 << 22}};

static void on_message(void *ctx, bool is_text, const char *data, size_t len)
{
    (void)ctx;
    got.texts += is_text;
    got.pieces++;
    assert(len <= WEBSOCKET_MESSAGE_BYTES);
    assert(buf_append(&got.bytes, data, len) == 0);
}

static void forget(void)
{
    buf_clear(&got.bytes);
    got.texts = got.pieces = 0;
}

static struct websocket *make(enum websocket_role role)
{
    struct websocket *websocket = websocket_new(role, on_message, NULL);
    assert(websocket);
    forget();
    return websocket;
}

/* What one has to send goes to the other, `step` bytes at a time. */
static void move(struct websocket *from, struct websocket *to, size_t step)
{
    struct buf *out = websocket_out(from);
    while (out->len) {
        char piece[4096];
        size_t n = out->len < step ? out->len : step;
        memcpy(piece, out->data, n);
        buf_consume(out, n);
        assert(websocket_feed(to, piece, n) == 0);
    }
}

static void test_messages_pass_both_ways_however_they_are_cut(void)
{
    static char data[200000];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (char)(i * 31 >> 3);
    static const size_t steps[] = {1, 2, 3, 7, 4096};
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        struct websocket *server = make(WEBSOCKET_SERVER);
        struct websocket *client = make(WEBSOCKET_CLIENT);
        for (int way = 0; way < 2; way++) {
            struct websocket *from = way ? server : client, *to = way ? client : server;
            forget();
            assert(websocket_send_bytes(from, data, sizeof(data)) == 0);
            assert(websocket_send_text(from, "{\"a\":1}", 7) == 0);
            move(from, to, steps[i]);
            assert(got.pieces == 5 && got.texts == 1 && got.bytes.len == sizeof(data) + 7);
            assert(memcmp(got.bytes.data, data, sizeof(data)) == 0);
            assert(memcmp(got.bytes.data + sizeof(data), "{\"a\":1}", 7) == 0);
        }
        websocket_free(server);
        websocket_free(client);
    }
}

static void test_a_ping_is_answered_and_a_close_too(void)
{
    struct websocket *server = make(WEBSOCKET_SERVER);
    struct websocket *client = make(WEBSOCKET_CLIENT);
    assert(websocket_ping(server) == 0);
    move(server, client, 4096);
    assert(websocket_out(client)->len == 6); /* a pong, masked */
    move(client, server, 4096);
    websocket_close(client, WEBSOCKET_REFUSED, "another");
    assert(!websocket_is_over(server));
    assert(websocket_code_received(server) == WEBSOCKET_ABNORMAL);
    move(client, server, 4096);
    assert(websocket_is_over(server) && websocket_code_received(server) == WEBSOCKET_REFUSED);
    assert(websocket_send_text(server, "a", 1) == -EPIPE);
    move(server, client, 4096);
    assert(websocket_is_over(client) && websocket_code_received(client) == WEBSOCKET_REFUSED);
    assert(got.pieces == 0);
    websocket_free(server);
    websocket_free(client);
}

/* The server's answer to these bytes is a close of this code, and nothing of them is a message. */
static void refuse(const void *data, size_t len, int code)
{
    struct websocket *server = make(WEBSOCKET_SERVER);
    assert(websocket_feed(server, data, len) == 0);
    const struct buf *out = websocket_out(server);
    assert(websocket_is_over(server) && got.pieces == 0);
    assert(out->len >= 4 && (unsigned char)out->data[0] == 0x88);
    assert(((unsigned char)out->data[2] << 8 | (unsigned char)out->data[3]) == code);
    size_t before = out->len;
    assert(websocket_feed(server, "\x82\x80\0\0\0\0", 6) == 0);
    assert(out->len == before && got.pieces == 0); /* nothing more is read */
    websocket_free(server);
}

static void test_what_is_wrong_ends_it_with_its_code(void)
{
#define REFUSE(bytes, code) refuse(bytes, sizeof(bytes) - 1, code)
    REFUSE("\x82\x01"
           "a",
           WEBSOCKET_BROKEN);                           /* not masked */
    REFUSE("\xc2\x80\0\0\0\0", WEBSOCKET_BROKEN);       /* a reserved bit */
    REFUSE("\x83\x80\0\0\0\0", WEBSOCKET_BROKEN);       /* a reserved opcode */
    REFUSE("\x80\x80\0\0\0\0", WEBSOCKET_BROKEN);       /* goes on with nothing */
    REFUSE("\x09\x80\0\0\0\0", WEBSOCKET_BROKEN);       /* a ping in pieces */
    REFUSE("\x89\xfe\0\x7e\0\0\0\0", WEBSOCKET_BROKEN); /* a long ping */
    REFUSE("\x82\xfe\0\x01\0\0\0\0"
           "a",
           WEBSOCKET_BROKEN); /* a length that is not the shortest */
    REFUSE("\x82\xff\x80\0\0\0\0\0\0\0\0\0\0\0", WEBSOCKET_BROKEN);
    REFUSE("\x81\x81\0\0\0\0\xff", 1007); /* text that is not UTF-8 */
    REFUSE("\x82\xff\0\0\0\0\0\x01\0\x01\0\0\0\0a", WEBSOCKET_TOO_BIG);
    REFUSE("\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0a", WEBSOCKET_TOO_BIG);
}

static void test_pieces_together_are_no_longer_than_a_message(void)
{
    static char frame[8 + 40000] = "\x02\xfe\x9c\x40\0\0\0";
    struct websocket *server = make(WEBSOCKET_SERVER);
    assert(websocket_feed(server, frame, sizeof(frame)) == 0 && !websocket_is_over(server));
    frame[0] = '\x80';
    assert(websocket_feed(server, frame, sizeof(frame)) == 0 && websocket_is_over(server));
    assert(got.pieces == 0);
    websocket_free(server);
}

static void test_the_handshake_is_the_one_of_the_rfc(void)
{
    char accept[WEBSOCKET_ACCEPT_SIZE], key[WEBSOCKET_KEY_SIZE], other[WEBSOCKET_KEY_SIZE];
    websocket_accept("dGhlIHNhbXBsZSBub25jZQ==", accept);
    assert(strcmp(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") == 0);
    assert(websocket_make_key(key) == 0 && websocket_make_key(other) == 0);
    assert(websocket_key_is_valid(key, strlen(key)) && strcmp(key, other) != 0);
    assert(!websocket_key_is_valid("dGhlIHNhbXBsZSBub25jZQ=", 23));
    assert(!websocket_key_is_valid("dGhlIHNhbXBsZSBub25jZQ=a", 24));
    assert(!websocket_key_is_valid("dGhlIHNhbXBsZSBub2-jZQ==", 24));
}

int main(void)
{
    test_messages_pass_both_ways_however_they_are_cut();
    test_a_ping_is_answered_and_a_close_too();
    test_what_is_wrong_ends_it_with_its_code();
    test_pieces_together_are_no_longer_than_a_message();
    test_the_handshake_is_the_one_of_the_rfc();
    buf_free(&got.bytes);
    return 0;
}
