/* Colours, on a terminal alone: https://no-color.org. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static bool has_color(FILE *out)
{
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    return isatty(fileno(out)) && !(no_color && no_color[0]) && term && term[0] &&
           strcmp(term, "dumb") != 0;
}

const char *cli_color(FILE *out, enum cli_color color)
{
    static const char *const codes[] = {
        [CLI_COLOR_NONE] = "\033[0m",    [CLI_COLOR_BOLD] = "\033[1m",
        [CLI_COLOR_RED] = "\033[31m",    [CLI_COLOR_GREEN] = "\033[32m",
        [CLI_COLOR_YELLOW] = "\033[33m", [CLI_COLOR_CYAN] = "\033[36m",
    };
    return has_color(out) ? codes[color] : "";
}
