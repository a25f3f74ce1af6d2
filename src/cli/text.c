/*
 * Foreign text for a terminal. An escape sequence could rename the window, hide lines, or make a
 * terminal answer with typed input; a bidirectional override could make a diff read as what it is
 * not. So all of them are shown as text.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "util/utf8.h"
#include "json/json.h"

#define CELL_MAX_BYTES 1000

static unsigned code_point(const char *data, size_t n)
{
    static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    unsigned code = (unsigned char)data[0] & masks[n];
    for (size_t i = 1; i < n; i++)
        code = code << 6 | ((unsigned char)data[i] & 0x3f);
    return code;
}

/* Controls, and what changes the order or the place of the letters around it. */
static bool is_shown_as_code(unsigned code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200b ||
           code == 0x200e || code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x206f) || code == 0xfeff ||
           (code >= 0xe0000 && code <= 0xe0fff);
}

static int append_one(struct buf *ret, const char *data, size_t n, bool one_line)
{
    if (n == 0)
        return buf_append_string(ret, "\xef\xbf\xbd");
    unsigned code = code_point(data, n);
    bool is_blank = code == '\n' || code == '\t' || code == '\r';
    if (one_line && is_blank)
        return buf_append_string(ret, " ");
    if (code == '\n' || code == '\t')
        return buf_append(ret, data, n);
    if (!is_shown_as_code(code))
        return buf_append(ret, data, n);
    return code < 0x100 ? buf_appendf(ret, "\\x%02x", code) : buf_appendf(ret, "\\u%04x", code);
}

int cli_text_append(struct buf *ret, const char *data, size_t len, bool one_line, size_t max_bytes)
{
    size_t taken = len < max_bytes ? len : max_bytes;
    for (size_t at = 0; at < taken;) {
        size_t n = utf8_sequence(data + at, len - at);
        /* the end of a line of CRLF is a line end, not a control */
        bool is_crlf = !one_line && data[at] == '\r' && at + 1 < len && data[at + 1] == '\n';
        int result = is_crlf ? 0 : append_one(ret, data + at, n, one_line);
        if (result < 0)
            return result;
        at += n ? n : 1;
    }
    return taken < len ? buf_append_string(ret, "...") : 0;
}

/* How many bytes at the end belong to a character, or to a line end of CRLF, that may go on. */
static size_t open_tail(const char *data, size_t len)
{
    if (len && data[len - 1] == '\r')
        return 1;
    for (size_t i = 1; i <= 3 && i <= len; i++) {
        unsigned char c = (unsigned char)data[len - i];
        if ((c & 0xc0) == 0x80)
            continue;
        size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        return need > i ? i : 0;
    }
    return 0;
}

static void write_safe(FILE *out, const char *data, size_t len)
{
    struct buf text = BUF_INIT(6 * len + 1); /* the longest form of a byte has six */
    if (cli_text_append(&text, data, len, false, len) == 0)
        fwrite(buf_text(&text), 1, text.len, out);
    buf_free(&text);
}

void cli_write_json(FILE *out, const char *data, size_t len)
{
    for (size_t at = 0, n; at < len; at += n) {
        n = utf8_sequence(data + at, len - at);
        unsigned code = n ? code_point(data + at, n) : 0;
        n = n ? n : 1;
        if (code < 0x7f || !is_shown_as_code(code)) /* below, JSON has escapes of its own */
            fwrite(data + at, 1, n, out);
        else if (code < 0x10000)
            fprintf(out, "\\u%04x", code);
        else /* a pair of surrogates */
            fprintf(out, "\\u%04x\\u%04x", 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));
    }
}

/* The piece of a string's inside; the writer's string with its quotes taken off. */
static void write_json_piece(FILE *out, const char *data, size_t len)
{
    cleanup_buf struct buf text = BUF_INIT(3 * len + 1);
    cleanup_buf struct buf json = BUF_INIT(18 * len + 16);
    if (utf8_append_lossy(&text, data, len) < 0)
        return;
    struct json_writer *writer = json_writer_new(&json, false);
    if (!writer)
        return;
    json_write_bytes(writer, buf_text(&text), text.len);
    if (json_writer_end(writer) == 0 && json.len > 2)
        cli_write_json(out, json.data + 1, json.len - 2);
}

static void write_json_key(struct cli_writer *writer)
{
    if (!writer->is_begun)
        fprintf(writer->out, "{\"%s\":\"", writer->json_key);
    writer->is_begun = true;
}

void cli_writer_feed(struct cli_writer *writer, const char *data, size_t len)
{
    char piece[16 * 1024];
    if (!writer->json_key && !isatty(fileno(writer->out))) {
        fwrite(data, 1, len, writer->out);
        return;
    }
    if (writer->json_key)
        write_json_key(writer);
    while (len > 0) {
        size_t n = sizeof(piece) - writer->held_len;
        n = n < len ? n : len;
        memcpy(piece, writer->held, writer->held_len);
        memcpy(piece + writer->held_len, data, n);
        size_t total = writer->held_len + n;
        size_t tail = open_tail(piece, total);
        if (writer->json_key)
            write_json_piece(writer->out, piece, total - tail);
        else
            write_safe(writer->out, piece, total - tail);
        memcpy(writer->held, piece + total - tail, tail);
        writer->held_len = tail;
        data += n;
        len -= n;
    }
}

void cli_writer_end(struct cli_writer *writer, bool is_good)
{
    if (writer->held_len && writer->json_key)
        write_json_piece(writer->out, writer->held, writer->held_len);
    else if (writer->held_len)
        write_safe(writer->out, writer->held, writer->held_len);
    writer->held_len = 0;
    if (writer->json_key && is_good)
        write_json_key(writer);
    if (writer->json_key && writer->is_begun)
        fputs("\"}\n", writer->out);
}

void cli_print_json(const struct buf *document)
{
    const char *text = buf_text(document);
    size_t len = document->len;
    while (len && (text[len - 1] == '\n' || text[len - 1] == ' '))
        len--;
    bool is_json = len && (text[0] == '{' || text[0] == '[');
    cli_write_json(stdout, is_json ? text : "{}", is_json ? len : 2);
    putchar('\n');
}

void cli_write(FILE *out, const char *data, size_t len)
{
    struct cli_writer writer = {.out = out};
    cli_writer_feed(&writer, data, len);
    cli_writer_end(&writer, true);
}

void cli_write_cell(FILE *out, const char *text, int width)
{
    struct buf cell = BUF_INIT(6 * CELL_MAX_BYTES + 8);
    (void)cli_text_append(&cell, text, strlen(text), true, CELL_MAX_BYTES);
    fprintf(out, "%-*s", width, buf_text(&cell));
    buf_free(&cell);
}
