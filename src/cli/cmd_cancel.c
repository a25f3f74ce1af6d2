/* paddock cancel: ends the running task; returns when it has ended. */
#include "cli/cli.h"

enum cli_exit cmd_cancel(struct cli *cli, struct err *err)
{
    char path[128];
    cleanup_reply struct cli_reply reply = {0};
    snprintf(path, sizeof(path), "/sandboxes/%s/task", cli->args[0]);
    struct cli_request request = {.method = "DELETE", .path = path};
    return cli_ask(cli, &request, &reply, err);
}
