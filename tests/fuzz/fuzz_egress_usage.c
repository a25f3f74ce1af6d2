/* The reader of models' answers on any bytes, in each coding and shape, cut at any place: it ends,
 * its numbers are none below zero and its model is a name. The first three bytes choose. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "egress/usage.h"
#include "util/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static enum usage_result read_cut(const uint8_t *choice, const char *body, size_t len, size_t cut,
                                  struct usage_tokens *ret)
{
    static const char *const encodings[] = {"", "gzip", "deflate", "br", "zstd"};
    static const char *const types[] = {"application/json", "text/event-stream"};
    const char *encoding = encodings[choice[0] % ARRAY_LEN(encodings)];
    const char *type = types[choice[1] % ARRAY_LEN(types)];
    enum policy_usage shape = (enum policy_usage)(POLICY_USAGE_ANTHROPIC + choice[1] / 2 % 3);
    struct usage_reader *reader =
        usage_reader_new(shape, type, strlen(type), encoding, strlen(encoding));
    assert(reader);
    usage_reader_feed(reader, body, cut);
    usage_reader_feed(reader, body + cut, len - cut);
    enum usage_result result = usage_reader_end(reader, ret);
    usage_reader_free(reader);
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 3)
        return 0;
    const char *body = (const char *)data + 3;
    size_t body_len = len - 3;
    struct usage_tokens whole, cut;
    enum usage_result result = read_cut(data, body, body_len, 0, &whole);
    enum usage_result again =
        read_cut(data, body, body_len, body_len ? data[2] % body_len : 0, &cut);
    assert(result < USAGE_RESULTS && whole.input >= 0 && whole.output >= 0);
    assert(whole.cache_read >= 0 && whole.cache_creation >= 0);
    for (const char *c = whole.model; *c; c++)
        assert(*c > 0x20 && *c < 0x7f && *c != '"' && *c != '\\');
    if (data[0] % 5 ==
        0) /* where the cut is cannot matter; a decompressor may see trouble sooner */
        assert(result == again && memcmp(&whole, &cut, sizeof(whole)) == 0);
    (void)usage_reads_all(body, body_len);
    return 0;
}
