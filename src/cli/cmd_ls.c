/* paddock ls: the sandboxes. */
#include "cli/table.h"
#include "util/cleanup.h"

enum cli_exit cmd_ls(struct cli *cli, struct err *err)
{
    static const struct cli_column columns[] = {
        {"NAME", "name", CLI_COLUMN_TEXT},
        {"STATE", "state", CLI_COLUMN_TEXT},
        {"TASK", "task", CLI_COLUMN_TEXT},
        {"AGENT", "agent", CLI_COLUMN_TEXT},
    };
    static const struct cli_listing listing = {
        .path = "/sandboxes",
        .key = "sandboxes",
        .columns = columns,
        .count = ARRAY_LEN(columns),
        .when_empty = "no sandboxes: `paddock clone NAME URL` makes one",
    };
    return cli_list(cli, &listing, err);
}
