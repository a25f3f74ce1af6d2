/* --help, from the table of verbs.c; within 80 columns. */
#include <string.h>

#include "cli/cli.h"

static void print_option(FILE *out, const struct cli_option *option)
{
    char left[40];
    char letter[8] = "    ";
    if (option->letter)
        snprintf(letter, sizeof(letter), "-%c, ", option->letter);
    snprintf(left, sizeof(left), "%s--%s%s%s", letter, option->name, option->value ? " " : "",
             option->value ? option->value : "");
    fprintf(out, "  %-22s %s\n", left, option->help);
}

static void print_environment(FILE *out)
{
    fputs("\nEnvironment:\n"
          "  PADDOCK_URL    as --url; else the default socket is used\n"
          "  PADDOCK_TOKEN  token for the daemon, where it wants one\n",
          out);
}

static void print_statuses(FILE *out)
{
    fprintf(out,
            "\nExit status:\n"
            "  %-3d  done; the task succeeded\n"
            "  %-3d  the task failed, or what was asked could not be done\n"
            "  %-3d  the command line is wrong\n"
            "  %-3d  run: the task is lost, its end is not known\n"
            "  %-3d  the daemon cannot be reached\n"
            "  %-3d  exec: the program was not run; else the status is the program's\n"
            "  %-3d  interrupted while following; the task goes on\n",
            CLI_OK, CLI_FAILED, CLI_USAGE, CLI_LOST, CLI_UNREACHABLE, CLI_EXEC_FAILED,
            CLI_INTERRUPTED);
}

static void print_all(FILE *out)
{
    fputs("Usage: paddock [OPTION...] VERB [OPTION...] [ARGUMENT...]\n\n"
          "Runs coding agents in sandboxes on this machine.\n\nVerbs:\n",
          out);
    for (size_t i = 0; i < cli_verb_count; i++)
        fprintf(out, "  %-13s %s\n", cli_verbs[i].name, cli_verbs[i].summary);
    fputs("\nOptions:\n", out);
    print_option(out, &cli_options[OPTION_URL]);
    print_option(out, &cli_options[OPTION_HELP]);
    print_option(out, &cli_options[OPTION_VERSION]);
    print_environment(out);
    print_statuses(out);
    fputs("\n`paddock VERB --help` tells more about one verb.\n", out);
}

void cli_help_print(FILE *out, const struct cli_verb *verb)
{
    if (!verb) {
        print_all(out);
        return;
    }
    fprintf(out, "Usage: paddock %s [OPTION...]%s%s\n\n", verb->name, verb->arguments[0] ? " " : "",
            verb->arguments);
    fprintf(out, "%c%s.\n", verb->summary[0] - 'a' + 'A', verb->summary + 1);
    if (verb->details)
        fprintf(out, "\n%s\n", verb->details);
    fputs("\nOptions:\n", out);
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (verb->options & (1U << i))
            print_option(out, &cli_options[i]);
    print_option(out, &cli_options[OPTION_URL]);
    print_option(out, &cli_options[OPTION_HELP]);
    print_environment(out);
    print_statuses(out);
}
