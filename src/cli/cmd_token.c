/* paddock token create, ls, rm. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/table.h"
#include "util/cleanup.h"
#include "util/name.h"

static enum cli_exit make_body(const struct cli *cli, char *ret, size_t size, struct err *err)
{
    const char *prefix = cli->values[OPTION_PREFIX];
    int64_t expires_ms = cli_read_ms(cli, OPTION_EXPIRES, err);
    char more[64] = "";
    if (prefix && !name_prefix_is_valid(prefix, strlen(prefix)))
        return cli_fail(err, CLI_USAGE, "no name of a sandbox begins with \"%.80s\"", prefix);
    if (expires_ms < 0)
        return CLI_USAGE;
    if (expires_ms)
        snprintf(more, sizeof(more), ",\"expiresIn\":%" PRId64, expires_ms / 1000);
    snprintf(ret, size, "{\"readOnly\":%s%s%s%s%s}",
             cli->values[OPTION_READ_ONLY] ? "true" : "false", more, prefix ? ",\"prefix\":\"" : "",
             prefix ? prefix : "", prefix ? "\"" : "");
    return CLI_OK;
}

enum cli_exit cmd_token_create(struct cli *cli, struct err *err)
{
    char body[256];
    cleanup_reply struct cli_reply reply = {0};
    cleanup_json struct json *json = NULL;
    enum cli_exit status = make_body(cli, body, sizeof(body), err);
    if (status != CLI_OK)
        return status;
    struct cli_request request = {.method = "POST",
                                  .path = "/tokens",
                                  .content_type = "application/json",
                                  .body = body,
                                  .body_len = strlen(body)};
    status = cli_ask(cli, &request, &reply, err);
    if (status != CLI_OK)
        return status;
    if (json_parse(buf_text(&reply.body), reply.body.len, JSON_STRICT, &json, NULL) < 0 ||
        !json_text(json_get(json, "token")))
        return cli_fail(err, CLI_FAILED, "the daemon's answer is not JSON");
    const char *text = json_text(json_get(json, "token"));
    if (cli->values[OPTION_JSON])
        cli_print_json(&reply.body);
    else
        cli_write_cell(stdout, text, 0), putchar('\n');
    return CLI_OK;
}

enum cli_exit cmd_token_ls(struct cli *cli, struct err *err)
{
    static const struct cli_column columns[] = {
        {"ID", "id", CLI_COLUMN_TEXT},
        {"PREFIX", "prefix", CLI_COLUMN_TEXT},
        {"READ-ONLY", "readOnly", CLI_COLUMN_TEXT},
        {"CREATED (UTC)", "created", CLI_COLUMN_TIME},
        {"EXPIRES (UTC)", "expires", CLI_COLUMN_TIME},
    };
    static const struct cli_listing listing = {
        .path = "/tokens",
        .key = "tokens",
        .columns = columns,
        .count = ARRAY_LEN(columns),
        .when_empty = "no tokens: `paddock token create` makes one",
    };
    return cli_list(cli, &listing, err);
}

enum cli_exit cmd_token_rm(struct cli *cli, struct err *err)
{
    char path[128];
    snprintf(path, sizeof(path), "/tokens/%s", cli->args[0]);
    return cli_act(cli, "DELETE", path, err);
}
