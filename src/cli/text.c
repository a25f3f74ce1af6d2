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

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

void cli_write(FILE *out, const char *data, size_t len)
{
    if (!isatty(fileno(out))) {
        fwrite(data, 1, len, out);
        return;
    }
    /* pieces, so that a large answer needs no large buffer; each byte becomes at most six */
    enum { PIECE = 64 * 1024 };
    for (size_t at = 0; at < len;) {
        size_t piece = len - at < PIECE ? len - at : PIECE;
        /* never cut within a character */
        for (int i = 0; i < 3 && at + piece < len && is_continuation(data[at + piece]); i++)
            piece--;
        struct buf text = BUF_INIT(PIECE * 6);
        if (cli_text_append(&text, data + at, piece, false, piece) == 0)
            fwrite(buf_text(&text), 1, text.len, out);
        buf_free(&text);
        at += piece;
    }
}

void cli_write_cell(FILE *out, const char *text, int width)
{
    struct buf cell = BUF_INIT(6 * CELL_MAX_BYTES + 8);
    (void)cli_text_append(&cell, text, strlen(text), true, CELL_MAX_BYTES);
    fprintf(out, "%-*s", width, buf_text(&cell));
    buf_free(&cell);
}
