/* paddock(1) and docs/cli.md, from the tables of src/cli/verbs.c. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/verbs.h"
#include "manual/manual.h"

static const char *const examples[][2] = {
    {"The main job: a repository into a sandbox, a task, its changes into your own clone",
     "paddock clone agent-1 https://github.com/octocat/Hello-World\n"
     "paddock run agent-1 \"Add a file that says hello. Do not commit.\"\n"
     "paddock diff agent-1\n"
     "paddock apply agent-1"},
    {"In the background, from a script", "paddock run --detach agent-1 - < prompt.txt\n"
                                         "paddock status --json agent-1"},
    {"Over TCP, with a token", "export PADDOCK_URL=http://127.0.0.1:7300 PADDOCK_TOKEN=...\n"
                               "paddock ls"},
};

static const char *const files[][2] = {
    {"/run/paddock/paddock.sock", "where the daemon listens when nothing else is said"},
    {"$XDG_RUNTIME_DIR/paddock/paddock.sock", "the same for a daemon that runs as you"},
};

static void option(const struct cli_option *option)
{
    char name[64];
    if (option->letter)
        snprintf(name, sizeof(name), "-%c, --%s", option->letter, option->name);
    else
        snprintf(name, sizeof(name), "--%s", option->name);
    manual_item(name, option->value);
    manual_sentence(option->help);
}

static void verb(const struct cli_verb *verb)
{
    fputs(".SS ", stdout);
    manual_text("paddock ");
    manual_text(verb->name);
    if (verb->arguments[0]) {
        fputs(" \\fI", stdout);
        manual_text(verb->arguments);
        fputs("\\fR", stdout);
    }
    putchar('\n');
    manual_sentence(verb->summary);
    if (verb->details) {
        manual_text(verb->details);
        putchar('\n');
    }
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (!cli_options[i].is_global && cli_verb_takes(verb, i))
            option(&cli_options[i]);
}

void manual_paddock(const char *version)
{
    manual_head("paddock", 1, version, "run coding agents in sandboxes on this machine");
    fputs(".SH SYNOPSIS\n.B paddock\n[\\fIOPTION\\fR...] \\fIVERB\\fR [\\fIOPTION\\fR...] "
          "[\\fIARGUMENT\\fR...]\n.SH DESCRIPTION\n",
          stdout);
    manual_text("A sandbox has a name, a clone of one repository, and an agent that works on it "
                "without being trusted. The daemon, `paddockd`(8), holds the sandboxes; this "
                "program asks it over its REST API. Tasks go on when this program ends, and when "
                "the daemon is restarted.\n");
    fputs(".SH VERBS\n", stdout);
    for (size_t i = 0; i < cli_verb_count; i++)
        if (!cli_verbs[i].is_hidden)
            verb(&cli_verbs[i]);
    fputs(".SH OPTIONS\nEvery verb has these, before it or behind it:\n", stdout);
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (cli_options[i].is_global || i == OPTION_VERSION)
            option(&cli_options[i]);
    fputs(".SH EXIT STATUS\n", stdout);
    for (size_t i = 0; i < cli_status_count; i++) {
        char number[16];
        snprintf(number, sizeof(number), "%d", cli_statuses[i].status);
        manual_item(number, NULL);
        manual_sentence(cli_statuses[i].text);
    }
    fputs(".SH ENVIRONMENT\n", stdout);
    for (size_t i = 0; i < cli_variable_count; i++) {
        manual_item(cli_variables[i].name, NULL);
        manual_sentence(cli_variables[i].text);
    }
    fputs(".SH FILES\n", stdout);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        manual_item(files[i][0], NULL);
        manual_sentence(files[i][1]);
    }
    fputs(".SH EXAMPLES\n", stdout);
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        printf("%s%s:\n.PP\n.nf\n.RS\n", i ? ".PP\n" : "", examples[i][0]);
        manual_text(examples[i][1]);
        fputs("\n.RE\n.fi\n", stdout);
    }
    fputs(".SH SEE ALSO\n.BR paddockd (8),\n.BR paddock.json (5)\n", stdout);
}

static void verb_markdown(const struct cli_verb *verb)
{
    printf("\n### paddock %s\n\n    paddock %s%s%s\n\n", verb->name, verb->name,
           verb->arguments[0] ? " " : "", verb->arguments);
    printf("%c%s.\n", toupper((unsigned char)verb->summary[0]), verb->summary + 1);
    if (verb->details)
        printf("\n%s\n", verb->details);
    int count = 0;
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct cli_option *option = &cli_options[i];
        if (option->is_global || !cli_verb_takes(verb, i))
            continue;
        printf("%s* `", count++ ? "" : "\n");
        if (option->letter)
            printf("-%c, ", option->letter);
        printf("--%s%s%s`: %s\n", option->name, option->value ? " " : "",
               option->value ? option->value : "", option->help);
    }
}

void manual_cli_markdown(const char *version)
{
    (void)version;
    fputs("<!-- Made by tools/gen-cli-docs from src/cli/verbs.c: change that. -->\n"
          "# The command line\n\n"
          "`paddock [OPTION...] VERB [OPTION...] [ARGUMENT...]`, the same as `man paddock` and\n"
          "`paddock --help`. In bash, zsh and fish verbs, options and names are completed.\n\n"
          "## Verbs\n",
          stdout);
    for (size_t i = 0; i < cli_verb_count; i++)
        if (!cli_verbs[i].is_hidden)
            verb_markdown(&cli_verbs[i]);
    fputs("\n## Options of every verb\n\n", stdout);
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (cli_options[i].is_global)
            printf("* `--%s%s%s`: %s\n", cli_options[i].name, cli_options[i].value ? " " : "",
                   cli_options[i].value ? cli_options[i].value : "", cli_options[i].help);
    fputs(
        "\nWith `--json` standard output is one JSON document: the daemon's answer as it is, `{}` "
        "where there is\nnothing to say. An error is the last line of standard error: "
        "`{\"error\": \"...\", \"exitStatus\": 1}`.\n`paddock help --json` prints these tables.\n"
        "\n## Exit status\n\n| status | meaning |\n|---|---|\n",
        stdout);
    for (size_t i = 0; i < cli_status_count; i++)
        printf("| %d | %s |\n", cli_statuses[i].status, cli_statuses[i].text);
    fputs("\n## Environment\n\n| variable | meaning |\n|---|---|\n", stdout);
    for (size_t i = 0; i < cli_variable_count; i++)
        printf("| `%s` | %s |\n", cli_variables[i].name, cli_variables[i].text);
}
