/* paddock diff: all changes since the clone, as they come. */
#include "cli/cli.h"
#include "json/json.h"
#include "util/cleanup.h"

static void on_diff(void *ctx, const char *data, size_t len)
{
    (void)ctx;
    cli_write(stdout, data, len);
}

enum cli_exit cmd_diff(struct cli *cli, struct err *err)
{
    char path[128];
    cleanup_reply struct cli_reply reply = {0};
    cleanup_json struct json *json = NULL;
    snprintf(path, sizeof(path), "/sandboxes/%s/diff", cli->args[0]);
    struct cli_request request = {.method = "GET", .path = path, .stream = on_diff};
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
