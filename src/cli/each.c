/* Verbs over several sandboxes: which they are, and one request for each. */
#include <stdlib.h>
#include <string.h>

#include "cli/table.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "util/name.h"

static long read_seconds(const char *text)
{
    static const struct {
        const char *unit;
        long seconds;
    } units[] = {{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 9)
        return 0;
    long number = strtol(text, NULL, 10);
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (strcmp(text + digits, units[i].unit) == 0)
            return number > LIMIT_TOKEN_SECONDS / units[i].seconds ? 0 : number * units[i].seconds;
    return 0;
}

int64_t cli_read_ms(const struct cli *cli, enum cli_option_id id, struct err *err)
{
    const char *text = cli->values[id];
    long seconds = text ? read_seconds(text) : 0;
    if (!text || seconds)
        return seconds * INT64_C(1000);
    cli_fail(err, CLI_USAGE, "\"%.80s\" is no time: use a number and s, m, h or d, as in 12h",
             text);
    return -1;
}

void cli_targets_free(struct cli_targets *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->list[i]);
    free(names->list);
}

static enum cli_exit take(struct cli_targets *names, const char *name, struct err *err)
{
    if (!name || !name_is_valid(name, strlen(name)))
        return cli_fail(err, CLI_FAILED, "the daemon's answer has a name that is none");
    names->list[names->count] = strdup(name);
    return names->list[names->count++] ? CLI_OK : cli_fail(err, CLI_FAILED, "out of memory");
}

static enum cli_exit take_all(const struct cli *cli, struct cli_targets *ret, struct err *err)
{
    cleanup_json struct json *json = NULL;
    cleanup_reply struct cli_reply reply = {0};
    struct cli_request request = {.method = "GET", .path = "/sandboxes"};
    enum cli_exit status = cli_ask(cli, &request, &reply, err);
    if (status != CLI_OK)
        return status;
    if (json_parse(buf_text(&reply.body), reply.body.len, JSON_STRICT, &json, NULL) < 0)
        return cli_fail(err, CLI_FAILED, "the daemon's answer is not JSON");
    ret->list = calloc(json_count(json) + 1, sizeof(*ret->list));
    if (!ret->list)
        return cli_fail(err, CLI_FAILED, "out of memory");
    for (size_t i = 0; status == CLI_OK && i < json_count(json); i++)
        status = take(ret, json_text(json_get(json_at(json, i), "name")), err);
    return status;
}

enum cli_exit cli_targets(const struct cli *cli, struct cli_targets *ret, struct err *err)
{
    enum cli_exit status = CLI_OK;
    bool is_all = cli->values[OPTION_ALL];
    if (is_all == (cli->arg_count > 0))
        return cli_fail(err, CLI_USAGE, "paddock %s takes names or --all", cli->verb->name);
    if (is_all)
        return take_all(cli, ret, err);
    ret->list = calloc(cli->arg_count, sizeof(*ret->list));
    if (!ret->list)
        return cli_fail(err, CLI_FAILED, "out of memory");
    for (size_t i = 0; status == CLI_OK && i < cli->arg_count; i++)
        status = take(ret, cli->args[i], err);
    return status;
}

static void add_message(struct err *err, const struct err *why)
{
    size_t len = strlen(err->message);
    snprintf(err->message + len, sizeof(err->message) - len, "%s%s", len ? "\n" : "", why->message);
}

enum cli_exit cli_each(const struct cli *cli, const struct cli_targets *names, const char *method,
                       const char *before, const char *after, struct err *err)
{
    enum cli_exit first = CLI_OK;
    for (size_t i = 0; i < names->count; i++) {
        char path[128];
        const char *arg = names->list[i];
        struct err why = {0};
        cleanup_reply struct cli_reply reply = {0};
        struct cli one = *cli;
        one.args = &arg; /* messages name this one */
        one.arg_count = 1;
        snprintf(path, sizeof(path), "%s%s%s", before, arg, after);
        struct cli_request request = {.method = method, .path = path};
        enum cli_exit status = cli_ask(&one, &request, &reply, &why);
        if (status == CLI_OK)
            continue;
        if (first == CLI_OK)
            first = status;
        add_message(err, &why);
        if (status == CLI_UNREACHABLE || status == CLI_INTERRUPTED)
            break;
    }
    return first;
}
