/*
 * The agent's events, one JSON object per line as Claude Code prints them (stream-json), in a form
 * for people: text as it is, one line per tool, retries, errors of tools. A line that is no event
 * is shown as it is. Foreign bytes throughout: everything goes through cli_text_append.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "json/json.h"

#define TOOL_LINE_BYTES 76 /* with "> " within 80 columns */

void cli_events_init(struct cli_events *events)
{
    *events = (struct cli_events){.line = BUF_INIT(LIMIT_CLI_LINE_BYTES)};
}

void cli_events_free(struct cli_events *events)
{
    buf_free(&events->line);
}

/* Output that does not fit is dropped: the log has it all. */
static void put(struct buf *out, const char *text)
{
    (void)buf_append_string(out, text);
}

static void put_foreign(struct buf *out, const char *text, bool one_line, size_t max_bytes)
{
    (void)cli_text_append(out, text, strlen(text), one_line, max_bytes);
}

static const char *text_of(const struct json *object, const char *key)
{
    const char *text = json_text(json_get(object, key));
    return text ? text : "";
}

static void show_start(const struct json *event, struct buf *out)
{
    put(out, "* started, model ");
    put_foreign(out, text_of(event, "model"), true, TOOL_LINE_BYTES);
    put(out, "\n");
}

static void show_retry(const struct json *event, struct buf *out)
{
    (void)buf_appendf(out, "* no answer of the model (");
    const struct json *status = json_get(event, "error_status");
    if (json_type(status) == JSON_INTEGER)
        (void)buf_appendf(out, "%lld, ", (long long)json_integer(status));
    put_foreign(out, text_of(event, "error"), true, TOOL_LINE_BYTES);
    (void)buf_appendf(out, "): try %lld of %lld in %.1f s\n",
                      (long long)json_integer(json_get(event, "attempt")),
                      (long long)json_integer(json_get(event, "max_retries")),
                      json_real(json_get(event, "retry_delay_ms")) / 1000);
}

/* What a tool is used on: the first of these that it was given. */
static const char *tool_object(const struct json *input)
{
    static const char *const keys[] = {"command", "file_path", "notebook_path", "pattern",
                                       "path",    "url",       "query",         "description"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const char *text = json_text(json_get(input, keys[i]));
        if (text)
            return text;
    }
    return "";
}

static void show_tool(const struct json *block, struct buf *out)
{
    const char *name = text_of(block, "name");
    put(out, "> ");
    put_foreign(out, name, true, TOOL_LINE_BYTES / 2);
    const char *object = tool_object(json_get(block, "input"));
    if (object[0]) {
        size_t used = strlen(name) < TOOL_LINE_BYTES / 2 ? strlen(name) : TOOL_LINE_BYTES / 2;
        put(out, " ");
        put_foreign(out, object, true, TOOL_LINE_BYTES - used - strlen("..."));
    }
    put(out, "\n");
}

static void show_text(const char *text, struct buf *out)
{
    size_t len = strlen(text);
    if (len == 0)
        return;
    put_foreign(out, text, false, LIMIT_CLI_EVENT_BYTES);
    if (text[len - 1] != '\n')
        put(out, "\n");
}

/* A tool's result is a string or a list of blocks of text. */
static void show_result_error(const struct json *block, struct buf *out)
{
    if (!json_bool(json_get(block, "is_error")))
        return;
    const struct json *content = json_get(block, "content");
    const char *text = json_text(content);
    if (!text)
        text = text_of(json_at(content, 0), "text");
    put(out, "  ! ");
    put_foreign(out, text, true, TOOL_LINE_BYTES - strlen("..."));
    put(out, "\n");
}

static void show_message(const struct json *event, struct buf *out)
{
    const struct json *content = json_get(json_get(event, "message"), "content");
    for (size_t i = 0; i < json_count(content); i++) {
        const struct json *block = json_at(content, i);
        const char *type = text_of(block, "type");
        if (strcmp(type, "text") == 0)
            show_text(text_of(block, "text"), out);
        else if (strcmp(type, "tool_use") == 0)
            show_tool(block, out);
        else if (strcmp(type, "tool_result") == 0)
            show_result_error(block, out);
    }
}

static void show_event(const struct json *event, struct buf *out)
{
    const char *type = text_of(event, "type");
    const char *subtype = text_of(event, "subtype");
    if (strcmp(type, "system") == 0 && strcmp(subtype, "init") == 0)
        show_start(event, out);
    else if (strcmp(type, "system") == 0 && strcmp(subtype, "api_retry") == 0)
        show_retry(event, out);
    else if (strcmp(type, "assistant") == 0 || strcmp(type, "user") == 0)
        show_message(event, out);
    /* "result" is told by the task's outcome; other events are of no use to people */
}

static void show_line(const char *line, size_t len, struct buf *out)
{
    cleanup_json struct json *event = NULL;
    if (json_parse(line, len, JSON_STRICT, &event, NULL) == 0 && json_type(event) == JSON_OBJECT) {
        show_event(event, out);
        return;
    }
    (void)cli_text_append(out, line, len, false, LIMIT_CLI_EVENT_BYTES);
    put(out, "\n");
}

static void end_line(struct cli_events *events, struct buf *out)
{
    if (events->is_skipping)
        put(out, "* (an event that is too long to show)\n");
    else
        show_line(buf_text(&events->line), events->line.len, out);
    events->is_skipping = false;
    buf_clear(&events->line);
}

void cli_events_feed(struct cli_events *events, const char *data, size_t len, struct buf *out)
{
    while (len > 0) {
        const char *end = memchr(data, '\n', len);
        size_t n = end ? (size_t)(end - data) : len;
        if (!events->is_skipping && buf_append(&events->line, data, n) < 0) {
            events->is_skipping = true;
            buf_free(&events->line);
        }
        if (end) {
            end_line(events, out);
            n++;
        }
        data += n;
        len -= n;
    }
}

void cli_events_end(struct cli_events *events, struct buf *out)
{
    if (events->is_skipping || events->line.len)
        end_line(events, out);
}
