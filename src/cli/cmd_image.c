/* paddock image build, ls, rm. */
#include <stdlib.h>
#include <string.h>

#include "cli/progress.h"
#include "cli/table.h"
#include "util/cleanup.h"
#include "util/limits.h"

/* The log of a build. Its last line is JSON and tells the outcome; so a line that begins with "{"
 * is printed only when another follows. */
struct build_log {
    FILE *out;
    struct buf line; /* begun, or held back */
    bool is_held;    /* whole: the next byte begins another */
    struct cli_progress progress;
    unsigned long step, steps; /* 0: not told yet */
};

/* Below the log: which step it is at, and since when the build goes on. */
static void tell_step(struct build_log *log)
{
    char text[80];
    long seconds = (long)cli_progress_seconds(&log->progress);
    snprintf(text, sizeof(text), "step %lu of %lu, %ld:%02ld", log->step, log->steps, seconds / 60,
             seconds % 60);
    if (log->steps)
        cli_progress_tell(&log->progress, text);
}

static void on_time(void *ctx)
{
    struct build_log *log = ctx;
    /* not into a line that is only half there */
    if (cli_progress_is_due(&log->progress) && !log->line.len)
        tell_step(log);
}

/* "==> [2/4] ..." */
static void read_step(struct build_log *log)
{
    static const char mark[] = "==> [";
    char *end;
    if (strncmp(buf_text(&log->line), mark, strlen(mark)) != 0)
        return;
    unsigned long step = strtoul(log->line.data + strlen(mark), &end, 10);
    unsigned long steps = *end == '/' ? strtoul(end + 1, &end, 10) : 0;
    if (*end != ']' || step > steps)
        return;
    log->step = step;
    log->steps = steps;
}

static void flush_line(struct build_log *log)
{
    cli_progress_clear(&log->progress);
    read_step(log);
    cli_write(log->out, buf_text(&log->line), log->line.len);
    buf_clear(&log->line);
    log->is_held = false;
}

static void on_log(void *ctx, const char *data, size_t len)
{
    struct build_log *log = ctx;
    while (len > 0) {
        const char *end = memchr(data, '\n', len);
        size_t n = end ? (size_t)(end - data) + 1 : len;
        if (log->is_held || buf_append(&log->line, data, n) < 0) {
            flush_line(log); /* a line that is too long is printed in pieces */
            if (buf_append(&log->line, data, n) < 0)
                cli_write(log->out, data, n);
        }
        log->is_held = end && log->line.len && log->line.data[0] == '{';
        if (end && !log->is_held)
            flush_line(log);
        data += n;
        len -= n;
    }
    fflush(log->out);
    on_time(log);
}

static enum cli_exit tell_outcome(const struct cli *cli, struct build_log *log, struct err *err)
{
    cleanup_json struct json *json = NULL;
    const char *name = cli->args[0];
    if (json_parse(buf_text(&log->line), log->line.len, JSON_STRICT, &json, NULL) < 0 ||
        json_type(json_get(json, "exitCode")) != JSON_INTEGER) {
        flush_line(log);
        return cli_fail(err, CLI_FAILED, "image %s: the log ended without an outcome", name);
    }
    if (cli->values[OPTION_JSON])
        cli_print_json(&log->line);
    int64_t code = json_integer(json_get(json, "exitCode"));
    const char *why = json_text(json_get(json, "error"));
    if (code == 0)
        return CLI_OK;
    return cli_fail(err, CLI_FAILED, "image %s was not built (exit %lld)%s%s", name,
                    (long long)code, why ? ": " : "", why ? why : "");
}

enum cli_exit cmd_image_build(struct cli *cli, struct err *err)
{
    char body[128]; /* a name needs no escapes */
    struct build_log log = {.out = cli->values[OPTION_JSON] ? stderr : stdout,
                            .line = BUF_INIT(LIMIT_CLI_EVENT_BYTES)};
    cleanup_reply struct cli_reply reply = {0};
    snprintf(body, sizeof(body), "{\"name\":\"%s\"%s}", cli->args[0],
             cli->values[OPTION_REBUILD] ? ",\"rebuild\":true" : "");
    struct cli_request request = {.method = "POST",
                                  .path = "/images",
                                  .content_type = "application/json",
                                  .body = body,
                                  .body_len = strlen(body),
                                  .stream = on_log,
                                  .on_time = on_time,
                                  .ctx = &log};
    cli_progress_begin(&log.progress);
    enum cli_exit status = cli_ask(cli, &request, &reply, err);
    cli_progress_clear(&log.progress);
    if (status == CLI_OK)
        status = tell_outcome(cli, &log, err);
    buf_free(&log.line);
    return status;
}

enum cli_exit cmd_image_ls(struct cli *cli, struct err *err)
{
    static const struct cli_column columns[] = {
        {"NAME", "name", CLI_COLUMN_TEXT},         {"SIZE", "sizeBytes", CLI_COLUMN_BYTES},
        {"BUILT (UTC)", "built", CLI_COLUMN_TIME}, {"STALE", "stale", CLI_COLUMN_TEXT},
        {"ITS USER", "user", CLI_COLUMN_TEXT},     {"WORKDIR", "workdir", CLI_COLUMN_TEXT},
        {"USED BY", "usedBy", CLI_COLUMN_TEXT},
    };
    static const struct cli_listing listing = {
        .path = "/images",
        .key = "images",
        .columns = columns,
        .count = ARRAY_LEN(columns),
        .when_empty = "no images: `paddock image build claude` builds one",
    };
    return cli_list(cli, &listing, err);
}

enum cli_exit cmd_image_rm(struct cli *cli, struct err *err)
{
    char path[128];
    snprintf(path, sizeof(path), "/images/%s", cli->args[0]);
    return cli_act(cli, "DELETE", path, err);
}
