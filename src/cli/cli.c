/* The program `paddock`: reads the command line, runs a verb, prints why it failed. */
#include "cli/cli.h"

#include "util/utf8.h"
#include "json/json.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum cli_exit cli_fail(struct err *err, enum cli_exit status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof(err->message), format, args);
    va_end(args);
    return status;
}

/* {"error":...,"exitStatus":...} on one line */
static void print_error_json(const char *message, enum cli_exit status)
{
    cleanup_buf struct buf text = BUF_INIT(3 * ERR_MESSAGE_MAX);
    cleanup_buf struct buf line = BUF_INIT(32 * ERR_MESSAGE_MAX);
    struct json_writer *writer = json_writer_new(&line, false);
    if (!writer || utf8_append_lossy(&text, message, strlen(message)) < 0)
        return;
    json_write_object_begin(writer);
    json_write_pair_string(writer, "error", buf_text(&text));
    json_write_pair_integer(writer, "exitStatus", status);
    json_write_object_end(writer);
    if (json_writer_end(writer) == 0 && buf_append_string(&line, "\n") == 0)
        cli_write_json(stderr, buf_text(&line), line.len);
}

static void print_error(const struct cli *cli, const char *message, enum cli_exit status)
{
    if (cli->values[OPTION_JSON]) {
        print_error_json(message, status);
        return;
    }
    struct buf line = BUF_INIT(8 * ERR_MESSAGE_MAX);
    size_t len = strlen(message);
    while (len && message[len - 1] == '\n') /* of what a program printed */
        len--;
    (void)cli_text_append(&line, message, len, false, ERR_MESSAGE_MAX);
    fprintf(stderr, "paddock: %s\n", buf_text(&line));
    buf_free(&line);
}

static enum cli_exit run_verb(struct cli *cli, struct err *err)
{
    if (cli->values[OPTION_VERSION])
        return cmd_version(cli, err);
    if (cli->values[OPTION_HELP]) {
        if (cli->values[OPTION_JSON])
            cli_help_print_json(stdout);
        else
            cli_help_print(stdout, cli->verb);
        return CLI_OK;
    }
    return cli->verb->run(cli, err);
}

/* Where reading ended before --json was met, errors are JSON all the same. */
static void look_for_json(int argc, char **argv, struct cli *cli)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            cli->values[OPTION_JSON] = "";
}

int cli_main(int argc, char **argv)
{
    struct err err = {0};
    struct cli cli;
    enum cli_exit status = cli_parse(argc, argv, &cli, &err);
    if (status == CLI_OK)
        status = run_verb(&cli, &err);
    else
        look_for_json(argc, argv, &cli);
    free(cli.args);
    if (err.message[0])
        print_error(&cli, err.message, status);
    /* a full disk behind a redirection must not look like success */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (status == CLI_OK)
            status = CLI_FAILED;
        print_error(&cli, "standard output could not be written", status);
    }
    return (int)status;
}
