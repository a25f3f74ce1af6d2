/* paddock ls: the sandboxes. */
#include <string.h>

#include "cli/table.h"
#include "util/cleanup.h"

#define PATH_BYTES 4096

static int append_escaped(struct buf *path, const char *text)
{
    int result = 0;
    for (; result == 0 && *text; text++) {
        bool is_plain = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
                        (*text >= '0' && *text <= '9') || strchr("-._~", *text);
        result = buf_appendf(path, is_plain ? "%c" : "%%%02X", (unsigned char)*text);
    }
    return result;
}

int cli_append_filters(const struct cli *cli, struct buf *path)
{
    const char *label;
    const char *state = cli->values[OPTION_STATE];
    int result = state ? buf_append_string(path, "?state=") : 0;
    if (result == 0 && state)
        result = append_escaped(path, state);
    for (size_t at = 0; result == 0 && (label = cli_next_value(cli, OPTION_LABEL, &at));) {
        result = buf_appendf(path, "%clabel=", strchr(buf_text(path), '?') ? '&' : '?');
        if (result == 0)
            result = append_escaped(path, label);
    }
    return result;
}

enum cli_exit cmd_ls(struct cli *cli, struct err *err)
{
    static const struct cli_column columns[] = {
        {"NAME", "name", CLI_COLUMN_TEXT},
        {"STATE", "state", CLI_COLUMN_TEXT},
        {"TASK", "task", CLI_COLUMN_TEXT},
        {"AGENT", "agent", CLI_COLUMN_TEXT},
        {"CREATED (UTC)", "created", CLI_COLUMN_TIME},
        {"LABELS", "labels", CLI_COLUMN_TEXT},
    };
    cleanup_buf struct buf path = BUF_INIT(PATH_BYTES);
    bool is_filtered = cli->values[OPTION_STATE] || cli->values[OPTION_LABEL];
    struct cli_listing listing = {
        .key = "sandboxes",
        .columns = columns,
        .count = ARRAY_LEN(columns),
        .when_empty =
            is_filtered ? "no such sandboxes" : "no sandboxes: `paddock clone NAME URL` makes one",
    };
    if (buf_append_string(&path, "/sandboxes") < 0 || cli_append_filters(cli, &path) < 0)
        return cli_fail(err, CLI_USAGE, "the labels are too long");
    listing.path = buf_text(&path);
    return cli_list(cli, &listing, err);
}
