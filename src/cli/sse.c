/* Server-sent events (HTML, section 9.2) of the daemon, whose lines end with a line feed alone. */
#include <string.h>

#include "cli/cli.h"

static bool begins(const struct buf *line, const char *name)
{
    return line->len >= strlen(name) && memcmp(line->data, name, strlen(name)) == 0;
}

static void on_line(struct cli_sse *sse)
{
    static const char event[] = "event: ", data[] = "data: ";
    const char *text = buf_text(&sse->line);
    if (!sse->line.len)
        sse->event[0] = '\0'; /* the end of one */
    else if (begins(&sse->line, event))
        snprintf(sse->event, sizeof(sse->event), "%s", text + sizeof(event) - 1);
    else if (begins(&sse->line, data))
        sse->on_data(sse->ctx, sse->event, text + sizeof(data) - 1,
                     sse->line.len - (sizeof(data) - 1));
}

void cli_sse_feed(void *ctx, const char *data, size_t len)
{
    struct cli_sse *sse = ctx;
    while (len) {
        const char *newline = memchr(data, '\n', len);
        size_t part = newline ? (size_t)(newline - data) : len;
        if (buf_append(&sse->line, data, part) < 0)
            buf_clear(&sse->line); /* longer than any of ours */
        if (newline) {
            on_line(sse);
            buf_clear(&sse->line);
        }
        data += part + (newline != NULL);
        len -= part + (newline != NULL);
    }
    fflush(stdout);
}
