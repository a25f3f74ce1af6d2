/* paddock log: what the agent printed. */
#include "cli/cli.h"

enum cli_exit cmd_log(struct cli *cli, struct err *err)
{
    struct cli_follow follow = {.name = cli->args[0],
                                .follow = cli->values[OPTION_FOLLOW] != NULL,
                                .events = cli->values[OPTION_EVENTS] != NULL,
                                .is_stderr = cli->values[OPTION_STDERR] != NULL};
    if (follow.follow)
        cli_catch_interrupt();
    return cli_follow(cli, &follow, err);
}
