/* paddock egress: the requests of a sandbox, a line each, as the audit has them. */
#include <stdlib.h>
#include <string.h>

#include "cli/table.h"
#include "util/cleanup.h"
#include "util/limits.h"

#define SIZE_TEXT 24

static void size_text(int64_t bytes, char ret[SIZE_TEXT])
{
    static const char units[] = "kMGTP";
    double size = (double)bytes;
    int unit = -1;
    while (size >= 999.5 && unit < 4) {
        size /= 1024;
        unit++;
    }
    if (unit < 0)
        snprintf(ret, SIZE_TEXT, "%d", (int)bytes);
    else
        snprintf(ret, SIZE_TEXT, size < 9.95 ? "%.1f%c" : "%.0f%c", size, units[unit]);
}

static const char *text_of(const struct json *line, const char *key)
{
    const char *text = json_text(json_get(line, key));
    return text ? text : "-";
}

static void print_heading(void)
{
    printf("%s%-20s %-6s %-4s %8s %8s  %-14s %-6s %s%s\n", cli_color(stdout, CLI_COLOR_BOLD),
           "TIME (UTC)", "STATUS", "TASK", "BYTES", "MS", "RULE", "METHOD", "TARGET",
           cli_color(stdout, CLI_COLOR_NONE));
}

/* What was not as it should be comes last: why, and who ended it. */
static void print_line(const struct json *line)
{
    char size[SIZE_TEXT], task[24] = "-", day[12], clock[12];
    const char *time = text_of(line, "time"), *reason = text_of(line, "reason");
    int64_t number = json_integer(json_get(line, "task"));
    bool is_good = strcmp(text_of(line, "decision"), "allowed") == 0;
    cleanup_buf struct buf target = BUF_INIT(2 * LIMIT_AUDIT_LINE_BYTES);
    snprintf(day, sizeof(day), "%.10s", time);
    snprintf(clock, sizeof(clock), "%.8s", strlen(time) > 11 ? time + 11 : "");
    size_text(json_integer(json_get(line, "bytes_in")) + json_integer(json_get(line, "bytes_out")),
              size);
    if (number > 0)
        snprintf(task, sizeof(task), "%lld", (long long)number);
    fputs(is_good ? "" : cli_color(stdout, CLI_COLOR_RED), stdout);
    cli_write_cell(stdout, day, 11);
    cli_write_cell(stdout, clock, 10);
    printf("%-6lld %-4s %8s %8lld  ", (long long)json_integer(json_get(line, "status")), task, size,
           (long long)json_integer(json_get(line, "duration_ms")));
    cli_write_cell(stdout, text_of(line, "rule"), 15);
    cli_write_cell(stdout, text_of(line, "method"), 7);
    if (buf_appendf(&target, "%s%s", text_of(line, "host"), text_of(line, "path")) == 0)
        cli_write_cell(stdout, buf_text(&target), 0);
    if (reason[0] && strcmp(reason, "-") != 0) {
        fputs("  ", stdout);
        cli_write_cell(stdout, reason, 0);
    }
    printf("%s\n", is_good ? "" : cli_color(stdout, CLI_COLOR_NONE));
}

/* ----------------------------------------------------------------------------------- follow */

static void on_data(void *ctx, const char *event, const char *text, size_t len)
{
    const bool *is_json = ctx;
    cleanup_json struct json *json = NULL;
    (void)event;
    if (json_parse(text, len, JSON_STRICT, &json, NULL) < 0)
        return;
    if (*is_json) {
        cli_write_json(stdout, text, len);
        putchar('\n');
    } else if (json_get(json, "lost")) {
        printf("%lld requests are not shown: they came faster than they could be\n",
               (long long)json_integer(json_get(json, "lost")));
    } else {
        print_line(json);
    }
}

static enum cli_exit follow_lines(const struct cli *cli, const char *path, struct err *err)
{
    bool is_json = cli->values[OPTION_JSON] != NULL;
    struct cli_sse sse = {
        .line = BUF_INIT(2 * LIMIT_AUDIT_LINE_BYTES), .on_data = on_data, .ctx = &is_json};
    cleanup_reply struct cli_reply reply = {0};
    struct cli_request request = {
        .method = "GET", .path = path, .stream = cli_sse_feed, .ctx = &sse};
    cli_catch_interrupt();
    if (!is_json)
        print_heading();
    fflush(stdout);
    enum cli_exit status = cli_ask(cli, &request, &reply, err);
    buf_free(&sse.line);
    return cli_is_interrupted() ? CLI_INTERRUPTED : status;
}

enum cli_exit cmd_egress(struct cli *cli, struct err *err)
{
    char path[192];
    cleanup_json struct json *json = NULL;
    const char *limit = cli->values[OPTION_LIMIT];
    bool is_followed = cli->values[OPTION_FOLLOW] != NULL;
    if (limit && (!limit[0] || strlen(limit) > 6 || limit[strspn(limit, "0123456789")]))
        return cli_fail(err, CLI_USAGE, "--limit is a number of lines, up to %d",
                        LIMIT_AUDIT_LINES);
    snprintf(path, sizeof(path), "/sandboxes/%s/egress?limit=%s%s", cli->args[0],
             limit ? limit : "100", is_followed ? "&follow=1" : "");
    if (is_followed)
        return follow_lines(cli, path, err);
    enum cli_exit status = cli_get(cli, path, &json, err);
    if (status != CLI_OK || !json)
        return status;
    if (json_count(json) == 0)
        fprintf(stderr, "no requests were made\n");
    else
        print_heading();
    for (size_t i = 0; i < json_count(json); i++)
        print_line(json_at(json, i));
    return CLI_OK;
}
