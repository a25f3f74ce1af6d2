/* paddock rm: removes sandboxes; goes on after one that fails, and then is not a success. */
#include <string.h>

#include "cli/cli.h"

enum cli_exit cmd_rm(struct cli *cli, struct err *err)
{
    enum cli_exit first = CLI_OK;
    for (size_t i = 0; i < cli->arg_count; i++) {
        char path[128];
        struct err why = {0};
        cleanup_reply struct cli_reply reply = {0};
        struct cli one = *cli;
        one.args = &cli->args[i]; /* messages name this one */
        snprintf(path, sizeof(path), "/sandboxes/%s", cli->args[i]);
        struct cli_request request = {.method = "DELETE", .path = path};
        enum cli_exit status = cli_ask(&one, &request, &reply, &why);
        if (status == CLI_OK)
            continue;
        if (first == CLI_OK) {
            first = status;
            *err = why;
        } else {
            size_t len = strlen(err->message);
            snprintf(err->message + len, sizeof(err->message) - len, "\n%s", why.message);
        }
        if (status == CLI_UNREACHABLE)
            break;
    }
    if (first == CLI_OK && cli->values[OPTION_JSON])
        puts("{}");
    return first;
}
