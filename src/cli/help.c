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
    fputs("\nEnvironment:\n", out);
    for (size_t i = 0; i < cli_variable_count; i++)
        fprintf(out, "  %-14s %s\n", cli_variables[i].name, cli_variables[i].text);
}

static void print_statuses(FILE *out)
{
    fputs("\nExit status:\n", out);
    for (size_t i = 0; i < cli_status_count; i++)
        fprintf(out, "  %-3d  %s\n", cli_statuses[i].status, cli_statuses[i].text);
}

static void print_all(FILE *out)
{
    fputs("Usage: paddock [OPTION...] VERB [OPTION...] [ARGUMENT...]\n\n"
          "Runs coding agents in sandboxes on this machine.\n\nVerbs:\n",
          out);
    for (size_t i = 0; i < cli_verb_count; i++)
        if (!cli_verbs[i].is_hidden)
            fprintf(out, "  %-14s %s\n", cli_verbs[i].name, cli_verbs[i].summary);
    fputs("\nOptions:\n", out);
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (cli_options[i].is_global || i == OPTION_VERSION)
            print_option(out, &cli_options[i]);
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
        if (!cli_options[i].is_global && cli_verb_takes(verb, i))
            print_option(out, &cli_options[i]);
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (cli_options[i].is_global)
            print_option(out, &cli_options[i]);
    print_environment(out);
    print_statuses(out);
}
