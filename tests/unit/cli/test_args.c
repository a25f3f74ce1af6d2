/* The command line: what is understood, what is refused and with which help; help within bounds. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "util/cleanup.h"

#define WORDS_MAX 12

/* Splits at blanks; the strings live in `copy`. */
static enum cli_exit parse(const char *line, char copy[300], struct cli *ret, struct err *err)
{
    char *argv[WORDS_MAX + 2] = {(char[]){"paddock"}};
    int argc = 1;
    snprintf(copy, 300, "%s", line);
    for (char *word = strtok(copy, " "); word && argc <= WORDS_MAX; word = strtok(NULL, " "))
        argv[argc++] = word;
    return cli_parse(argc, argv, ret, err);
}

static void test_command_lines_that_are_understood(void)
{
    static const struct {
        const char *line, *verb;
        size_t args;
        const char *last;
        enum cli_option_id option;
        const char *value; /* NULL: not given */
    } cases[] = {
        {"ls", "ls", 0, NULL, OPTION_JSON, NULL},
        {"ls --json", "ls", 0, NULL, OPTION_JSON, ""},
        {"--json status a", "status", 1, "a", OPTION_JSON, ""},
        {"--cwd /tmp exec a ls -la", "exec", 3, "-la", OPTION_CWD, "/tmp"},
        {"--json image ls", "image ls", 0, NULL, OPTION_JSON, ""},
        {"--version status", "status", 0, NULL, OPTION_VERSION, ""},
        {"--url unix:/x ls", "ls", 0, NULL, OPTION_URL, "unix:/x"},
        {"ls --url=http://a", "ls", 0, NULL, OPTION_URL, "http://a"},
        {"run a b c -d", "run", 3, "c", OPTION_DETACH, ""},
        {"run a -- b -d", "run", 3, "-d", OPTION_DETACH, NULL},
        {"run a -", "run", 2, "-", OPTION_DETACH, NULL},
        {"log -f a", "log", 1, "a", OPTION_FOLLOW, ""},
        {"exec a ls --root", "exec", 3, "--root", OPTION_ROOT, NULL},
        {"exec --root a ls", "exec", 2, "ls", OPTION_ROOT, ""},
        {"exec a --root -- ls -la", "exec", 3, "-la", OPTION_ROOT, ""},
        {"exec a --cwd /tmp -- ls -- x", "exec", 4, "x", OPTION_CWD, "/tmp"},
        {"image build claude", "image build", 1, "claude", OPTION_JSON, NULL},
        {"image --help", NULL, 0, NULL, OPTION_HELP, ""},
        {"run --help", "run", 0, NULL, OPTION_HELP, ""},
        {"--version", NULL, 0, NULL, OPTION_VERSION, ""},
        {"policy check f --var A=b --var C=d", "policy check", 1, "f", OPTION_VAR, "C=d"},
        {"clone a -- --url", "clone", 2, "--url", OPTION_URL, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char copy[300];
        struct cli cli;
        struct err err = {0};
        enum cli_exit status = parse(cases[i].line, copy, &cli, &err);
        if (status != CLI_OK)
            fprintf(stderr, "%s: %s\n", cases[i].line, err.message);
        assert(status == CLI_OK && !err.message[0]);
        assert(cases[i].verb ? strcmp(cli.verb->name, cases[i].verb) == 0 : !cli.verb);
        assert(cli.arg_count == cases[i].args);
        if (cases[i].last)
            assert(strcmp(cli.args[cli.arg_count - 1], cases[i].last) == 0);
        const char *value = cli.values[cases[i].option];
        assert(cases[i].value ? value && strcmp(value, cases[i].value) == 0 : !value);
        free(cli.args);
    }
}

static void test_command_lines_that_are_refused(void)
{
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"", "paddock --help"},
        {"statsu a", "did you mean \"status\"?"},
        {"rnu a b", "did you mean \"run\"?"},
        {"frobnicate", "no verb \"frobnicate\": see"},
        {"image", "second word"},
        {"image bild x", "did you mean \"image build\"?"},
        {"imgae build x", "did you mean \"image build\"?"},
        {"image frob", "no verb \"image frob\""},
        {"run a b --detatch", "did you mean \"--detach\"?"},
        {"run a b --frob", "no option \"--frob\": see `paddock run --help`"},
        {"run a b --jsno", "did you mean \"--json\"?"},
        {"--detach ls", "\"ls\" has no option \"--detach\": see `paddock ls --help`"},
        {"--jsno ls", "did you mean \"--json\"?"},
        {"--json", "what is to be done?"},
        {"ls --state runing", "--state runing: did you mean \"running\"?"},
        {"ls --state gone", "--state takes one of: stopped"},
        {"ls --detach", "no option \"--detach\""},
        {"ls -x", "no option \"-x\""},
        {"ls --json=1", "takes no value"},
        {"ls --url", "needs its URL"},
        {"status", "too few arguments: usage: paddock status NAME"},
        {"status a b", "too many arguments"},
        {"exec a", "too few"},
        {"run a", "too few"},
        {"status A", "\"A\" is not a name"},
        {"status a_b", "is not a name"},
        {"status -- -a", "is not a name"},
        {"status ..", "is not a name"},
        {"rm a B", "\"B\" is not a name"},
        {"image build ../x", "is not a name"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char copy[300];
        struct cli cli;
        struct err err = {0};
        enum cli_exit status = parse(cases[i].line, copy, &cli, &err);
        if (status != CLI_USAGE || !strstr(err.message, cases[i].says))
            fprintf(stderr, "%s: %s\n", cases[i].line, err.message);
        assert(status == CLI_USAGE && strstr(err.message, cases[i].says));
        free(cli.args);
    }
}

static void test_vars_are_kept_in_order(void)
{
    char copy[300];
    struct cli cli;
    struct err err = {0};
    assert(parse("policy check f --var A=1 --var=B=2", copy, &cli, &err) == CLI_OK);
    size_t at = 0;
    assert(strcmp(cli_next_value(&cli, OPTION_VAR, &at), "A=1") == 0);
    assert(strcmp(cli_next_value(&cli, OPTION_VAR, &at), "B=2") == 0);
    assert(!cli_next_value(&cli, OPTION_VAR, &at));
    free(cli.args);
}

static void test_help_names_everything_in_80_columns(void)
{
    char text[16 * 1024];
    for (size_t i = 0; i <= cli_verb_count; i++) {
        FILE *out = fmemopen(text, sizeof(text), "w");
        cli_help_print(out, i ? &cli_verbs[i - 1] : NULL);
        assert(fclose(out) == 0);
        for (size_t j = 0; i == 0 && j < cli_verb_count; j++)
            assert(cli_verbs[j].is_hidden ||
                   (strstr(text, cli_verbs[j].name) && strstr(text, cli_verbs[j].summary)));
        for (size_t j = 0; i && j < OPTION_COUNT; j++)
            if (cli_verb_takes(&cli_verbs[i - 1], j))
                assert(strstr(text, cli_options[j].name));
        for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
            assert(strcspn(line, "\n") <= 80);
    }
}

int main(void)
{
    test_command_lines_that_are_understood();
    test_command_lines_that_are_refused();
    test_vars_are_kept_in_order();
    test_help_names_everything_in_80_columns();
    return 0;
}
