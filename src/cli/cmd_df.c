/* paddock df: what sandboxes, images and the trash take on the disk. */
#include "cli/table.h"
#include "util/cleanup.h"

#define MIB (1024.0 * 1024)

enum cli_exit cmd_df(struct cli *cli, struct err *err)
{
    static const struct cli_column images[] = {
        {"IMAGE", "name", CLI_COLUMN_TEXT},
        {"SIZE", "bytes", CLI_COLUMN_BYTES},
    };
    static const struct cli_column sandboxes[] = {
        {"SANDBOX", "name", CLI_COLUMN_TEXT},
        {"SIZE", "bytes", CLI_COLUMN_BYTES},
        {"WORKSPACE", "workspaceBytes", CLI_COLUMN_BYTES},
        {"INSTALLED", "overlayBytes", CLI_COLUMN_BYTES},
        {"TASK", "taskBytes", CLI_COLUMN_BYTES},
        {"CLONE", "baseBytes", CLI_COLUMN_BYTES},
    };
    static const struct cli_column sums[] = {
        {"IMAGES", "imagesBytes", CLI_COLUMN_BYTES},
        {"SANDBOXES", "sandboxesBytes", CLI_COLUMN_BYTES},
        {"TRASH", "trashBytes", CLI_COLUMN_BYTES},
    };
    cleanup_json struct json *json = NULL;
    enum cli_exit status = cli_get(cli, "/df", &json, err);
    if (status != CLI_OK || !json)
        return status;
    cli_table_print(stdout, json, "images", images, ARRAY_LEN(images));
    putchar('\n');
    cli_table_print(stdout, json, "sandboxes", sandboxes, ARRAY_LEN(sandboxes));
    putchar('\n');
    for (size_t i = 0; i < ARRAY_LEN(sums); i++)
        printf("%-10s %.1f MiB\n", sums[i].heading,
               (double)json_integer(json_get(json, sums[i].key)) / MIB);
    const struct json *disk = json_get(json, "disk");
    printf("%-10s %.1f MiB of %.1f MiB\n", "FREE",
           (double)json_integer(json_get(disk, "freeBytes")) / MIB,
           (double)json_integer(json_get(disk, "totalBytes")) / MIB);
    return CLI_OK;
}
