/* UTF-8; see utf8.h. */
#include "util/utf8.h"

static bool utf8_is_tail(const char *data, size_t len, size_t at)
{
    return at < len && ((unsigned char)data[at] & 0xc0) == 0x80;
}

size_t utf8_sequence(const char *data, size_t len)
{
    if (len == 0)
        return 0;
    unsigned char a = (unsigned char)data[0];
    if (a < 0x80)
        return 1;
    if (a < 0xc2 || a > 0xf4 || !utf8_is_tail(data, len, 1))
        return 0;
    unsigned char b = (unsigned char)data[1];
    if (a < 0xe0)
        return 2;
    if ((a == 0xe0 && b < 0xa0) || (a == 0xed && b > 0x9f) || (a == 0xf0 && b < 0x90) ||
        (a == 0xf4 && b > 0x8f) || !utf8_is_tail(data, len, 2))
        return 0;
    if (a < 0xf0)
        return 3;
    return utf8_is_tail(data, len, 3) ? 4 : 0;
}

bool utf8_is_valid(const char *data, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t n = utf8_sequence(data + at, len - at);
        if (n == 0)
            return false;
        at += n;
    }
    return true;
}

size_t utf8_begun(const char *data, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char c = (unsigned char)data[len - back];
        if ((c & 0xc0) == 0x80)
            continue;
        size_t whole = c >= 0xf0 && c <= 0xf4 ? 4 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xc2 ? 2 : 1;
        return c <= 0xf4 && whole > back ? back : 0;
    }
    return 0;
}

int utf8_append_lossy(struct buf *ret, const char *data, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t start = at;
        size_t n;
        while (at < len && (n = utf8_sequence(data + at, len - at)) > 0)
            at += n;
        int result = buf_append(ret, data + start, at - start);
        if (result < 0)
            return result;
        if (at < len) {
            result = buf_append(ret, "\xef\xbf\xbd", 3);
            if (result < 0)
                return result;
            at++;
        }
    }
    return 0;
}
