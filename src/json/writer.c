/* JSON into a buffer, with yajl's generator; see json.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_gen.h>

#include "json/json.h"

struct json_writer {
    yajl_gen gen;
    struct buf *out;
    int result; /* the first error, kept */
};

static void writer_print(void *ctx, const char *text, size_t len)
{
    struct json_writer *writer = ctx;
    int result = buf_append(writer->out, text, len);
    if (result < 0 && writer->result == 0)
        writer->result = result;
}

struct json_writer *json_writer_new(struct buf *out, bool pretty)
{
    struct json_writer *writer = calloc(1, sizeof(*writer));
    if (!writer)
        return NULL;
    writer->out = out;
    writer->gen = yajl_gen_alloc(NULL);
    if (!writer->gen) {
        free(writer);
        return NULL;
    }
    yajl_gen_config(writer->gen, yajl_gen_print_callback, writer_print, writer);
    yajl_gen_config(writer->gen, yajl_gen_validate_utf8, 1);
    if (pretty) {
        yajl_gen_config(writer->gen, yajl_gen_beautify, 1);
        yajl_gen_config(writer->gen, yajl_gen_indent_string, "  ");
    }
    return writer;
}

int json_writer_end(struct json_writer *writer)
{
    int result = writer->result;
    yajl_gen_free(writer->gen);
    free(writer);
    return result;
}

static void writer_check(struct json_writer *writer, yajl_gen_status status)
{
    if (status != yajl_gen_status_ok && status != yajl_gen_generation_complete &&
        writer->result == 0)
        writer->result = -EINVAL;
}

void json_write_object_begin(struct json_writer *writer)
{
    writer_check(writer, yajl_gen_map_open(writer->gen));
}

void json_write_object_end(struct json_writer *writer)
{
    writer_check(writer, yajl_gen_map_close(writer->gen));
}

void json_write_array_begin(struct json_writer *writer)
{
    writer_check(writer, yajl_gen_array_open(writer->gen));
}

void json_write_array_end(struct json_writer *writer)
{
    writer_check(writer, yajl_gen_array_close(writer->gen));
}

void json_write_key(struct json_writer *writer, const char *key)
{
    json_write_string(writer, key);
}

void json_write_string(struct json_writer *writer, const char *text)
{
    json_write_bytes(writer, text, strlen(text));
}

void json_write_bytes(struct json_writer *writer, const char *data, size_t len)
{
    writer_check(writer, yajl_gen_string(writer->gen, (const unsigned char *)data, len));
}

void json_write_integer(struct json_writer *writer, int64_t value)
{
    writer_check(writer, yajl_gen_integer(writer->gen, value));
}

void json_write_real(struct json_writer *writer, double value)
{
    writer_check(writer, yajl_gen_double(writer->gen, value));
}

void json_write_thousandths(struct json_writer *writer, int64_t value)
{
    char text[32];
    int len = snprintf(text, sizeof(text), "%" PRId64 ".%03d", value / 1000, (int)(value % 1000));
    while (text[len - 1] == '0')
        len--;
    if (text[len - 1] == '.')
        len--;
    writer_check(writer, yajl_gen_number(writer->gen, text, (size_t)len));
}

void json_write_bool(struct json_writer *writer, bool value)
{
    writer_check(writer, yajl_gen_bool(writer->gen, value));
}

void json_write_null(struct json_writer *writer)
{
    writer_check(writer, yajl_gen_null(writer->gen));
}

void json_write_pair_string(struct json_writer *writer, const char *key, const char *text)
{
    json_write_key(writer, key);
    json_write_string(writer, text);
}

void json_write_pair_integer(struct json_writer *writer, const char *key, int64_t value)
{
    json_write_key(writer, key);
    json_write_integer(writer, value);
}

void json_write_pair_bool(struct json_writer *writer, const char *key, bool value)
{
    json_write_key(writer, key);
    json_write_bool(writer, value);
}
