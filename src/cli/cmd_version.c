/* paddock version */
#include "cli/cli.h"

enum cli_exit cmd_version(struct cli *cli, struct err *err)
{
    (void)err;
    puts(cli->values[OPTION_JSON] ? "{\"version\":\"" PADDOCK_VERSION "\"}"
                                  : "paddock " PADDOCK_VERSION);
    return CLI_OK;
}
