/* Reads the command line by the table of verbs.c. Pure: prints and exits nothing. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "util/cleanup.h"
#include "util/name.h"
#include "util/near.h"

struct reader {
    struct cli *cli;
    int argc;
    char **argv;
    int at; /* next word */
    struct err *err;
};

/* "image" of "image build" */
static bool is_first_word(const char *verb, const char *word)
{
    size_t len = strlen(word);
    return strncmp(verb, word, len) == 0 && verb[len] == ' ';
}

const struct cli_verb *cli_verb_find(const char *name)
{
    for (size_t i = 0; i < cli_verb_count; i++)
        if (strcmp(cli_verbs[i].name, name) == 0)
            return &cli_verbs[i];
    return NULL;
}

static bool is_group(const char *word)
{
    for (size_t i = 0; i < cli_verb_count; i++)
        if (is_first_word(cli_verbs[i].name, word))
            return true;
    return false;
}

const char *cli_next_value(const struct cli *cli, enum cli_option_id id, size_t *at)
{
    while (*at < cli->repeated_count)
        if (cli->repeated[(*at)++].id == id)
            return cli->repeated[*at - 1].value;
    return NULL;
}

enum cli_exit cli_refuse_verb(const char *words, struct err *err)
{
    struct near near = {.word = words};
    char list[256] = "";
    for (size_t i = 0; i < cli_verb_count; i++) {
        size_t len = strlen(list);
        if (cli_verbs[i].is_hidden)
            continue;
        near_consider(&near, cli_verbs[i].name);
        if (is_first_word(cli_verbs[i].name, words))
            snprintf(list + len, sizeof(list) - len, "%s\"%s\"", len ? ", " : "",
                     cli_verbs[i].name);
    }
    if (list[0])
        return cli_fail(err, CLI_USAGE, "\"%s\" needs a second word: %s", words, list);
    if (near.best)
        return cli_fail(err, CLI_USAGE, "no verb \"%s\": did you mean \"%s\"?", words, near.best);
    return cli_fail(err, CLI_USAGE, "no verb \"%s\": see `paddock --help`", words);
}

/* Takes one word that is no option as the verb, or its first half. */
static enum cli_exit take_verb(struct reader *reader, const char *word)
{
    char name[80];
    if (is_group(word)) {
        const char *second = reader->at < reader->argc ? reader->argv[reader->at] : NULL;
        if (!second || second[0] == '-') {
            if (second && (strcmp(second, "--help") == 0 || strcmp(second, "-h") == 0))
                return CLI_OK;
            return cli_refuse_verb(word, reader->err);
        }
        reader->at++;
        snprintf(name, sizeof(name), "%s %s", word, second);
        reader->cli->verb = cli_verb_find(name);
        return reader->cli->verb ? CLI_OK : cli_refuse_verb(name, reader->err);
    }
    reader->cli->verb = cli_verb_find(word);
    if (reader->cli->verb)
        return CLI_OK;
    /* "imgae build": the second word helps to find what was meant */
    const char *second = reader->at < reader->argc ? reader->argv[reader->at] : NULL;
    snprintf(name, sizeof(name), "%s %s", word, second ? second : "");
    struct near near = {.word = name};
    for (size_t i = 0; i < cli_verb_count; i++)
        if (strchr(cli_verbs[i].name, ' '))
            near_consider(&near, cli_verbs[i].name);
    return cli_refuse_verb(near.best && second ? name : word, reader->err);
}

static enum cli_exit refuse_option(struct reader *reader, const char *word)
{
    const struct cli_verb *verb = reader->cli->verb;
    struct near near = {.word = word + strspn(word, "-")};
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (cli_verb_takes(verb, i))
            near_consider(&near, cli_options[i].name);
    const char *name = verb ? verb->name : "";
    if (near.best)
        return cli_fail(reader->err, CLI_USAGE, "no option \"%s\": did you mean \"--%s\"?", word,
                        near.best);
    return cli_fail(reader->err, CLI_USAGE, "no option \"%s\": see `paddock %s%s--help`", word,
                    name, verb ? " " : "");
}

static bool option_is(const struct cli_option *option, const char *word, size_t len)
{
    if (word[1] == '-')
        return strlen(option->name) == len - 2 && strncmp(option->name, word + 2, len - 2) == 0;
    if (option->also && strcmp(word, option->also) == 0)
        return true;
    return option->letter && len == 2 && word[1] == option->letter;
}

static enum cli_exit check_choice(struct reader *reader, const struct cli_option *option,
                                  const char *value)
{
    struct near near = {.word = value};
    char words[8][32] = {{0}};
    size_t count = 0;
    for (const char *at = option->words; *at && count < ARRAY_LEN(words); at += strspn(at, " ")) {
        size_t len = strcspn(at, " ");
        snprintf(words[count], sizeof(words[0]), "%.*s", (int)len, at);
        if (strcmp(words[count], value) == 0)
            return CLI_OK;
        near_consider(&near, words[count++]);
        at += len;
    }
    if (near.best)
        return cli_fail(reader->err, CLI_USAGE, "--%s %.80s: did you mean \"%s\"?", option->name,
                        value, near.best);
    return cli_fail(reader->err, CLI_USAGE, "--%s takes one of: %s", option->name, option->words);
}

static enum cli_exit store_option(struct reader *reader, size_t id, const char *value)
{
    struct cli *cli = reader->cli;
    if (cli_options[id].is_choice) {
        enum cli_exit status = check_choice(reader, &cli_options[id], value);
        if (status != CLI_OK)
            return status;
    }
    if (cli_options[id].is_repeated) {
        if (cli->repeated_count == CLI_REPEATED_MAX)
            return cli_fail(reader->err, CLI_USAGE, "more than %d options", CLI_REPEATED_MAX);
        cli->repeated[cli->repeated_count].id = id;
        cli->repeated[cli->repeated_count++].value = value;
    }
    cli->values[id] = value;
    return CLI_OK;
}

/* Takes "--name", "--name=value", "--name value", "-n", "-n value". */
static enum cli_exit take_option(struct reader *reader, const char *word)
{
    const char *equals = word[1] == '-' ? strchr(word, '=') : NULL;
    size_t len = equals ? (size_t)(equals - word) : strlen(word);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct cli_option *option = &cli_options[i];
        if (!cli_verb_takes(reader->cli->verb, i) || !option_is(option, word, len))
            continue;
        if (!option->value)
            return equals
                       ? cli_fail(reader->err, CLI_USAGE, "\"--%s\" takes no value", option->name)
                       : store_option(reader, i, "");
        if (equals)
            return store_option(reader, i, equals + 1);
        if (reader->at >= reader->argc)
            return cli_fail(reader->err, CLI_USAGE, "\"--%s\" needs its %s", option->name,
                            option->value);
        return store_option(reader, i, reader->argv[reader->at++]);
    }
    return refuse_option(reader, word);
}

static enum cli_exit read_words(struct reader *reader)
{
    struct cli *cli = reader->cli;
    bool is_literal = false;
    while (reader->at < reader->argc) {
        const char *word = reader->argv[reader->at++];
        enum cli_exit status = CLI_OK;
        if (!is_literal && strcmp(word, "--") == 0) {
            is_literal = true;
        } else if (!is_literal && word[0] == '-' && word[1]) {
            status = take_option(reader, word);
        } else if (!cli->verb) {
            status = take_verb(reader, word);
        } else {
            cli->args[cli->arg_count++] = word;
            is_literal = is_literal || cli->arg_count == cli->verb->literal_after;
        }
        if (status != CLI_OK)
            return status;
    }
    return CLI_OK;
}

/* In front of the verb may stand what its verb takes, whichever that will be. */
static enum cli_exit check_early_options(const struct cli *cli, struct err *err)
{
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (cli->values[i] && !cli_verb_takes(cli->verb, i))
            return cli_fail(err, CLI_USAGE,
                            "\"%s\" has no option \"--%s\": see `paddock %s --help`",
                            cli->verb->name, cli_options[i].name, cli->verb->name);
    return CLI_OK;
}

static bool is_name(const char *name)
{
    return name && name_is_valid(name, strlen(name));
}

static enum cli_exit check_arguments(const struct cli *cli, struct err *err)
{
    const struct cli_verb *verb = cli->verb;
    if (cli->arg_count < verb->min_args || cli->arg_count > verb->max_args)
        return cli_fail(err, CLI_USAGE, "%s arguments: usage: paddock %s%s%s",
                        cli->arg_count < verb->min_args ? "too few" : "too many", verb->name,
                        verb->arguments[0] ? " " : "", verb->arguments);
    bool is_checked = verb->kind >= CLI_KIND_SANDBOX && verb->kind <= CLI_KIND_TOKEN;
    bool are_all = strcmp(verb->arguments, "NAME...") == 0;
    for (size_t i = 0; is_checked && i < cli->arg_count && (i == 0 || are_all); i++)
        if (!is_name(cli->args[i]))
            return cli_fail(err, CLI_USAGE,
                            "\"%.80s\" is not a name: 1 to 63 of a-z, 0-9 and \"-\", not \"-\" "
                            "at either end",
                            cli->args[i]);
    return CLI_OK;
}

enum cli_exit cli_parse(int argc, char **argv, struct cli *ret, struct err *err)
{
    *ret = (struct cli){0};
    ret->args = calloc((size_t)argc + 1, sizeof(*ret->args));
    if (!ret->args)
        return cli_fail(err, CLI_FAILED, "out of memory");
    struct reader reader = {.cli = ret, .argc = argc, .argv = argv, .at = 1, .err = err};
    enum cli_exit status = read_words(&reader);
    if (status != CLI_OK || ret->values[OPTION_HELP] || ret->values[OPTION_VERSION])
        return status;
    if (!ret->verb)
        return cli_fail(err, CLI_USAGE, "what is to be done? see `paddock --help`");
    status = check_early_options(ret, err);
    return status == CLI_OK ? check_arguments(ret, err) : status;
}
