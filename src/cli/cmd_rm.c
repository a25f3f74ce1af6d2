/* paddock rm: removes sandboxes; goes on after one that fails, and then is not a success. */
#include <stdio.h>

#include "cli/cli.h"

enum cli_exit cmd_rm(struct cli *cli, struct err *err)
{
    cleanup_targets struct cli_targets names = {0};
    struct err ignored = {0};
    enum cli_exit status = cli_targets(cli, &names, err);
    if (status != CLI_OK)
        return status;
    if (names.count > 1) /* all at once, as far as it takes time */
        cli_each(cli, &names, "POST", "/sandboxes/", "/stop?wait=0", &ignored);
    status = cli_each(cli, &names, "DELETE", "/sandboxes/", "", err);
    if (status == CLI_OK && cli->values[OPTION_JSON])
        puts("{}");
    return status;
}
