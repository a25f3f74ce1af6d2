/*
 * Which route a request is for. Patterns are absolute paths; a segment "{name}" stands for any one
 * segment that is not empty. Nothing is percent-decoded in the path, so a name is judged as it was
 * sent. Pure functions.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "http/head.h"
#include "util/buf.h"

struct http_route {
    const char *method;
    const char *pattern;
};

enum http_match { HTTP_MATCHED, HTTP_NO_SUCH_PATH, HTTP_NO_SUCH_METHOD };

struct http_matched {
    size_t route;      /* index; of the last with this path when the method is not there */
    const char *name;  /* what "{name}" stands for, NULL when the pattern has none */
    size_t name_len;   /* points into the target */
    const char *query; /* behind "?"; NULL: none */
    size_t query_len;
    char allow[64]; /* the methods of this path, for the header Allow */
};

/* Finds the route of a target. With HTTP_NO_SUCH_METHOD everything but the method is filled in, so
 * that the name can be judged first. */
enum http_match http_route_find(const struct http_route *routes, size_t count,
                                const struct http_head *head, struct http_matched *ret);

/* The next parameter of a query (application/x-www-form-urlencoded): 1 and its decoded name and
 * value; 0 at the end; -EINVAL when it is broken, holds a NUL, or is over the buffers' limits. The
 * caller starts with a copy of query and query_len and passes the same again. */
int http_query_next(const char **query, size_t *query_len, struct buf *ret_name,
                    struct buf *ret_value);
