/* What answers of gateways say of tokens, in every coding and however they are cut. */
#include <assert.h>
#include <brotli/encode.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "egress/usage.h"
#include "util/cleanup.h"

#define CODED_MAX 65536
#define JSON "application/json"
#define EVENTS "text/event-stream; charset=utf-8"

struct sample {
    const char *what;
    enum policy_usage shape;
    enum usage_result result;
    const char *type, *body;
    struct usage_tokens tokens;
};

static const struct sample samples[] = {
    {"messages",
     POLICY_USAGE_ANTHROPIC,
     USAGE_FOUND,
     JSON,
     "{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-sonnet-5\","
     "\"content\":[{\"type\":\"text\",\"text\":\"\\\"usage\\\":{\\\"output_tokens\\\":9999} "
     "\\u00e9\"},"
     "{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"x\",\"input\":{\"usage\":{\"output_tokens\":7}"
     "}}],"
     "\"stop_reason\":\"end_turn\",\"usage\":{\"input_tokens\":12,\"cache_creation_input_tokens\":"
     "300,"
     "\"cache_read_input_tokens\":4000,\"cache_creation\":{\"ephemeral_5m_input_tokens\":300},"
     "\"output_tokens\":50,\"service_tier\":\"standard\"}}",
     {12, 50, 4000, 300, "claude-sonnet-5"}},
    {"messages, streamed",
     POLICY_USAGE_AUTO,
     USAGE_FOUND,
     EVENTS,
     "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":"
     "\"claude-opus-5\",\"content\":[],\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":"
     "10,"
     "\"cache_creation_input_tokens\":2,\"output_tokens\":1}}}\n\n"
     "event: ping\ndata: {\"type\": \"ping\"}\n\n: a comment\n"
     "event: content_block_delta\r\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":"
     "{\"type\":\"text_delta\",\"text\":\"data: "
     "{\\\"usage\\\":{\\\"output_tokens\\\":1}}\"}}\r\n\r\n"
     "event: "
     "message_delta\ndata:{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},"
     "\"usage\":{\"output_tokens\":15}}\n\nevent: message_stop\ndata: "
     "{\"type\":\"message_stop\"}\n\n",
     {25, 15, 10, 2, "claude-opus-5"}},
    {"chat completions",
     POLICY_USAGE_OPENAI,
     USAGE_FOUND,
     JSON,
     "{\"id\":\"c\",\"object\":\"chat.completion\",\"model\":\"gpt-5\",\"choices\":[{\"index\":0,"
     "\"message\":{\"role\":\"assistant\",\"content\":\"hi\"}}],\"usage\":{\"prompt_tokens\":19,"
     "\"completion_tokens\":10,\"total_tokens\":29,\"prompt_tokens_details\":{\"cached_tokens\":9,"
     "\"audio_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":4}}}\n",
     {10, 10, 9, 0, "gpt-5"}},
    {"chat completions, streamed",
     POLICY_USAGE_OPENAI,
     USAGE_FOUND,
     EVENTS,
     "data: {\"model\":\"gpt-5\",\"choices\":[{\"delta\":{\"content\":\"h\"}}],\"usage\":null}\n\n"
     "data: "
     "{\"model\":\"gpt-5\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":"
     "7}}\n\ndata: [DONE]\n\n",
     {5, 7, 0, 0, "gpt-5"}},
    {"responses",
     POLICY_USAGE_AUTO,
     USAGE_FOUND,
     JSON,
     "{\"id\":\"r\",\"object\":\"response\",\"model\":\"gpt-5.1\",\"output\":[],\"usage\":{"
     "\"input_tokens\":36,\"input_tokens_details\":{\"cached_tokens\":30},\"output_tokens\":87,"
     "\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":123}}",
     {6, 87, 30, 0, "gpt-5.1"}},
    {"responses, streamed",
     POLICY_USAGE_OPENAI,
     USAGE_FOUND,
     EVENTS,
     "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"model\":\"o9\","
     "\"usage\":null}}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\","
     "\"response\":{\"id\":\"r\",\"model\":\"o9\",\"usage\":{\"input_tokens\":8,"
     "\"input_tokens_details\":{\"cached_tokens\":0},\"output_tokens\":11}}}\n\n",
     {8, 11, 0, 0, "o9"}},
    {"an error",
     POLICY_USAGE_AUTO,
     USAGE_NOTHING,
     JSON,
     "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}",
     {0}},
    {"a count of tokens",
     POLICY_USAGE_ANTHROPIC,
     USAGE_NOTHING,
     JSON,
     "{\"input_tokens\":2095}",
     {0}},
    {"the other shape",
     POLICY_USAGE_ANTHROPIC,
     USAGE_NOTHING,
     JSON,
     "{\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}",
     {0}},
    {"no JSON", POLICY_USAGE_AUTO, USAGE_BROKEN, JSON, "<html>", {0}},
    {"numbers that are none",
     POLICY_USAGE_AUTO,
     USAGE_NOTHING,
     JSON,
     "{\"model\":\"a b\",\"usage\":{\"input_tokens\":-1,\"output_tokens\":1e9,"
     "\"cache_read_input_tokens\":12345678901234567890,\"cache_creation_input_tokens\":1.5}}",
     {0}},
    {"more than one document",
     POLICY_USAGE_AUTO,
     USAGE_BROKEN,
     JSON,
     "{} {\"usage\":{\"output_tokens\":1}}",
     {0}},
    {"broken behind the numbers",
     POLICY_USAGE_AUTO,
     USAGE_BROKEN,
     JSON,
     "{\"usage\":{\"output_tokens\":3}]",
     {0, 3, 0, 0, ""}},
};

/* Compressed by `encoding`; the length. */
static size_t encode(const char *encoding, const char *text, char *ret)
{
    size_t len = strlen(text), out = CODED_MAX;
    if (strcmp(encoding, "br") == 0) {
        assert(BrotliEncoderCompress(5, 22, BROTLI_MODE_TEXT, len, (const uint8_t *)text, &out,
                                     (uint8_t *)ret));
        return out;
    }
    if (strcmp(encoding, "zstd") == 0) {
        out = ZSTD_compress(ret, CODED_MAX, text, len, 3);
        assert(!ZSTD_isError(out));
        return out;
    }
    if (!encoding[0]) {
        memcpy(ret, text, len);
        return len;
    }
    z_stream zlib = {0};
    assert(deflateInit2(&zlib, 6, Z_DEFLATED, strcmp(encoding, "gzip") == 0 ? 15 + 16 : 15, 8,
                        Z_DEFAULT_STRATEGY) == Z_OK);
    zlib.next_in = (unsigned char *)(uintptr_t)text;
    zlib.avail_in = (unsigned)len;
    zlib.next_out = (unsigned char *)ret;
    zlib.avail_out = CODED_MAX;
    assert(deflate(&zlib, Z_FINISH) == Z_STREAM_END);
    deflateEnd(&zlib);
    return CODED_MAX - zlib.avail_out;
}

static enum usage_result read_cut(const struct sample *sample, const char *encoding,
                                  const char *data, size_t len, size_t cut,
                                  struct usage_tokens *ret)
{
    struct usage_reader *reader = usage_reader_new(
        sample->shape, sample->type, strlen(sample->type), encoding, strlen(encoding));
    assert(reader);
    usage_reader_feed(reader, data, cut);
    usage_reader_feed(reader, data + cut, len - cut);
    enum usage_result result = usage_reader_end(reader, ret);
    usage_reader_free(reader);
    return result;
}

static bool is_same(const struct usage_tokens *a, const struct usage_tokens *b)
{
    return a->input == b->input && a->output == b->output && a->cache_read == b->cache_read &&
           a->cache_creation == b->cache_creation && strcmp(a->model, b->model) == 0;
}

static void test_every_shape_in_every_coding_cut_at_every_byte(void)
{
    static const char *const encodings[] = {"", "gzip", "deflate", "br", "zstd"};
    static char coded[CODED_MAX];
    for (size_t i = 0; i < ARRAY_LEN(samples); i++)
        for (size_t j = 0; j < ARRAY_LEN(encodings); j++) {
            const struct sample *sample = &samples[i];
            size_t len = encode(encodings[j], sample->body, coded);
            for (size_t cut = 0; cut <= len; cut++) {
                struct usage_tokens tokens;
                enum usage_result result = read_cut(sample, encodings[j], coded, len, cut, &tokens);
                if (result == sample->result && is_same(&tokens, &sample->tokens))
                    continue;
                fprintf(stderr, "%s, %s, cut at %zu: %s %lld %lld %lld %lld %s\n", sample->what,
                        encodings[j], cut, usage_result_name(result), (long long)tokens.input,
                        (long long)tokens.output, (long long)tokens.cache_read,
                        (long long)tokens.cache_creation, tokens.model);
                assert(false);
            }
        }
}

/* A stream that its client left counts as far as it came. */
static void test_what_was_cut_counts_as_far_as_it_came(void)
{
    struct usage_tokens tokens;
    const struct sample *sample = &samples[1];
    size_t len = (size_t)(strstr(sample->body, "event: ping") - sample->body);
    assert(read_cut(sample, "", sample->body, len, 3, &tokens) == USAGE_FOUND);
    assert(tokens.input == 25 && tokens.output == 1);
    sample = &samples[0];
    len = (size_t)(strstr(sample->body, "\"usage\"") - sample->body);
    assert(read_cut(sample, "", sample->body, len, 3, &tokens) == USAGE_FOUND);
    assert(tokens.output == (int64_t)len / 4);
}

/* Else the output of a stream that is left in time, or that was asked to tell nothing, is free. */
static void test_what_a_stream_does_not_tell_is_counted_by_its_pieces(void)
{
#define CHUNK "data: {\"choices\":[{\"delta\":{\"content\":\"h\"}}],\"usage\":null}\n\n"
#define PIECE "data: {\"type\":\"response.output_text.delta\",\"delta\":\"h\"}\n\n"
    struct usage_tokens tokens;
    const struct sample *sample = &samples[1];
    size_t len = (size_t)(strstr(sample->body, "message_delta\ndata:") - sample->body);
    assert(read_cut(sample, "", sample->body, len, 3, &tokens) == USAGE_FOUND);
    assert(tokens.input == 25 && tokens.output == 2);
    static const struct {
        const char *body;
        enum usage_result result;
        int output;
    } streams[] = {
        {CHUNK CHUNK CHUNK "data: [DONE]\n\n", USAGE_FOUND, 3},
        {PIECE PIECE, USAGE_FOUND, 2},
        {PIECE "data: {\"usage\":{\"output_tokens\":9}}\n\n" PIECE, USAGE_FOUND, 10},
        {"data: {\"type\": \"ping\"}\n\n: delta\n\n", USAGE_NOTHING, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(streams); i++) {
        struct sample one = {"", POLICY_USAGE_AUTO, USAGE_FOUND, EVENTS, streams[i].body, {0}};
        len = strlen(streams[i].body);
        assert(read_cut(&one, "", streams[i].body, len, 5, &tokens) == streams[i].result);
        assert(tokens.output == streams[i].output);
    }
}

static void test_what_is_not_understood_is_told(void)
{
    static char coded[CODED_MAX];
    struct usage_tokens tokens;
    const char *body = samples[0].body;
    assert(read_cut(&samples[0], "compress", body, strlen(body), 0, &tokens) == USAGE_ENCODING);
    assert(read_cut(&samples[0], "gzip, br", body, strlen(body), 0, &tokens) == USAGE_ENCODING);
    static const char *const encodings[] = {"gzip", "deflate", "br", "zstd"};
    for (size_t i = 0; i < ARRAY_LEN(encodings); i++) {
        assert(read_cut(&samples[0], encodings[i], body, strlen(body), 9, &tokens) == USAGE_BROKEN);
        size_t len = encode(encodings[i], body, coded);
        memset(coded + len / 2, 0xff, len / 4);
        (void)read_cut(&samples[0], encodings[i], coded, len, 9, &tokens);
    }
}

static void test_a_bomb_is_not_unpacked(void)
{
    static char zeros[16 * 1024 * 1024], coded[CODED_MAX];
    struct usage_tokens tokens;
    memset(zeros, ' ', sizeof(zeros) - 1);
    static const char *const encodings[] = {"gzip", "br", "zstd"};
    for (size_t i = 0; i < ARRAY_LEN(encodings); i++) {
        size_t len = encode(encodings[i], zeros, coded);
        assert(len < 20000);
        enum usage_result result = read_cut(&samples[0], encodings[i], coded, len, 100, &tokens);
        assert(result == USAGE_DENSE || result == USAGE_BROKEN);
    }
}

static void test_a_window_that_is_too_large_is_refused(void)
{
    static char text[CODED_MAX], coded[CODED_MAX];
    struct usage_tokens tokens;
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    assert(zstd);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_windowLog, 27);
    ZSTD_inBuffer in = {text, 1000, 0};
    ZSTD_outBuffer out = {coded, sizeof(coded), 0};
    assert(ZSTD_compressStream2(zstd, &out, &in, ZSTD_e_flush) == 0); /* its size is not known */
    ZSTD_freeCCtx(zstd);
    assert(read_cut(&samples[0], "zstd", coded, out.pos, 4, &tokens) == USAGE_BROKEN);
}

static void test_depth_and_length_are_no_matter(void)
{
    static char deep[CODED_MAX];
    struct usage_tokens tokens;
    struct sample sample = {"", POLICY_USAGE_AUTO, USAGE_FOUND, JSON, deep, {0}};
    size_t at = (size_t)snprintf(deep, sizeof(deep), "{\"tools\":");
    for (int i = 0; i < 500; i++)
        at += (size_t)snprintf(deep + at, sizeof(deep) - at, "{\"]\\\"}\":[");
    for (int i = 0; i < 500; i++)
        at += (size_t)snprintf(deep + at, sizeof(deep) - at, "]}");
    at += (size_t)snprintf(deep + at, sizeof(deep) - at, ",\"usage\":{\"output_tokens\":5}}");
    for (size_t cut = 0; cut < at; cut += 97)
        assert(read_cut(&sample, "", deep, at, cut, &tokens) == USAGE_FOUND && tokens.output == 5);
    at = (size_t)snprintf(deep, sizeof(deep), "{\"text\":\"");
    memset(deep + at, 'x', 60000);
    at += 60000;
    at += (size_t)snprintf(deep + at, sizeof(deep) - at, "\",\"usage\":{\"output_tokens\":5}}");
    assert(read_cut(&sample, "", deep, at, 30000, &tokens) == USAGE_FOUND && tokens.output == 5);
}

static void test_codings_that_are_read(void)
{
    static const struct {
        const char *text;
        bool all;
    } headers[] = {
        {"", true},
        {"gzip, deflate, br, zstd", true},
        {"gzip;q=1.0, identity;q=0", true},
        {"GZIP ,br", true},
        {"gzip, compress", false},
        {"*", false},
        {"dcb, gzip", false},
        {"br;q=0.5,x", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(headers); i++)
        assert(usage_reads_all(headers[i].text, strlen(headers[i].text)) == headers[i].all);
}

int main(void)
{
    test_every_shape_in_every_coding_cut_at_every_byte();
    test_what_was_cut_counts_as_far_as_it_came();
    test_what_a_stream_does_not_tell_is_counted_by_its_pieces();
    test_what_is_not_understood_is_told();
    test_a_bomb_is_not_unpacked();
    test_a_window_that_is_too_large_is_refused();
    test_depth_and_length_are_no_matter();
    test_codings_that_are_read();
    return 0;
}
