/* paddock version */
#include "cli/cli.h"

enum cli_exit cmd_version(struct cli *cli, struct err *err)
{
    (void)cli, (void)err;
    puts("paddock " PADDOCK_VERSION);
    return CLI_OK;
}
