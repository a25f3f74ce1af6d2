/* paddock stop: stops sandboxes; their files are kept. With several, all are told first and then
 * waited for, so that the slowest one alone counts. */
#include <stdio.h>

#include "cli/cli.h"

enum cli_exit cmd_stop(struct cli *cli, struct err *err)
{
    cleanup_targets struct cli_targets names = {0};
    struct err ignored = {0};
    enum cli_exit status = cli_targets(cli, &names, err);
    if (status != CLI_OK)
        return status;
    if (names.count > 1)
        cli_each(cli, &names, "POST", "/sandboxes/", "/stop?wait=0", &ignored);
    status = cli_each(cli, &names, "POST", "/sandboxes/", "/stop", err);
    if (status == CLI_OK && cli->values[OPTION_JSON])
        puts("{}");
    return status;
}
