/* The scanner of an agent's lines; see scan.h. Runs in api on foreign bytes. A push-down automaton:
 * one state per place in the grammar, one bit per open container, no recursion, no allocation but
 * the bounded texts of wanted values. The last of two equal keys counts, as in JSON.parse. */
#include "agent/scan.h"

#include <string.h>

enum scan_state {
    SCAN_VALUE,       /* a value must come */
    SCAN_FIRST_VALUE, /* a value or "]" */
    SCAN_FIRST_KEY,   /* a key or "}" */
    SCAN_KEY,         /* a key must come */
    SCAN_COLON,       /* ":" must come */
    SCAN_AFTER,       /* "," or the end of the container */
    SCAN_IN_STRING,   /* of a key or a value */
    SCAN_IN_LITERAL,  /* true, false, null */
    SCAN_IN_NUMBER,   /* digits and what stands between them */
    SCAN_DONE,        /* the line's value is complete */
};

void scan_init(struct scan *scan, const char *const *paths, struct scan_value *values, size_t count)
{
    memset(scan, 0, sizeof(*scan));
    scan->paths = paths;
    scan->values = values;
    scan->count = count;
}

void scan_free(struct scan *scan)
{
    for (size_t i = 0; i < scan->count; i++)
        buf_free(&scan->values[i].text);
}

static void scan_value_reset(struct scan_value *value)
{
    value->kind = SCAN_ABSENT;
    value->is_cut = false;
    buf_clear(&value->text);
}

void scan_next_line(struct scan *scan)
{
    for (size_t i = 0; i < scan->count; i++)
        scan_value_reset(&scan->values[i]);
    scan->state = SCAN_VALUE;
    scan->is_broken = false;
    scan->depth = 0;
    scan->capture = NULL;
    scan->path[0] = '\0';
    scan->path_len[0] = 0;
}

static bool scan_in_array(const struct scan *scan)
{
    size_t level = scan->depth - 1;
    return scan->is_array[level / 8] >> (level % 8) & 1;
}

static void scan_append(struct scan *scan, const char *data, size_t len)
{
    struct scan_value *value = scan->capture;
    if (!value || value->is_cut)
        return;
    size_t room = value->text.max - value->text.len;
    if (len > room) {
        value->is_cut = true;
        len = room;
    }
    if (buf_append(&value->text, data, len) < 0)
        value->is_cut = true;
}

/* A path component of a key, byte by byte. Bytes that paths are made of, and what is too long,
 * become a byte that no wanted path has, so that no key can pass for a nested one. */
static void scan_append_path(struct scan *scan, const char *data, size_t len)
{
    size_t at = strlen(scan->path);
    for (size_t i = 0; i < len; i++) {
        if (at + 1 >= SCAN_PATH_BYTES) {
            scan->path[at - 1] = '\x01';
            return;
        }
        char shown = data[i];
        if (strchr(".[]", shown))
            shown = '\x01';
        scan->path[at++] = shown;
        scan->path[at] = '\0';
    }
}

static bool scan_has_path(const struct scan *scan)
{
    return scan->depth <= SCAN_PATH_LEVELS;
}

/* The path of the container, ready for the name of what comes in it. */
static void scan_path_in_container(struct scan *scan, const char *element)
{
    if (!scan_has_path(scan))
        return;
    size_t len = scan->path_len[scan->depth];
    scan->path[len] = '\0';
    if (len + sizeof(".[]") > SCAN_PATH_BYTES)
        return; /* longer than any wanted path already */
    if (len)
        scan->path[len++] = '.';
    memcpy(scan->path + len, element, strlen(element) + 1);
}

static struct scan_value *scan_wanted(struct scan *scan)
{
    if (scan->depth == 0 || !scan_has_path(scan))
        return NULL;
    for (size_t i = 0; i < scan->count; i++)
        if (strcmp(scan->paths[i], scan->path) == 0)
            return &scan->values[i];
    return NULL;
}

static void scan_after_value(struct scan *scan)
{
    scan->state = scan->depth ? SCAN_AFTER : SCAN_DONE;
    scan->capture = NULL;
}

static void scan_open(struct scan *scan, bool is_array)
{
    if (scan->depth == LIMIT_AGENT_NESTING) {
        scan->is_broken = true;
        return;
    }
    size_t level = scan->depth++;
    uint8_t bit = (uint8_t)(1U << (level % 8));
    if (is_array)
        scan->is_array[level / 8] |= bit;
    else
        scan->is_array[level / 8] &= (uint8_t)~bit;
    if (scan_has_path(scan))
        scan->path_len[scan->depth] = strlen(scan->path);
    if (is_array)
        scan_path_in_container(scan, "[]");
    scan->state = is_array ? SCAN_FIRST_VALUE : SCAN_FIRST_KEY;
}

static void scan_close(struct scan *scan, bool is_array)
{
    if (scan->depth == 0 || scan_in_array(scan) != is_array) {
        scan->is_broken = true;
        return;
    }
    scan->depth--;
    if (scan->depth && scan_in_array(scan))
        scan_path_in_container(scan, "[]");
    scan_after_value(scan);
}

static void scan_begin_string(struct scan *scan, bool is_key)
{
    scan->state = SCAN_IN_STRING;
    scan->is_key = is_key;
    scan->escape = 0;
    scan->high_surrogate = 0;
    if (is_key)
        scan_path_in_container(scan, "");
}

static void scan_begin_value(struct scan *scan, char c)
{
    enum scan_kind kind = SCAN_OTHER;
    if (c == '"')
        kind = SCAN_STRING;
    else if (c == 't')
        kind = SCAN_TRUE;
    else if (c == 'f')
        kind = SCAN_FALSE;
    else if (c == 'n')
        kind = SCAN_NULL;
    struct scan_value *value = scan_wanted(scan);
    if (value) {
        scan_value_reset(value);
        value->kind = kind;
    }
    scan->capture = kind == SCAN_STRING ? value : NULL;
    if (kind == SCAN_STRING) {
        scan_begin_string(scan, false);
    } else if (kind != SCAN_OTHER) {
        scan->literal = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
        scan->state = SCAN_IN_LITERAL;
    } else if (c == '{' || c == '[') {
        scan_open(scan, c == '[');
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        scan->state = SCAN_IN_NUMBER;
    } else {
        scan->is_broken = true;
    }
}

static void scan_text(struct scan *scan, const char *data, size_t len)
{
    if (scan->high_surrogate) { /* its other half did not come */
        scan->high_surrogate = 0;
        scan_text(scan, "\xef\xbf\xbd", 3); /* NOLINT(misc-no-recursion): once */
    }
    if (!scan->is_key)
        scan_append(scan, data, len);
    else if (scan_has_path(scan))
        scan_append_path(scan, data, len);
}

static void scan_code_point(struct scan *scan, uint32_t code)
{
    if (code >= 0xd800 && code < 0xdc00) {
        if (scan->high_surrogate)
            scan_text(scan, "", 0);
        scan->high_surrogate = code;
        return;
    }
    if (code >= 0xdc00 && code < 0xe000) {
        uint32_t high = scan->high_surrogate;
        scan->high_surrogate = 0;
        code = high ? 0x10000 + ((high - 0xd800) << 10) + (code - 0xdc00) : 0xfffd;
    }
    char bytes[4];
    size_t len = 1;
    if (code < 0x80) {
        bytes[0] = (char)code;
    } else if (code < 0x800) {
        bytes[0] = (char)(0xc0 | code >> 6);
        bytes[1] = (char)(0x80 | (code & 0x3f));
        len = 2;
    } else if (code < 0x10000) {
        bytes[0] = (char)(0xe0 | code >> 12);
        bytes[1] = (char)(0x80 | (code >> 6 & 0x3f));
        bytes[2] = (char)(0x80 | (code & 0x3f));
        len = 3;
    } else {
        bytes[0] = (char)(0xf0 | code >> 18);
        bytes[1] = (char)(0x80 | (code >> 12 & 0x3f));
        bytes[2] = (char)(0x80 | (code >> 6 & 0x3f));
        bytes[3] = (char)(0x80 | (code & 0x3f));
        len = 4;
    }
    scan_text(scan, bytes, len);
}

static void scan_escape(struct scan *scan, char c)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    if (scan->escape == 1) {
        const char *found = c ? strchr(from, c) : NULL;
        if (c == 'u') {
            scan->escape = 5;
            scan->code = 0;
        } else if (found) {
            scan->escape = 0;
            scan_text(scan, &to[found - from], 1);
        } else {
            scan->is_broken = true;
        }
        return;
    }
    uint32_t digit;
    if (c >= '0' && c <= '9')
        digit = (uint32_t)(c - '0');
    else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        digit = (uint32_t)((c | 0x20) - 'a') + 10;
    else {
        scan->is_broken = true;
        return;
    }
    scan->code = scan->code << 4 | digit;
    if (--scan->escape == 1) {
        scan->escape = 0;
        scan_code_point(scan, scan->code);
    }
}

static void scan_end_string(struct scan *scan)
{
    if (scan->high_surrogate)
        scan_text(scan, "", 0);
    if (scan->is_key)
        scan->state = SCAN_COLON;
    else
        scan_after_value(scan);
}

/* Takes the part of a string that is at the front; returns how many bytes. */
static size_t scan_string(struct scan *scan, const char *data, size_t len)
{
    if (scan->escape) {
        scan_escape(scan, data[0]);
        return 1;
    }
    size_t plain = 0;
    while (plain < len && data[plain] != '"' && data[plain] != '\\' &&
           (unsigned char)data[plain] >= 0x20)
        plain++;
    if (plain) {
        scan_text(scan, data, plain);
        return plain;
    }
    if (data[0] == '"')
        scan_end_string(scan);
    else if (data[0] == '\\')
        scan->escape = 1;
    else
        scan->is_broken = true;
    return 1;
}

static void scan_between(struct scan *scan, char c)
{
    switch ((enum scan_state)scan->state) {
    case SCAN_FIRST_VALUE:
        if (c == ']')
            scan_close(scan, true);
        else
            scan_begin_value(scan, c);
        break;
    case SCAN_VALUE:
        scan_begin_value(scan, c);
        break;
    case SCAN_FIRST_KEY:
    case SCAN_KEY:
        if (c == '"')
            scan_begin_string(scan, true);
        else if (c == '}' && scan->state == SCAN_FIRST_KEY)
            scan_close(scan, false);
        else
            scan->is_broken = true;
        break;
    case SCAN_COLON:
        scan->is_broken |= c != ':';
        scan->state = SCAN_VALUE;
        break;
    case SCAN_AFTER:
        if (c == ',')
            scan->state = scan_in_array(scan) ? SCAN_VALUE : SCAN_KEY;
        else if (c == ']' || c == '}')
            scan_close(scan, c == ']');
        else
            scan->is_broken = true;
        break;
    case SCAN_DONE:
    case SCAN_IN_STRING:
    case SCAN_IN_LITERAL:
    case SCAN_IN_NUMBER:
        scan->is_broken = true; /* bytes behind the value; the others do not come here */
        break;
    }
}

/* A number is skipped, its digits' order unchecked: none is ever wanted. Returns bytes taken. */
static size_t scan_number(struct scan *scan, char c)
{
    if ((c >= '0' && c <= '9') || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-')
        return 1;
    scan_after_value(scan);
    return 0;
}

void scan_feed(struct scan *scan, const char *data, size_t len)
{
    while (len && !scan->is_broken) {
        size_t taken = 1;
        char c = data[0];
        if (scan->state == SCAN_IN_STRING) {
            taken = scan_string(scan, data, len);
        } else if (scan->state == SCAN_IN_LITERAL) {
            scan->is_broken = *scan->literal != c;
            if (!scan->is_broken && !*++scan->literal)
                scan_after_value(scan);
        } else if (scan->state == SCAN_IN_NUMBER) {
            taken = scan_number(scan, c);
        } else if (c != ' ' && c != '\t' && c != '\r') {
            scan_between(scan, c);
        }
        data += taken;
        len -= taken;
    }
}

bool scan_end_line(struct scan *scan)
{
    bool is_number = scan->state == SCAN_IN_NUMBER && scan->depth == 0;
    return !scan->is_broken && (scan->state == SCAN_DONE || is_number);
}
