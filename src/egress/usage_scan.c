/*
 * See usage_scan.h. Runs in paddock-egress on the bytes of an upstream. A state machine over RFC
 * 8259 that knows the few paths of interest as a table and keeps no more than one short text; the
 * paths begin at the root, so that nothing inside a model's text or a tool's input is taken for
 * them. Every number is the last one that was told: those of a stream are cumulative.
 */
#include "egress/usage_scan.h"

#include <ctype.h>
#include <string.h>

#include "util/cleanup.h"

enum {
    STATE_VALUE,
    STATE_VALUE_OR_END, /* of an array */
    STATE_KEY_OR_END,
    STATE_KEY,
    STATE_COLON,
    STATE_AFTER, /* a value in a container */
    STATE_STRING,
    STATE_ESCAPE,
    STATE_HEX,
    STATE_NUMBER,
    STATE_LITERAL,
    STATE_SKIP, /* below SCAN_DEPTH */
    STATE_DONE,
};

enum node {
    NODE_OTHER,
    NODE_ROOT,
    NODE_MESSAGE,
    NODE_USAGE,
    NODE_DETAILS,
    NODE_PIECE,
    VALUE_MODEL,
    VALUE_INPUT,
    VALUE_OUTPUT,
    VALUE_CREATION,
    VALUE_READ,
    VALUE_CACHED,
};

#define ANTHROPIC (1U << POLICY_USAGE_ANTHROPIC | 1U << POLICY_USAGE_AUTO)
#define OPENAI (1U << POLICY_USAGE_OPENAI | 1U << POLICY_USAGE_AUTO)
#define EITHER (ANTHROPIC | 1U << POLICY_USAGE_OPENAI)

static const struct {
    uint8_t parent;
    uint8_t child;
    unsigned shapes;
    const char *key;
} members[] = {
    {NODE_ROOT, NODE_USAGE, EITHER, "usage"},
    {NODE_ROOT, VALUE_MODEL, EITHER, "model"},
    {NODE_ROOT, NODE_MESSAGE, ANTHROPIC, "message"}, /* of message_start */
    {NODE_ROOT, NODE_MESSAGE, OPENAI, "response"},   /* of response.completed */
    {NODE_ROOT, NODE_PIECE, EITHER, "delta"},
    {NODE_ROOT, NODE_PIECE, OPENAI, "choices"},
    {NODE_MESSAGE, NODE_USAGE, EITHER, "usage"},
    {NODE_MESSAGE, VALUE_MODEL, EITHER, "model"},
    {NODE_USAGE, VALUE_INPUT, EITHER, "input_tokens"},
    {NODE_USAGE, VALUE_OUTPUT, EITHER, "output_tokens"},
    {NODE_USAGE, VALUE_CREATION, ANTHROPIC, "cache_creation_input_tokens"},
    {NODE_USAGE, VALUE_READ, ANTHROPIC, "cache_read_input_tokens"},
    {NODE_USAGE, VALUE_INPUT, OPENAI, "prompt_tokens"},
    {NODE_USAGE, VALUE_OUTPUT, OPENAI, "completion_tokens"},
    {NODE_USAGE, NODE_DETAILS, OPENAI, "input_tokens_details"},
    {NODE_USAGE, NODE_DETAILS, OPENAI, "prompt_tokens_details"},
    {NODE_DETAILS, VALUE_CACHED, OPENAI, "cached_tokens"},
};

static void scan_begin(struct usage_scan *scan)
{
    scan->is_broken = false;
    scan->state = STATE_VALUE;
    scan->depth = 0;
    scan->skipped = 0;
    scan->value = NODE_ROOT;
}

void usage_scan_init(struct usage_scan *scan, enum policy_usage shape, bool is_events)
{
    *scan = (struct usage_scan){.shape = shape, .is_events = is_events};
    scan_begin(scan);
}

static bool scan_text_is(const struct usage_scan *scan, const char *text)
{
    return scan->is_plain && strlen(text) == scan->text_len &&
           memcmp(scan->text, text, scan->text_len) == 0;
}

static void scan_take_key(struct usage_scan *scan)
{
    scan->value = NODE_OTHER;
    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        if (members[i].parent == scan->nodes[scan->depth] &&
            (members[i].shapes & 1U << scan->shape) && scan_text_is(scan, members[i].key))
            scan->value = members[i].child;
    scan->has_piece = scan->has_piece || scan->value == NODE_PIECE;
}

/* A model's name goes into labels and onto terminals: printable, no quotes. */
static void scan_take_model(struct usage_scan *scan)
{
    for (size_t i = 0; i < scan->text_len; i++)
        if (!isalnum((unsigned char)scan->text[i]) && !strchr("-._:/@", scan->text[i]))
            return;
    if (!scan->is_plain || scan->text_len == 0 || scan->text_len >= USAGE_MODEL_MAX)
        return;
    memcpy(scan->tokens.model, scan->text, scan->text_len);
    scan->tokens.model[scan->text_len] = '\0';
}

/* Twelve digits: no answer has more tokens, and no sum of them overflows. */
static void scan_take_number(struct usage_scan *scan)
{
    int64_t number = 0;
    if (!scan->is_plain || scan->text_len == 0 || scan->text_len > 12)
        return;
    for (size_t i = 0; i < scan->text_len; i++) {
        if (!isdigit((unsigned char)scan->text[i]))
            return;
        number = number * 10 + (scan->text[i] - '0');
    }
    struct usage_tokens *tokens = &scan->tokens;
    switch (scan->value) {
    case VALUE_INPUT:
        tokens->input = number;
        break;
    case VALUE_OUTPUT:
        tokens->output = number;
        scan->untold = 0;
        scan->has_piece = false;
        break;
    case VALUE_CREATION:
        tokens->cache_creation = number;
        break;
    case VALUE_READ:
        tokens->cache_read = number;
        break;
    case VALUE_CACHED:
        tokens->cache_read = number;
        scan->input_has_cached = true;
        break;
    default:
        return;
    }
    scan->has_usage = true;
}

static void scan_value_ended(struct usage_scan *scan)
{
    scan->state = scan->depth ? STATE_AFTER : STATE_DONE;
}

static void scan_enter(struct usage_scan *scan, bool is_array)
{
    if (scan->depth == SCAN_DEPTH - 1) {
        scan->skipped = 1;
        scan->state = STATE_SKIP;
        return;
    }
    scan->depth++;
    uint64_t bit = UINT64_C(1) << scan->depth;
    scan->arrays = is_array ? scan->arrays | bit : scan->arrays & ~bit;
    scan->nodes[scan->depth] = is_array ? NODE_OTHER : scan->value;
    scan->value = NODE_OTHER;
    scan->state = is_array ? STATE_VALUE_OR_END : STATE_KEY_OR_END;
}

static void scan_leave(struct usage_scan *scan, bool is_array)
{
    bool was_array = scan->arrays >> scan->depth & 1;
    if (scan->depth == 0 || was_array != is_array) {
        scan->is_broken = true;
        return;
    }
    scan->depth--;
    scan_value_ended(scan);
}

static void scan_begin_text(struct usage_scan *scan, int state, bool is_key)
{
    scan->state = state;
    scan->is_key = is_key;
    scan->is_plain = true;
    scan->text_len = 0;
}

static void scan_add(struct usage_scan *scan, char c)
{
    if (scan->text_len < sizeof(scan->text))
        scan->text[scan->text_len++] = c;
    else
        scan->is_plain = false;
}

static void scan_string_ended(struct usage_scan *scan)
{
    if (scan->skipped) {
        scan->state = STATE_SKIP;
        return;
    }
    if (scan->is_key) {
        scan_take_key(scan);
        scan->state = STATE_COLON;
        return;
    }
    if (scan->value == VALUE_MODEL)
        scan_take_model(scan);
    scan_value_ended(scan);
}

static void scan_value(struct usage_scan *scan, char c)
{
    if (c == ']' && scan->state == STATE_VALUE_OR_END)
        scan_leave(scan, true);
    else if (c == '{' || c == '[')
        scan_enter(scan, c == '[');
    else if (c == '"')
        scan_begin_text(scan, STATE_STRING, false);
    else if (c == '-' || isdigit((unsigned char)c)) {
        scan_begin_text(scan, STATE_NUMBER, false);
        scan_add(scan, c);
    } else if (c == 't' || c == 'f' || c == 'n') {
        scan_begin_text(scan, STATE_LITERAL, false);
        scan_add(scan, c);
    } else
        scan->is_broken = true;
}

static void scan_structure(struct usage_scan *scan, char c)
{
    bool is_array = scan->depth && (scan->arrays >> scan->depth & 1);
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
        return;
    if (scan->state == STATE_VALUE || scan->state == STATE_VALUE_OR_END)
        scan_value(scan, c);
    else if (scan->state == STATE_COLON && c == ':')
        scan->state = STATE_VALUE;
    else if ((scan->state == STATE_KEY || scan->state == STATE_KEY_OR_END) && c == '"')
        scan_begin_text(scan, STATE_STRING, true);
    else if (scan->state == STATE_KEY_OR_END && c == '}')
        scan_leave(scan, false);
    else if (scan->state == STATE_AFTER && c == ',') {
        scan->state = is_array ? STATE_VALUE : STATE_KEY;
        scan->value = NODE_OTHER;
    } else if (scan->state == STATE_AFTER && (c == '}' || c == ']'))
        scan_leave(scan, c == ']');
    else
        scan->is_broken = true;
}

/* A sandbox can make an answer repeat what it sent (its tools), and that may be as deep as it
 * likes: the brackets are counted, not looked at. */
static void scan_skip(struct usage_scan *scan, char c)
{
    if (c == '"')
        scan_begin_text(scan, STATE_STRING, false);
    else if (c == '{' || c == '[')
        scan->skipped++;
    else if ((c == '}' || c == ']') && --scan->skipped == 0)
        scan_value_ended(scan);
}

/* In a string. */
static void scan_string(struct usage_scan *scan, char c)
{
    if (scan->state == STATE_HEX) {
        scan->is_broken = !isxdigit((unsigned char)c);
        scan->state = --scan->hex ? STATE_HEX : STATE_STRING;
    } else if (scan->state == STATE_ESCAPE) {
        scan->is_broken = !strchr("\"\\/bfnrtu", c) || !c;
        scan->hex = 4;
        scan->state = c == 'u' ? STATE_HEX : STATE_STRING;
    } else if (c == '"')
        scan_string_ended(scan);
    else if (c == '\\') {
        scan->is_plain = false;
        scan->state = STATE_ESCAPE;
    } else if ((unsigned char)c < 0x20)
        scan->is_broken = true;
    else
        scan_add(scan, c);
}

static bool scan_is_literal(const struct usage_scan *scan)
{
    return scan_text_is(scan, "true") || scan_text_is(scan, "false") || scan_text_is(scan, "null");
}

static void scan_byte(struct usage_scan *scan, char c)
{
    if (scan->is_broken)
        return;
    if (scan->state == STATE_STRING || scan->state == STATE_ESCAPE || scan->state == STATE_HEX) {
        scan_string(scan, c);
        return;
    }
    if (scan->state == STATE_SKIP) {
        scan_skip(scan, c);
        return;
    }
    if (scan->state == STATE_NUMBER || scan->state == STATE_LITERAL) {
        if (isalnum((unsigned char)c) || (c && strchr("+-.", c))) {
            scan_add(scan, c);
            return;
        }
        if (scan->state == STATE_NUMBER)
            scan_take_number(scan);
        else if (!scan_is_literal(scan))
            scan->is_broken = true;
        scan_value_ended(scan);
    }
    if (!scan->is_broken)
        scan_structure(scan, c);
}

/* Lines "data: JSON" (WHATWG HTML, server-sent events); what is no JSON, such as "[DONE]", is
 * skipped. Each such line of the gateways is a document of its own. */
static void scan_event_byte(struct usage_scan *scan, char c)
{
    static const char data[] = "data:";
    if (c == '\n' || c == '\r') {
        if (scan->line == (int)strlen(data))
            scan_byte(scan, ' '); /* ends a number */
        scan->line = 0;
        scan->untold += scan->has_piece;
        scan->has_piece = false;
        scan_begin(scan);
    } else if (scan->line == (int)strlen(data))
        scan_byte(scan, c);
    else if (scan->line >= 0)
        scan->line = c == data[scan->line] ? scan->line + 1 : -1;
}

void usage_scan_feed(struct usage_scan *scan, const char *data, size_t len)
{
    scan->bytes += (int64_t)len;
    for (size_t i = 0; i < len; i++) {
        if (scan->is_events)
            scan_event_byte(scan, data[i]);
        else
            scan_byte(scan, data[i]);
    }
}
