/* The program `paddock`: reads the command line, runs a verb, prints why it failed. */
#include "cli/cli.h"

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

static void print_error(const char *message)
{
    struct buf line = BUF_INIT(8 * ERR_MESSAGE_MAX);
    (void)cli_text_append(&line, message, strlen(message), false, ERR_MESSAGE_MAX);
    fprintf(stderr, "paddock: %s\n", buf_text(&line));
    buf_free(&line);
}

static enum cli_exit run_verb(struct cli *cli, struct err *err)
{
    if (cli->values[OPTION_VERSION])
        return cmd_version(cli, err);
    if (cli->values[OPTION_HELP]) {
        cli_help_print(stdout, cli->verb);
        return CLI_OK;
    }
    return cli->verb->run(cli, err);
}

int cli_main(int argc, char **argv)
{
    struct err err = {0};
    struct cli cli;
    enum cli_exit status = cli_parse(argc, argv, &cli, &err);
    if (status == CLI_OK)
        status = run_verb(&cli, &err);
    free(cli.args);
    if (err.message[0])
        print_error(err.message);
    /* a full disk behind a redirection must not look like success */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        print_error("standard output could not be written");
        if (status == CLI_OK)
            status = CLI_FAILED;
    }
    return (int)status;
}
