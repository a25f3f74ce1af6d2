/* UTF-8 (RFC 3629): no surrogates, no overlong forms, nothing above U+10FFFF. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "util/buf.h"

/* Length in bytes (1 to 4) of the valid sequence at the start, or 0 if there is none. */
size_t utf8_sequence(const char *data, size_t len);

bool utf8_is_valid(const char *data, size_t len);

/* How many bytes at the end may be the beginning of a sequence that goes on: 0 to 3. */
size_t utf8_begun(const char *data, size_t len);

/* Appends the bytes, each that belongs to no valid sequence replaced by U+FFFD. 0 or as buf_append.
 */
int utf8_append_lossy(struct buf *ret, const char *data, size_t len);
