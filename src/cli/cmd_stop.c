/* paddock stop: stops a sandbox; its files are kept. */
#include "cli/cli.h"

enum cli_exit cmd_stop(struct cli *cli, struct err *err)
{
    char path[128];
    cleanup_reply struct cli_reply reply = {0};
    snprintf(path, sizeof(path), "/sandboxes/%s/stop", cli->args[0]);
    struct cli_request request = {.method = "POST", .path = path};
    return cli_ask(cli, &request, &reply, err);
}
