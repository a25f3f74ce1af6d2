/*
 * Reads what an answer of a model's gateway says of tokens, in passing: Anthropic's Messages, and
 * OpenAI's chat completions and responses, as one JSON document or as server-sent events, plain or
 * compressed. Process: paddock-egress. Pure functions on foreign bytes. Memory is bounded: a
 * scanner with fixed buffers, and a decompressor of LIMIT_USAGE_WINDOW_BYTES at most. What is not
 * understood ends the reading, never the answer.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/policy.h"

#define USAGE_MODEL_MAX 64

struct usage_tokens {
    int64_t input; /* neither read from a cache nor written to one */
    int64_t output;
    int64_t cache_read, cache_creation;
    char model[USAGE_MODEL_MAX]; /* "" when none was told, or no name that is one */
};

/* What came of the reading. */
enum usage_result {
    USAGE_FOUND,
    USAGE_NOTHING,  /* the answer says nothing of tokens */
    USAGE_ENCODING, /* its Content-Encoding is none that is read */
    USAGE_BROKEN,   /* it is not what its encoding or type says */
    USAGE_DENSE,    /* so much comes out of so few bytes that it is no text of a model */
    USAGE_MEMORY,   /* there is none left for it */
    USAGE_RESULTS
};
const char *usage_result_name(enum usage_result result); /* one word, for a label */

struct usage_reader;

/* Values of the answer's Content-Type and Content-Encoding; "" when there is none. NULL: no memory.
 */
struct usage_reader *usage_reader_new(enum policy_usage shape, const char *type, size_t type_len,
                                      const char *encoding, size_t encoding_len);
/* Bytes of the body, in pieces of any size. */
void usage_reader_feed(struct usage_reader *reader, const char *data, size_t len);
/* What was read so far: the answer ended, or was cut. A stream that did not tell its output tokens
 * to the end, as its client left it or did not ask for that, has one for each piece at least; a
 * document that was left before, one for each four bytes. *ret is filled in whatever it returns:
 * with the numbers that came before the trouble. */
enum usage_result usage_reader_end(const struct usage_reader *reader, struct usage_tokens *ret);
void usage_reader_free(struct usage_reader *reader); /* NULL is allowed */

/* True when every coding that an Accept-Encoding names is one that is read. */
bool usage_reads_all(const char *accept_encoding, size_t len);
