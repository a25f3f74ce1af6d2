/* Lists of the daemon as tables. */
#pragma once

#include "cli/cli.h"
#include "json/json.h"

#define CLI_CELL_MAX 256

/* An object is shown as NAME=VALUE,... */
struct cli_column {
    const char *heading;
    const char *key;
    enum {
        CLI_COLUMN_TEXT,
        CLI_COLUMN_BYTES,
        CLI_COLUMN_TIME
    } kind; /* of an integer; time in ms */
};

/* Prints heading and rows; `answer` is the array itself or has it under `key`. */
void cli_table_print(FILE *out, const struct json *answer, const char *key,
                     const struct cli_column *columns, size_t count);

/* Asks for JSON. With --json it is printed as it is, and *ret stays NULL. The caller frees *ret. */
enum cli_exit cli_get(const struct cli *cli, const char *path, struct json **ret, struct err *err);

/* names.c: what the daemon has of a kind. Blocks, timeout_ms at most. The caller frees *ret. */
struct cli_names {
    const struct json *rows; /* objects; in *ret */
    const char *key;         /* their member that is the name */
    const char *what;        /* "sandbox", ... */
};
enum cli_exit cli_names_ask(const struct cli *cli, enum cli_kind kind, long timeout_ms,
                            struct json **ret, struct cli_names *ret_names);

/* Asks for a list and prints it; with --json the answer as it is. */
struct cli_listing {
    const char *path;
    const char *key;
    const struct cli_column *columns;
    size_t count;
    const char *when_empty; /* said on standard error */
};
enum cli_exit cli_list(const struct cli *cli, const struct cli_listing *listing, struct err *err);
