/* `paddock help --json`: the tables of verbs.h for programs: completion, lints, front ends. */
#include <string.h>

#include "cli/cli.h"
#include "util/limits.h"
#include "json/json.h"

static void write_options(struct json_writer *writer)
{
    json_write_key(writer, "options");
    json_write_array_begin(writer);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct cli_option *option = &cli_options[i];
        char letter[2] = {option->letter, '\0'};
        json_write_object_begin(writer);
        json_write_pair_string(writer, "name", option->name);
        if (option->letter)
            json_write_pair_string(writer, "letter", letter);
        if (option->value)
            json_write_pair_string(writer, "value", option->value);
        json_write_pair_string(writer, "help", option->help);
        json_write_object_end(writer);
    }
    json_write_array_end(writer);
}

static void write_verb(struct json_writer *writer, const struct cli_verb *verb)
{
    json_write_object_begin(writer);
    json_write_pair_string(writer, "name", verb->name);
    json_write_pair_string(writer, "arguments", verb->arguments);
    json_write_pair_string(writer, "summary", verb->summary);
    if (verb->details)
        json_write_pair_string(writer, "details", verb->details);
    json_write_key(writer, "options");
    json_write_array_begin(writer);
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (cli_verb_takes(verb, i))
            json_write_string(writer, cli_options[i].name);
    json_write_array_end(writer);
    json_write_object_end(writer);
}

static void write_verbs(struct json_writer *writer)
{
    json_write_key(writer, "verbs");
    json_write_array_begin(writer);
    for (size_t i = 0; i < cli_verb_count; i++)
        if (!cli_verbs[i].is_hidden)
            write_verb(writer, &cli_verbs[i]);
    json_write_array_end(writer);
}

static void write_statuses(struct json_writer *writer)
{
    json_write_key(writer, "exitStatuses");
    json_write_array_begin(writer);
    for (size_t i = 0; i < cli_status_count; i++) {
        json_write_object_begin(writer);
        json_write_pair_integer(writer, "status", cli_statuses[i].status);
        json_write_pair_string(writer, "text", cli_statuses[i].text);
        json_write_object_end(writer);
    }
    json_write_array_end(writer);
}

static void write_variables(struct json_writer *writer)
{
    json_write_key(writer, "environment");
    json_write_object_begin(writer);
    for (size_t i = 0; i < cli_variable_count; i++)
        json_write_pair_string(writer, cli_variables[i].name, cli_variables[i].text);
    json_write_object_end(writer);
}

void cli_help_print_json(FILE *out)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CLI_REPLY_BYTES);
    struct json_writer *writer = json_writer_new(&text, false);
    if (!writer)
        return;
    json_write_object_begin(writer);
    write_verbs(writer);
    write_options(writer);
    write_statuses(writer);
    write_variables(writer);
    json_write_object_end(writer);
    if (json_writer_end(writer) == 0)
        fprintf(out, "%s\n", buf_text(&text));
}
