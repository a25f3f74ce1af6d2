/*
 * See usage.h. Runs in paddock-egress on the bytes of an upstream. Decompression: zlib for gzip and
 * deflate (RFC 1950, 1952), brotli (RFC 7932), zstd (RFC 8878), each fed piece by piece into a
 * buffer of its own; window and ratio are bounded.
 */
#include "egress/usage.h"

#include <brotli/decode.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>
#include <zstd.h>

#include "egress/usage_scan.h"
#include "util/cleanup.h"
#include "util/limits.h"

#define PIECE_BYTES 16384
/* Text compresses to a tenth; what comes to more than this is made for something else. */
#define RATIO_MAX 256
#define RATIO_FREE_BYTES ((uint64_t)1024 * 1024)
#define ZSTD_WINDOW_LOG 22
/* Of a model's text, on average. */
#define BYTES_PER_TOKEN 4

enum coding { CODING_NONE, CODING_ZLIB, CODING_BROTLI, CODING_ZSTD, CODING_UNKNOWN };

struct usage_reader {
    struct usage_scan scan;
    enum coding coding;
    enum usage_result trouble; /* USAGE_FOUND: none */
    uint64_t in_bytes, out_bytes;
    bool is_ended; /* the compressed stream */
    z_stream zlib;
    BrotliDecoderState *brotli;
    size_t brotli_bytes; /* that it holds */
    ZSTD_DStream *zstd;
};

const char *usage_result_name(enum usage_result result)
{
    static const char *const names[USAGE_RESULTS] = {"found",  "nothing", "encoding",
                                                     "broken", "dense",   "memory"};
    return names[result];
}

/* ------------------------------------------------------------------------------- codings */

static const struct {
    const char *name;
    enum coding coding;
} codings[] = {
    {"", CODING_NONE},       {"identity", CODING_NONE}, {"gzip", CODING_ZLIB},
    {"x-gzip", CODING_ZLIB}, {"deflate", CODING_ZLIB},  {"br", CODING_BROTLI},
    {"zstd", CODING_ZSTD},
};

static enum coding coding_of(const char *name, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(codings); i++)
        if (strlen(codings[i].name) == len && strncasecmp(codings[i].name, name, len) == 0)
            return codings[i].coding;
    return CODING_UNKNOWN;
}

static size_t skip_blanks(const char *text, size_t len)
{
    size_t at = 0;
    while (at < len && (text[at] == ' ' || text[at] == '\t'))
        at++;
    return at;
}

bool usage_reads_all(const char *text, size_t len)
{
    while (len) {
        size_t skip = skip_blanks(text, len), end = 0;
        text += skip;
        len -= skip;
        while (end < len && text[end] != ',' && text[end] != ';' && text[end] != ' ' &&
               text[end] != '\t')
            end++;
        if (coding_of(text, end) == CODING_UNKNOWN)
            return false;
        const char *comma = memchr(text, ',', len);
        size_t used = comma ? (size_t)(comma - text) + 1 : len;
        text += used;
        len -= used;
    }
    return true;
}

/* Each block has its size in front. */
static void *brotli_alloc(void *ctx, size_t size)
{
    struct usage_reader *reader = ctx;
    if (size > LIMIT_USAGE_WINDOW_BYTES || reader->brotli_bytes > LIMIT_USAGE_WINDOW_BYTES - size)
        return NULL;
    max_align_t *block = malloc(sizeof(max_align_t) + size);
    if (!block)
        return NULL;
    memcpy(block, &size, sizeof(size));
    reader->brotli_bytes += size;
    return block + 1;
}

static void brotli_free(void *ctx, void *address)
{
    struct usage_reader *reader = ctx;
    size_t size;
    if (!address)
        return;
    max_align_t *block = (max_align_t *)address - 1;
    memcpy(&size, block, sizeof(size));
    reader->brotli_bytes -= size;
    free(block);
}

static bool open_coding(struct usage_reader *reader)
{
    switch (reader->coding) {
    case CODING_NONE:
    case CODING_UNKNOWN:
        return true;
    case CODING_ZLIB: /* either of its two heads */
        return inflateInit2(&reader->zlib, 15 + 32) == Z_OK;
    case CODING_BROTLI:
        reader->brotli = BrotliDecoderCreateInstance(brotli_alloc, brotli_free, reader);
        return reader->brotli;
    case CODING_ZSTD:
        reader->zstd = ZSTD_createDStream();
        return reader->zstd && !ZSTD_isError(ZSTD_DCtx_setParameter(
                                   reader->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG));
    }
    return false;
}

static void close_coding(struct usage_reader *reader)
{
    if (reader->coding == CODING_ZLIB)
        inflateEnd(&reader->zlib);
    if (reader->brotli)
        BrotliDecoderDestroyInstance(reader->brotli);
    ZSTD_freeDStream(reader->zstd);
    reader->brotli = NULL;
    reader->zstd = NULL;
    reader->coding = CODING_NONE;
}

/* ------------------------------------------------------------------------------- reading */

struct usage_reader *usage_reader_new(enum policy_usage shape, const char *type, size_t type_len,
                                      const char *encoding, size_t encoding_len)
{
    static const char events[] = "text/event-stream";
    struct usage_reader *reader = calloc(1, sizeof(*reader));
    if (!reader)
        return NULL;
    bool is_events = type_len >= strlen(events) && strncasecmp(type, events, strlen(events)) == 0;
    usage_scan_init(&reader->scan, shape, is_events);
    reader->coding = coding_of(encoding, encoding_len);
    if (reader->coding == CODING_UNKNOWN)
        reader->trouble = USAGE_ENCODING;
    if (!open_coding(reader)) {
        reader->coding = reader->coding == CODING_ZLIB ? CODING_NONE : reader->coding;
        close_coding(reader);
        reader->trouble = USAGE_MEMORY;
    }
    return reader;
}

void usage_reader_free(struct usage_reader *reader)
{
    if (!reader)
        return;
    close_coding(reader);
    free(reader);
}

static void give_up(struct usage_reader *reader, enum usage_result why)
{
    reader->trouble = why;
    close_coding(reader);
}

/* One step of a decompressor: uses some of the input, fills some of the piece. False: trouble. */
static bool step_zlib(struct usage_reader *reader, const char **data, size_t *len, char *piece,
                      size_t *ret_len)
{
    z_stream *zlib = &reader->zlib;
    zlib->next_in = (unsigned char *)(uintptr_t)*data;
    zlib->avail_in = (unsigned)*len;
    zlib->next_out = (unsigned char *)piece;
    zlib->avail_out = PIECE_BYTES;
    int result = inflate(zlib, Z_NO_FLUSH);
    *data += *len - zlib->avail_in;
    *len = zlib->avail_in;
    *ret_len = PIECE_BYTES - zlib->avail_out;
    reader->is_ended = result == Z_STREAM_END;
    return result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR;
}

static bool step_brotli(struct usage_reader *reader, const char **data, size_t *len, char *piece,
                        size_t *ret_len)
{
    const uint8_t *next_in = (const uint8_t *)*data;
    uint8_t *next_out = (uint8_t *)piece;
    size_t room = PIECE_BYTES;
    BrotliDecoderResult result =
        BrotliDecoderDecompressStream(reader->brotli, len, &next_in, &room, &next_out, NULL);
    *data = (const char *)next_in;
    *ret_len = PIECE_BYTES - room;
    reader->is_ended = result == BROTLI_DECODER_RESULT_SUCCESS;
    return result != BROTLI_DECODER_RESULT_ERROR;
}

static bool step_zstd(struct usage_reader *reader, const char **data, size_t *len, char *piece,
                      size_t *ret_len)
{
    ZSTD_inBuffer in = {*data, *len, 0};
    ZSTD_outBuffer out = {piece, PIECE_BYTES, 0};
    size_t result = ZSTD_decompressStream(reader->zstd, &out, &in);
    *data += in.pos;
    *len -= in.pos;
    *ret_len = out.pos;
    return !ZSTD_isError(result); /* another frame may follow */
}

static bool step(struct usage_reader *reader, const char **data, size_t *len, char *piece,
                 size_t *ret_len)
{
    if (reader->coding == CODING_ZLIB)
        return step_zlib(reader, data, len, piece, ret_len);
    if (reader->coding == CODING_BROTLI)
        return step_brotli(reader, data, len, piece, ret_len);
    return step_zstd(reader, data, len, piece, ret_len);
}

static void feed_compressed(struct usage_reader *reader, const char *data, size_t len)
{
    char piece[PIECE_BYTES];
    size_t out = PIECE_BYTES;
    reader->in_bytes += len;
    while (!reader->is_ended && (len || out == PIECE_BYTES)) {
        size_t before = len;
        if (!step(reader, &data, &len, piece, &out)) {
            give_up(reader, USAGE_BROKEN);
            return;
        }
        reader->out_bytes += out;
        if (reader->out_bytes > RATIO_FREE_BYTES + RATIO_MAX * reader->in_bytes) {
            give_up(reader, USAGE_DENSE);
            return;
        }
        usage_scan_feed(&reader->scan, piece, out);
        if (len == before && out == 0)
            return; /* it waits for more */
    }
}

void usage_reader_feed(struct usage_reader *reader, const char *data, size_t len)
{
    if (reader->trouble)
        return;
    if (reader->coding == CODING_NONE)
        usage_scan_feed(&reader->scan, data, len);
    else
        feed_compressed(reader, data, len);
    if (!reader->scan.is_events && reader->scan.is_broken && !reader->trouble)
        give_up(reader, USAGE_BROKEN);
}

/* Of a document that was left, or cut, in front of its number of output tokens, which stands behind
 * the text: as many as text of such a length has. */
static int64_t untold_of_document(const struct usage_scan *scan)
{
    bool is_inside = !scan->is_events && !scan->is_broken && scan->depth > 0;
    return is_inside && !scan->tokens.output ? scan->bytes / BYTES_PER_TOKEN : 0;
}

enum usage_result usage_reader_end(const struct usage_reader *reader, struct usage_tokens *ret)
{
    int64_t untold = reader->scan.untold + untold_of_document(&reader->scan);
    *ret = reader->scan.tokens;
    if (reader->scan.input_has_cached && ret->cache_read <= ret->input)
        ret->input -= ret->cache_read;
    ret->output += untold;
    if (reader->trouble)
        return reader->trouble;
    return reader->scan.has_usage || untold ? USAGE_FOUND : USAGE_NOTHING;
}
