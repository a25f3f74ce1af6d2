/* paddock status: how the task of a sandbox is doing. */
#include <string.h>

#include "cli/table.h"
#include "util/cleanup.h"

static void print_text(const char *text)
{
    size_t len = strlen(text);
    cli_write(stdout, text, len);
    if (len && text[len - 1] != '\n')
        putchar('\n');
}

void cli_print_usage(FILE *out, const struct json *task)
{
    const struct json *usage = json_get(task, "usage");
    const char *model = json_text(json_get(usage, "model"));
    int64_t requests = json_integer(json_get(usage, "requests"));
    int64_t errors = json_integer(json_get(usage, "errors"));
    if (requests <= 0)
        return;
    fprintf(out, "%lld request%s to ", (long long)requests, requests == 1 ? "" : "s");
    cli_write_cell(out, model ? model : "models", 0);
    fprintf(out, ": %lld tokens in, %lld from and %lld into the cache, %lld out",
            (long long)json_integer(json_get(usage, "input_tokens")),
            (long long)json_integer(json_get(usage, "cache_read_tokens")),
            (long long)json_integer(json_get(usage, "cache_creation_tokens")),
            (long long)json_integer(json_get(usage, "output_tokens")));
    if (errors > 0)
        fprintf(out, "; %lld failed", (long long)errors);
    fputc('\n', out);
}

enum cli_exit cmd_status(struct cli *cli, struct err *err)
{
    char path[128];
    cleanup_json struct json *json = NULL;
    snprintf(path, sizeof(path), "/sandboxes/%s/task", cli->args[0]);
    enum cli_exit status = cli_get(cli, path, &json, err);
    if (status != CLI_OK || !json)
        return status;
    const char *state = json_text(json_get(json, "state"));
    const char *text = json_text(json_get(json, "result"));
    if (!text)
        text = json_text(json_get(json, "error"));
    bool is_none = state && strcmp(state, "none") == 0;
    char near[256];
    if (is_none && cli_suggest(cli, cli->args[0], near, sizeof(near)))
        fprintf(stderr, "%s\n", near); /* to the daemon any name may be the next sandbox's */
    printf("%s: ", cli->args[0]);
    print_text(is_none ? "no task was started here" : state ? state : "no state");
    if (text)
        print_text(text);
    cli_print_usage(stdout, json);
    return CLI_OK;
}
