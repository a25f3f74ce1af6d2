/* paddock cancel: ends the running task; returns when it has ended. */
#include "cli/cli.h"

enum cli_exit cmd_cancel(struct cli *cli, struct err *err)
{
    char path[128];
    snprintf(path, sizeof(path), "/sandboxes/%s/task", cli->args[0]);
    return cli_act(cli, "DELETE", path, err);
}
