/* Lists of objects as a table with a heading, each column as wide as its widest cell. */
#include "cli/table.h"

#include <string.h>
#include <time.h>

#include "util/cleanup.h"

static void cell_text(const struct json *row, const struct cli_column *column, char *ret,
                      size_t size)
{
    const struct json *value = json_get(row, column->key);
    const char *text = json_text(value);
    int64_t number = json_integer(value);
    struct tm tm;
    time_t seconds = (time_t)(number / 1000);
    snprintf(ret, size, "%s", text && text[0] ? text : "-");
    for (size_t i = 0, len = 0; i < json_count(value) && len < size; i++) {
        const char *member = json_text(json_at(value, i));
        bool is_pair = json_type(value) == JSON_OBJECT;
        len += (size_t)snprintf(ret + len, size - len, "%s%s%s%s", i ? "," : "",
                                is_pair ? json_key_at(value, i) : "", is_pair ? "=" : "",
                                member ? member : "");
    }
    if (json_type(value) == JSON_BOOL)
        snprintf(ret, size, "%s", json_bool(value) ? "yes" : "no");
    if (json_type(value) != JSON_INTEGER)
        return;
    switch (column->kind) {
    case CLI_COLUMN_TEXT:
        snprintf(ret, size, "%lld", (long long)number);
        return;
    case CLI_COLUMN_BYTES:
        snprintf(ret, size, "%.1f MiB", (double)number / (1024 * 1024));
        return;
    case CLI_COLUMN_TIME:
        if (gmtime_r(&seconds, &tm))
            strftime(ret, size, "%Y-%m-%d %H:%M", &tm);
        return;
    }
}

static const struct json *rows_of(const struct json *answer, const char *key)
{
    return json_type(answer) == JSON_ARRAY ? answer : json_get(answer, key);
}

void cli_table_print(FILE *out, const struct json *answer, const char *key,
                     const struct cli_column *columns, size_t count)
{
    const struct json *rows = rows_of(answer, key);
    char text[CLI_CELL_MAX];
    for (size_t i = 0; i <= json_count(rows); i++) {
        fputs(i == 0 ? cli_color(out, CLI_COLOR_BOLD) : "", out);
        for (size_t j = 0; j < count; j++) {
            int width = (int)strlen(columns[j].heading);
            for (size_t k = 0; k < json_count(rows); k++) {
                cell_text(json_at(rows, k), &columns[j], text, sizeof(text));
                width = (int)strlen(text) > width ? (int)strlen(text) : width;
            }
            if (i == 0)
                snprintf(text, sizeof(text), "%s", columns[j].heading);
            else
                cell_text(json_at(rows, i - 1), &columns[j], text, sizeof(text));
            cli_write_cell(out, text, j + 1 < count ? width + 2 : 0);
        }
        fputs(i == 0 ? cli_color(out, CLI_COLOR_NONE) : "", out);
        fputc('\n', out);
    }
}

enum cli_exit cli_get(const struct cli *cli, const char *path, struct json **ret, struct err *err)
{
    cleanup_reply struct cli_reply reply = {0};
    struct cli_request request = {.method = "GET", .path = path};
    enum cli_exit status = cli_ask(cli, &request, &reply, err);
    if (status != CLI_OK)
        return status;
    if (cli->values[OPTION_JSON])
        cli_print_json(&reply.body);
    else if (json_parse(buf_text(&reply.body), reply.body.len, JSON_STRICT, ret, NULL) < 0)
        return cli_fail(err, CLI_FAILED, "the daemon's answer is not JSON");
    return CLI_OK;
}

enum cli_exit cli_list(const struct cli *cli, const struct cli_listing *listing, struct err *err)
{
    cleanup_json struct json *json = NULL;
    enum cli_exit status = cli_get(cli, listing->path, &json, err);
    if (status != CLI_OK || !json)
        return status;
    if (json_count(rows_of(json, listing->key)) == 0)
        fprintf(stderr, "%s\n", listing->when_empty);
    else
        cli_table_print(stdout, json, listing->key, listing->columns, listing->count);
    return CLI_OK;
}
