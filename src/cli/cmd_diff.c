/* paddock diff: all changes since the clone, as they come. */
#include <string.h>

#include "cli/cli.h"
#include "util/cleanup.h"
#include "json/json.h"

#define REVISION_MAX 255 /* as the daemon takes it */

/* Percent-encodes everything but letters and digits. */
static bool escape_query(const char *text, char *ret, size_t size)
{
    size_t len = 0;
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (len + 4 > size)
            return false;
        len += (size_t)snprintf(ret + len, size - len, is_plain ? "%c" : "%%%02X", c);
    }
    return true;
}

enum cli_exit cli_diff(const struct cli *cli, bool is_binary,
                       void (*on_data)(void *ctx, const char *data, size_t len), void *ctx,
                       struct err *err)
{
    char query[3 * REVISION_MAX + 64];
    char path[4 * REVISION_MAX + 128];
    char revision[3 * REVISION_MAX + 1] = "";
    cleanup_reply struct cli_reply reply = {0};
    cleanup_json struct json *json = NULL;
    const char *against = cli->values[OPTION_AGAINST];
    if (against && !escape_query(against, revision, sizeof(revision)))
        return cli_fail(err, CLI_USAGE, "a revision has at most %d bytes", REVISION_MAX);
    snprintf(query, sizeof(query), "%s%s%s%s", against ? "&against=" : "", revision,
             cli->values[OPTION_RENAMES] ? "&renames=1" : "", is_binary ? "&binary=1" : "");
    if (query[0])
        query[0] = '?';
    snprintf(path, sizeof(path), "/sandboxes/%s/diff%s", cli->args[0], query);
    struct cli_request request = {.method = "GET", .path = path, .stream = on_data, .ctx = ctx};
    enum cli_exit status = cli_call(cli, &request, &reply, err);
    if (status != CLI_OK || (reply.status >= 200 && reply.status < 300))
        return status;
    /* 502 is JSON: {"exitCode", "stdout", "stderr"} */
    if (reply.status == 502 &&
        json_parse(buf_text(&reply.body), reply.body.len, JSON_STRICT, &json, NULL) == 0 &&
        json_text(json_get(json, "stderr")))
        return cli_fail(err, CLI_FAILED, "%s: %s", cli->args[0],
                        json_text(json_get(json, "stderr")));
    return cli_refused(cli, &reply, err);
}

struct view {
    struct cli_writer writer;
    bool is_in_line;
};

/* By the first letter of a line of a diff. */
static const char *line_color(char first)
{
    return first == '+'   ? cli_color(stdout, CLI_COLOR_GREEN)
           : first == '-' ? cli_color(stdout, CLI_COLOR_RED)
           : first == '@' ? cli_color(stdout, CLI_COLOR_CYAN)
           : first == 'd' ? cli_color(stdout, CLI_COLOR_BOLD)
                          : "";
}

static void on_diff(void *ctx, const char *data, size_t len)
{
    struct view *view = ctx;
    const char *end = cli_color(stdout, CLI_COLOR_NONE);
    if (!end[0] || view->writer.json_key) {
        cli_writer_feed(&view->writer, data, len);
        return;
    }
    while (len > 0) {
        const char *newline = memchr(data, '\n', len);
        size_t n = newline ? (size_t)(newline - data) : len;
        if (!view->is_in_line && n > 0)
            fputs(line_color(data[0]), stdout);
        cli_writer_feed(&view->writer, data, n);
        view->is_in_line = !newline;
        if (newline) {
            fputs(end, stdout);
            cli_writer_feed(&view->writer, "\n", 1);
            n++;
        }
        data += n;
        len -= n;
    }
}

enum cli_exit cmd_diff(struct cli *cli, struct err *err)
{
    struct view view = {
        .writer = {.out = stdout, .json_key = cli->values[OPTION_JSON] ? "diff" : NULL}};
    enum cli_exit status = cli_diff(cli, cli->values[OPTION_BINARY] != NULL, on_diff, &view, err);
    if (view.is_in_line)
        fputs(cli_color(stdout, CLI_COLOR_NONE), stdout);
    cli_writer_end(&view.writer, status == CLI_OK);
    return status;
}
