/*
 * paddock complete -- WORD...: what the last of the words may become, one candidate a line, with a
 * tab and what it is; or ":files" for the names of files. For the completion of shells, which knows
 * nothing itself. Names are asked of the daemon, which is given little time for it.
 */
#include <string.h>

#include "cli/table.h"
#include "util/cleanup.h"
#include "util/name.h"

#define ASK_TIMEOUT_MS 1500

struct completion {
    const char *const *words; /* the last one is to be completed */
    size_t count;
    const struct cli_verb *verb;
    const char *group;                 /* "image", when its second word comes next */
    size_t first;                      /* the first argument, among the words */
    size_t arguments;                  /* so many in front of the last word */
    const char *url;                   /* of --url */
    bool is_literal;                   /* behind "--" */
    const struct cli_option *value_of; /* the last word is the value of this */
};

static const char *current(const struct completion *completion)
{
    return completion->words[completion->count - 1];
}

static void offer(const struct completion *completion, const char *word, const char *what)
{
    if (strncmp(word, current(completion), strlen(current(completion))) == 0)
        printf("%s\t%s\n", word, what);
}

static const struct cli_option *find_option(const char *word)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct cli_option *option = &cli_options[i];
        if (strncmp(word, "--", 2) == 0 ? strcmp(word + 2, option->name) == 0
                                        : option->letter && word[1] == option->letter && !word[2])
            return option;
    }
    return NULL;
}

static bool begins_group(const char *word)
{
    size_t len = strlen(word);
    for (size_t i = 0; i < cli_verb_count; i++)
        if (strncmp(cli_verbs[i].name, word, len) == 0 && cli_verbs[i].name[len] == ' ')
            return true;
    return false;
}

static void take_word(struct completion *completion, size_t at)
{
    const char *word = completion->words[at];
    char name[80];
    if (completion->verb) {
        if (completion->arguments++ == 0)
            completion->first = at;
        completion->is_literal =
            completion->is_literal || completion->arguments == completion->verb->literal_after;
    } else if (completion->group) {
        snprintf(name, sizeof(name), "%s %.40s", completion->group, word);
        completion->verb = cli_verb_find(name);
    } else if (begins_group(word)) {
        completion->group = word;
    } else {
        completion->verb = cli_verb_find(word);
    }
}

/* All words but the last. */
static void read_words(struct completion *completion)
{
    for (size_t i = 0; i + 1 < completion->count; i++) {
        const char *word = completion->words[i];
        bool is_option = !completion->is_literal && word[0] == '-' && word[1];
        const struct cli_option *option = is_option ? find_option(word) : NULL;
        if (is_option && strcmp(word, "--") == 0) {
            completion->is_literal = true;
        } else if (option && option->value) {
            completion->value_of = i + 2 == completion->count ? option : NULL;
            i++;
            if (option == &cli_options[OPTION_URL] && i + 1 < completion->count)
                completion->url = completion->words[i];
        } else if (is_option && strncmp(word, "--url=", 6) == 0) {
            completion->url = word + 6;
        } else if (!is_option) {
            take_word(completion, i);
        }
    }
}

static void offer_verbs(const struct completion *completion)
{
    const char *last_group = "";
    for (size_t i = 0; i < cli_verb_count; i++) {
        const struct cli_verb *verb = &cli_verbs[i];
        char word[40];
        size_t len = strcspn(verb->name, " ");
        if (verb->is_hidden)
            continue;
        snprintf(word, sizeof(word), "%.*s", (int)len, verb->name);
        if (completion->group) {
            if (strcmp(word, completion->group) == 0)
                offer(completion, verb->name + len + 1, verb->summary);
        } else if (!verb->name[len]) {
            offer(completion, word, verb->summary);
        } else if (strncmp(last_group, word, len) != 0) {
            offer(completion, word, "has verbs of its own");
            last_group = verb->name;
        }
    }
}

static bool is_given(const struct completion *completion, const struct cli_option *option)
{
    for (size_t i = 0; i + 1 < completion->count; i++)
        if (completion->words[i][0] == '-' && find_option(completion->words[i]) == option)
            return true;
    return false;
}

static void offer_options(const struct completion *completion)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct cli_option *option = &cli_options[i];
        char word[40];
        bool is_taken = completion->verb ? cli_verb_takes(completion->verb, i)
                                         : option->is_global || i == OPTION_VERSION;
        if (!is_taken || (is_given(completion, option) && !option->is_repeated))
            continue;
        snprintf(word, sizeof(word), "--%s", option->name);
        offer(completion, word, option->help);
    }
}

static void offer_words(const struct completion *completion, const char *words)
{
    char word[40];
    for (; *words; words += strspn(words, " ")) {
        size_t len = strcspn(words, " ");
        snprintf(word, sizeof(word), "%.*s", (int)len, words);
        offer(completion, word, "");
        words += len;
    }
}

static bool is_among(const struct completion *completion, const char *name)
{
    for (size_t i = completion->first; i + 1 < completion->count && completion->arguments; i++)
        if (strcmp(completion->words[i], name) == 0)
            return true;
    return false;
}

/* Only valid names: no other bytes come from the daemon into a command line. */
static void offer_names(const struct cli *cli, const struct completion *completion,
                        enum cli_kind kind)
{
    cleanup_json struct json *json = NULL;
    struct cli_names names;
    if (cli_names_ask(cli, kind, ASK_TIMEOUT_MS, &json, &names) != CLI_OK)
        return;
    for (size_t i = 0; i < json_count(names.rows); i++) {
        const struct json *row = json_at(names.rows, i);
        const char *name = json_text(json_get(row, names.key));
        const char *what = json_text(json_get(row, "state"));
        if (name && name_is_valid(name, strlen(name)) && !is_among(completion, name))
            offer(completion, name, what && name_is_valid(what, strlen(what)) ? what : names.what);
    }
}

static void offer_arguments(const struct cli *cli, const struct completion *completion)
{
    const struct cli_verb *verb = completion->verb;
    bool are_all = strcmp(verb->arguments, "NAME...") == 0;
    if (completion->arguments >= verb->max_args || (completion->arguments && !are_all))
        return;
    switch (verb->kind) {
    case CLI_KIND_TEXT:
        return;
    case CLI_KIND_FILE:
        puts(":files");
        return;
    case CLI_KIND_VERB:
        offer_verbs(completion);
        return;
    case CLI_KIND_SANDBOX:
    case CLI_KIND_IMAGE:
    case CLI_KIND_RECIPE:
    case CLI_KIND_TOKEN:
    case CLI_KIND_AGENT:
    case CLI_KIND_POLICY:
        offer_names(cli, completion, verb->kind);
        return;
    }
}

enum cli_exit cmd_complete(struct cli *cli, struct err *err)
{
    (void)err;
    struct completion completion = {.words = cli->args, .count = cli->arg_count};
    read_words(&completion);
    if (completion.url)
        cli->values[OPTION_URL] = completion.url;
    bool wants_option = current(&completion)[0] == '-' && !completion.is_literal;
    if (completion.value_of && completion.value_of->kind == CLI_KIND_FILE)
        puts(":files");
    else if (completion.value_of && completion.value_of->kind != CLI_KIND_TEXT)
        offer_names(cli, &completion, completion.value_of->kind);
    else if (completion.value_of)
        offer_words(&completion, completion.value_of->words ? completion.value_of->words : "");
    else if (wants_option)
        offer_options(&completion);
    else if (!completion.verb)
        offer_verbs(&completion);
    else
        offer_arguments(cli, &completion);
    return CLI_OK;
}
