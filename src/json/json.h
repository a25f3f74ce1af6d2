/*
 * JSON (RFC 8259) read into a tree and written to a buffer, on yajl. Used for documents that are
 * small and bounded; streams of an agent have a reader of their own in src/agent.
 *
 * The reader keeps line and column of each value for errors, refuses duplicate keys, invalid UTF-8,
 * NUL in keys, nesting deeper than LIMIT_JSON_DEPTH and anything behind the document.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/buf.h"
#include "util/err.h"

struct json;

enum json_type {
    JSON_NULL,
    JSON_BOOL,
    JSON_INTEGER,
    JSON_REAL,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
};

enum json_flags {
    JSON_STRICT = 0,
    JSON_COMMENTS = 1, /* C and C++ comments, for files that people write */
};

/* Parses the bytes. The caller frees *ret with json_free. Errors: -EINVAL with a message that
 * begins "LINE:COLUMN: ", -ENOMEM. Does not block, does not recurse deeper than the limit. */
int json_parse(const char *data, size_t len, enum json_flags flags, struct json **ret,
               struct err *err);
void json_free(struct json *json);
static inline void json_free_at(struct json **json)
{
    json_free(*json);
}
#define cleanup_json __attribute__((cleanup(json_free_at)))

/* All accept NULL, which has type JSON_NULL, so that look-ups can be chained. */
enum json_type json_type(const struct json *json);
const char *json_type_name(enum json_type type); /* "a string", "an object", ... */
unsigned json_line(const struct json *json);     /* from 1; of the first byte of the value */
unsigned json_column(const struct json *json);   /* from 1, in bytes */

bool json_bool(const struct json *json);       /* false unless JSON_BOOL and true */
int64_t json_integer(const struct json *json); /* 0 unless JSON_INTEGER */
double json_real(const struct json *json);     /* integers too; 0 otherwise */

/* The string, NUL-terminated, or NULL when it is not a string. It may hold NULs inside:
 * ret_len (may be NULL) tells the length. */
const char *json_string(const struct json *json, size_t *ret_len);
/* As json_string, and NULL also when there is a NUL inside. */
const char *json_text(const struct json *json);

size_t json_count(const struct json *json); /* members of an array or an object */
const struct json *json_at(const struct json *json, size_t index);
const char *json_key_at(const struct json *json, size_t index); /* of an object */
const struct json *json_get(const struct json *json, const char *key);

/* The writer. An error is kept and reported by json_writer_end, so calls need no checks. Strings
 * that are not UTF-8 are an error: pass them through utf8_append_lossy first. */
struct json_writer;

/* Writes into `out`, which the caller owns and which must outlive the writer. NULL: no memory. */
struct json_writer *json_writer_new(struct buf *out, bool pretty);
/* Frees the writer; 0, or -EMSGSIZE (buffer full), -EINVAL (not UTF-8, or misuse). */
int json_writer_end(struct json_writer *writer);

void json_write_object_begin(struct json_writer *writer);
void json_write_object_end(struct json_writer *writer);
void json_write_array_begin(struct json_writer *writer);
void json_write_array_end(struct json_writer *writer);
void json_write_key(struct json_writer *writer, const char *key);
void json_write_string(struct json_writer *writer, const char *text);
void json_write_bytes(struct json_writer *writer, const char *data, size_t len);
void json_write_integer(struct json_writer *writer, int64_t value);
void json_write_real(struct json_writer *writer, double value);
/* 1500 as 1.5 */
void json_write_thousandths(struct json_writer *writer, int64_t value);
void json_write_bool(struct json_writer *writer, bool value);
void json_write_null(struct json_writer *writer);

/* key and value in one call, inside an object */
void json_write_pair_string(struct json_writer *writer, const char *key, const char *text);
void json_write_pair_integer(struct json_writer *writer, const char *key, int64_t value);
void json_write_pair_bool(struct json_writer *writer, const char *key, bool value);
