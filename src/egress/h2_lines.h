/* Header lines for nghttp2 and of it, for either leg. */
#pragma once

#include <nghttp2/nghttp2.h>

#include "http/head.h"

/* Points to the texts, which nghttp2 copies when the line is submitted. */
nghttp2_nv h2_line(const char *name, const char *value);
/* As h2_line; the name's letters are made small where they lie (RFC 9113, section 8.2.1), so that
 * its bytes must be the caller's own. */
nghttp2_nv h2_line_of(const struct http_field *field);
/* A value as nghttp2 gives it, without the white space around it, as HTTP/1's are read (RFC 9110,
 * section 5.5). */
nghttp2_vec h2_value(nghttp2_rcbuf *value);
