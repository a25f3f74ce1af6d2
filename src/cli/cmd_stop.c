/* paddock stop: stops a sandbox; its files are kept. */
#include "cli/cli.h"

enum cli_exit cmd_stop(struct cli *cli, struct err *err)
{
    char path[128];
    snprintf(path, sizeof(path), "/sandboxes/%s/stop", cli->args[0]);
    return cli_act(cli, "POST", path, err);
}
