/*
 * The head of an HTTP/1.x request (RFC 9112), checked byte for byte before any parser acts on it.
 * llhttp accepts more than the RFC allows (folded lines, two Hosts, other codings in front of
 * chunked, high bytes in the path); what two parsers read differently is how requests are smuggled,
 * so here everything ambiguous is refused. Pure functions: no I/O, no allocation. api and egress.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/err.h"
#include "util/limits.h"

struct http_field {
    const char *name; /* as it came; not terminated */
    size_t name_len;
    const char *value; /* without the white space around it */
    size_t value_len;
};

/* Points into the checked bytes, which must outlive it. */
struct http_head {
    const char *method;
    size_t method_len;
    const char *target; /* visible ASCII */
    size_t target_len;
    int minor;              /* of HTTP/1.minor: 0 or 1 */
    int64_t content_length; /* -1: none given */
    bool is_chunked;
    bool is_keep_alive;       /* by version and Connection */
    bool is_continue_awaited; /* Expect: 100-continue, of a 1.1 client */
    size_t field_count;
    struct http_field fields[LIMIT_HTTP_FIELDS];
};

/* Length of the head at the start of the bytes, its empty line included; 0: it is not complete yet;
 * -EINVAL: a line end that is not CRLF, or an empty line in front: no head will come of it.
 * *scanned (0 at first) says how far former calls looked. */
ssize_t http_head_length(const char *data, size_t len, size_t *scanned);

/* Checks a complete head and reads it. Returns 0, or the status to refuse it with (400, 417, 431,
 * 501, 505), reason in *err; then the connection must be closed, for where the next request starts
 * is not known. */
int http_head_check(const char *data, size_t len, struct http_head *ret, struct err *err);

/* Checks and reads the request line alone, without its line end, as strictly; for heads whose end
 * has not come yet. 0 or the status. */
int http_request_line(const char *line, size_t len, struct http_head *ret, struct err *err);

/* The first field of that name (any case), or NULL. */
const struct http_field *http_head_field(const struct http_head *head, const char *name);
bool http_field_is(const struct http_field *field, const char *name);

/* One line "name: value" without its line end, as strictly. 0, or 400 with the reason. */
int http_field_parse(const char *line, size_t len, struct http_field *ret, struct err *err);

/* True when the field's value, a comma-separated list, holds the token (any case). */
bool http_list_has(const struct http_field *field, const char *token, size_t token_len);

bool http_equals(const char *data, size_t len, const char *text); /* any case */
bool http_is_token(const char *data, size_t len);                 /* RFC 9110 5.6.2 */
bool http_is_value(const char *data, size_t len);                 /* no control but the tab */
bool http_is_visible(const char *data, size_t len);               /* 0x21 to 0x7e, not empty */
/* A Content-Length: digits alone; -1: it is none. */
int64_t http_length(const char *data, size_t len);
