/*
 * An upstream's HTTP/1.1 answer of any bytes. What its owner is told does not depend on how the
 * bytes are cut, nor on when it waits; a whole answer is one for llhttp too, with the same body; an
 * answer that is cut short never ends well, except at a clean end where nothing else could end it;
 * and a link that said more than was asked for is not used again. The first byte chooses the
 * request, the second and the third where the bytes are cut and where the owner waits.
 */
#include <assert.h>
#include <ctype.h>
#include <llhttp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cuts.h"
#include "link_rig.h"
#include "util/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static const struct egress_request *const requests[] = {
    &(const struct egress_request){.method = "GET", .target = "/"},
    &(const struct egress_request){.method = "HEAD", .target = "/"},
    &(const struct egress_request){
        .method = "POST", .target = "/", .body = EGRESS_BODY_CHUNKED, .takes_trailers = true},
    &(const struct egress_request){.method = "PUT",
                                   .target = "/",
                                   .body = EGRESS_BODY_LENGTH,
                                   .body_length = 3,
                                   .expects_continue = true},
    &(const struct egress_request){.method = "GET", .target = "/", .upgrade = "websocket"},
};

enum end { END_NONE, END_CLEAN, END_CUT };

struct run {
    const struct egress_request *request;
    const char *data;
    size_t len;
    unsigned cuts;   /* 0: in one piece */
    unsigned pauses; /* see struct told */
    enum end end;
};

static void write_body(struct told *told, const struct egress_request *request)
{
    if (request->body == EGRESS_BODY_NONE)
        return;
    assert(egress_exchange_write(told->exchange, "abc", 3, LIMIT_EGRESS_QUEUE_BYTES) == 3);
    egress_exchange_write_end(told->exchange, NULL, 0);
}

/* What it is told of the bytes, and of the end. Returns how many bytes were sent until it was over.
 */
static size_t run(const struct run *run, struct told *told)
{
    *told = (struct told){.pauses = run->pauses};
    rig_start(told, run->request);
    write_body(told, run->request);
    int fd = rig_connect();
    if (run->end != END_CUT)
        rig_drain(fd);
    size_t used = 0;
    unsigned cuts = run->cuts;
    while (used < run->len && !told->is_over) {
        size_t piece = next_piece(&cuts, run->len - used);
        rig_feed(fd, run->data + used, piece);
        used += piece;
        struct link *link = rig_link();
        assert(!link || link->in.len <= link->in.max);
    }
    told_go_on(told);
    if (told->is_over) /* the rest is nobody's */
        rig_feed(fd, run->data + used, run->len - used);
    told->keeps_link = told->is_over && rig_link();
    assert(!told->keeps_link || !told->failure);
    if (run->end == END_CLEAN)
        shutdown(fd, SHUT_WR);
    if (run->end == END_CUT)
        close(fd); /* with bytes unread: a reset */
    rig_settle();
    told_go_on(told);
    assert(told->is_over || run->end == END_NONE);
    if (run->end != END_CUT)
        close(fd);
    rig_finish();
    return used;
}

/* --- the second reader --- */

struct reader {
    llhttp_t parser;
    const struct told *told;
    size_t body_len;
    bool is_final, is_complete;
};

static int on_headers(llhttp_t *parser)
{
    struct reader *reader = parser->data;
    reader->is_final = parser->status_code >= 200 || parser->status_code == 101;
    bool is_empty =
        reader->told->is_head || parser->status_code == 204 || parser->status_code == 304;
    return reader->is_final && is_empty ? 1 : 0; /* llhttp leaves that to us */
}

static int on_read_body(llhttp_t *parser, const char *data, size_t len)
{
    struct reader *reader = parser->data;
    const struct buf *body = &reader->told->body;
    assert(reader->is_final && reader->body_len + len <= body->len);
    assert(memcmp(body->data + reader->body_len, data, len) == 0);
    reader->body_len += len;
    return 0;
}

static int on_complete(llhttp_t *parser)
{
    struct reader *reader = parser->data;
    if (!reader->is_final)
        return 0;
    assert(parser->status_code == reader->told->status);
    reader->is_complete = true;
    return HPE_PAUSED;
}

/* Behind a ";" in the same line. */
static bool is_in_extension(const struct run *run, const char *at)
{
    if (!at || at < run->data || at > run->data + run->len)
        return false;
    const char *line = memrchr(run->data, '\n', (size_t)(at - run->data));
    return line && memchr(line, ';', (size_t)(at - line)) && isxdigit((unsigned char)line[1]);
}

/* The same answer was read whole, and well. */
static void expect_whole(const struct run *run, const struct told *told)
{
    static llhttp_settings_t settings;
    llhttp_settings_init(&settings);
    settings.on_headers_complete = on_headers;
    settings.on_body = on_read_body;
    settings.on_message_complete = on_complete;
    struct reader reader = {.told = told};
    if (memmem(run->data, run->len, "\t\r\n", 3))
        return; /* white space behind a value, which llhttp takes for a part of it */
    llhttp_init(&reader.parser, HTTP_RESPONSE, &settings);
    reader.parser.data = &reader;
    /* RFC 9112, section 6.3: Transfer-Encoding overrides Content-Length, which is not passed on */
    llhttp_set_lenient_chunked_length(&reader.parser, 1);
    /* the connection of an interim answer goes on, whatever it says of it */
    llhttp_set_lenient_keep_alive(&reader.parser, 1);
    llhttp_errno_t result = llhttp_execute(&reader.parser, run->data, run->len);
    if (result == HPE_OK && !reader.is_complete)
        result = llhttp_finish(&reader.parser);
    /* Dropped here, and judged there: the text of extensions, and framing among trailers, which is
     * none (RFC 9110, section 6.5.1). */
    const char *reason = reader.parser.reason ? reader.parser.reason : "";
    if (is_in_extension(run, reader.parser.error_pos) || strstr(reason, "in chunk extensions") ||
        (reader.is_final &&
         (strstr(reason, "Content-Length") || strstr(reason, "Transfer-Encoding"))))
        return;
    assert(reader.is_complete || result == HPE_PAUSED_UPGRADE);
    assert(told->status == 101 || reader.body_len == told->body.len);
}

static void expect_sound(const struct run *run, const struct told *told)
{
    if (!told->is_over || told->failure)
        return;
    assert(told->length < 0 || (uint64_t)told->length == told->body.len);
    assert(told->is_delimited || run->end == END_CLEAN);
    expect_whole(run, told);
}

/* As `whole` was told of all the bytes; of these there are as many, or fewer, and an end behind. */
static void try_end(const struct run *of, enum end end, size_t len, const struct told *whole)
{
    struct run cut = *of;
    struct told told;
    cut.end = end;
    cut.len = len;
    run(&cut, &told);
    expect_sound(&cut, &told);
    if (told.failure == EGRESS_COMPLETE && told.is_delimited)
        told_expect_same(&told, whole);
    told_free(&told);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static bool is_open;
    if (len < 3 || len > 64 * 1024)
        return 0;
    if (!is_open)
        rig_open();
    is_open = true;
    struct run in_one = {.request = requests[data[0] % ARRAY_LEN(requests)],
                         .data = (const char *)data + 3,
                         .len = len - 3};
    struct run in_pieces = in_one;
    in_pieces.cuts = data[1] + 1U;
    in_pieces.pauses = data[2] & 0x7f; /* never for ever */
    struct told whole, cut;
    run(&in_one, &whole);
    bool has_rest = run(&in_pieces, &cut) < in_pieces.len;
    told_expect_same(&whole, &cut);
    expect_sound(&in_one, &whole);
    assert(!has_rest || (!whole.keeps_link && !cut.keeps_link));
    size_t shorter = in_one.len ? (data[1] | (size_t)data[2] << 8) % in_one.len : 0;
    try_end(&in_pieces, END_CLEAN, in_one.len, &whole);
    try_end(&in_one, END_CLEAN, shorter, &whole);
    try_end(&in_one, END_CUT, in_one.len, &whole);
    try_end(&in_one, END_CUT, shorter, &whole);
    told_free(&whole);
    told_free(&cut);
    return 0;
}
