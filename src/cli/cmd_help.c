/* paddock help [VERB] */
#include "cli/cli.h"

enum cli_exit cmd_help(struct cli *cli, struct err *err)
{
    char name[80] = "";
    const struct cli_verb *verb = NULL;
    if (cli->arg_count > 0) {
        snprintf(name, sizeof(name), "%.30s%s%.30s", cli->args[0], cli->arg_count > 1 ? " " : "",
                 cli->arg_count > 1 ? cli->args[1] : "");
        verb = cli_verb_find(name);
        if (!verb)
            return cli_refuse_verb(name, err);
    }
    if (cli->values[OPTION_JSON])
        cli_help_print_json(stdout);
    else
        cli_help_print(stdout, verb);
    return CLI_OK;
}
