/* The scanner of usage.c for JSON, alone or in server-sent events; inside usage*.c only. */
#pragma once

#include <stdbool.h>

#include "egress/usage.h"

#define SCAN_DEPTH 64

struct usage_scan {
    enum policy_usage shape;
    bool is_events;
    bool is_broken; /* of the document, or of this event: the rest is skipped */
    bool has_usage;
    bool input_has_cached; /* OpenAI's way: cached tokens are among those of the input */
    struct usage_tokens tokens;

    /* events since the last number of output tokens: each with a piece of an answer has one at
     * least */
    int64_t untold;
    bool has_piece; /* the event that is read */
    int64_t bytes;  /* of the document */

    /* the line of an event */
    int line; /* bytes of "data:" that were seen; -1: another line */

    /* JSON */
    int state;
    int depth;
    uint64_t
        skipped;     /* containers below SCAN_DEPTH that are open: what is in them is passed over */
    uint64_t arrays; /* bit per depth: the container is an array */
    uint8_t nodes[SCAN_DEPTH + 1];
    uint8_t value; /* what the next value is */
    bool is_key;   /* the string that is read */
    int hex;       /* digits to come of \uXXXX */
    bool is_plain; /* of the text: nothing was cut or escaped */
    size_t text_len;
    char text[USAGE_MODEL_MAX];
};

void usage_scan_init(struct usage_scan *scan, enum policy_usage shape, bool is_events);
void usage_scan_feed(struct usage_scan *scan, const char *data, size_t len);
