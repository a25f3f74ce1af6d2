/* paddock image build, ls, rm. */
#include <string.h>

#include "cli/table.h"
#include "util/cleanup.h"

/* The log of a build ends with a line that tells its outcome. */
struct build_log {
    char last[512]; /* the last line that was not empty, as far as it fits */
    size_t len;
    bool is_ended; /* `last` is a whole line: the next byte begins another */
};

static void on_log(void *ctx, const char *data, size_t len)
{
    struct build_log *log = ctx;
    cli_write(stdout, data, len);
    fflush(stdout);
    for (size_t i = 0; i < len; i++) {
        if (data[i] == '\n') {
            log->is_ended = true;
            continue;
        }
        if (log->is_ended)
            log->len = 0;
        log->is_ended = false;
        if (log->len < sizeof(log->last) - 1)
            log->last[log->len++] = data[i];
    }
}

enum cli_exit cmd_image_build(struct cli *cli, struct err *err)
{
    char body[128];
    struct build_log log = {0};
    cleanup_reply struct cli_reply reply = {0};
    snprintf(body, sizeof(body), "{\"name\":\"%s\"}", cli->args[0]); /* a name needs no escapes */
    struct cli_request request = {.method = "POST",
                                  .path = "/images",
                                  .content_type = "application/json",
                                  .body = body,
                                  .body_len = strlen(body),
                                  .stream = on_log,
                                  .ctx = &log};
    enum cli_exit status = cli_ask(cli, &request, &reply, err);
    if (status != CLI_OK)
        return status;
    log.last[log.len] = '\0';
    if (strncmp(log.last, "failed", strlen("failed")) == 0)
        return cli_fail(err, CLI_FAILED, "image %s was not built", cli->args[0]);
    return CLI_OK;
}

enum cli_exit cmd_image_ls(struct cli *cli, struct err *err)
{
    static const struct cli_column columns[] = {
        {"NAME", "name", CLI_COLUMN_TEXT},
        {"SIZE", "size_bytes", CLI_COLUMN_BYTES},
        {"BUILT (UTC)", "built", CLI_COLUMN_TIME},
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
    cleanup_reply struct cli_reply reply = {0};
    snprintf(path, sizeof(path), "/images/%s", cli->args[0]);
    struct cli_request request = {.method = "DELETE", .path = path};
    return cli_ask(cli, &request, &reply, err);
}
