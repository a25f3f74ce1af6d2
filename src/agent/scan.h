/*
 * A scanner for lines of JSON that an agent printed: takes the bytes as they come, checks the
 * grammar (RFC 8259), and keeps only the values whose paths are wanted, each up to a limit. So a
 * line may be of any length, nest deep, or not be JSON at all, and memory stays the same.
 * Paths: "result", "error.message", "errors.[]" (each element of the array). Inside src/agent.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/buf.h"
#include "util/limits.h"

enum scan_kind { SCAN_ABSENT, SCAN_STRING, SCAN_TRUE, SCAN_FALSE, SCAN_NULL, SCAN_OTHER };

struct scan_value {
    enum scan_kind kind;
    bool is_cut;     /* the string was longer than the limit */
    struct buf text; /* of SCAN_STRING; may hold invalid UTF-8 and NULs */
};

#define SCAN_PATH_BYTES 128
#define SCAN_PATH_LEVELS 6

struct scan {
    const char *const *paths; /* wanted */
    struct scan_value *values;
    size_t count;

    int state;
    bool is_broken; /* this line is not JSON */
    size_t depth;
    uint8_t is_array[LIMIT_AGENT_NESTING / 8];

    char path[SCAN_PATH_BYTES];
    size_t path_len[SCAN_PATH_LEVELS + 1]; /* of the container at each depth */

    struct scan_value *capture; /* the string being read goes here */
    bool is_key;
    int escape;              /* 0 none, 1 after a backslash, 2 to 5: hex digits to come + 1 */
    uint32_t code;           /* of \uXXXX */
    uint32_t high_surrogate; /* waits for its low one */
    const char *literal;     /* rest of true, false, null */
};

/* The caller owns paths and values (zeroed but for text.max); scan_free frees their texts. */
void scan_init(struct scan *scan, const char *const *paths, struct scan_value *values,
               size_t count);
void scan_free(struct scan *scan);

/* Bytes of one line, without its newline, in pieces of any size. */
void scan_feed(struct scan *scan, const char *data, size_t len);

/* The line ended. True: it was a JSON value and the values are its; they are valid until
 * scan_next_line. */
bool scan_end_line(struct scan *scan);
void scan_next_line(struct scan *scan);
