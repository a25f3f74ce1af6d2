/* The names that the daemon knows, by kind: for completion, and for the near one where a name is
 * not known. */
#include <string.h>

#include "cli/table.h"
#include "util/name.h"
#include "util/near.h"

#define SUGGEST_TIMEOUT_MS 3000

struct names_place {
    const char *path;
    const char *list; /* the key of the list; the answer may be the list itself */
    const char *key;  /* of the name */
    const char *what; /* one of them */
};

static bool find_place(enum cli_kind kind, struct names_place *ret)
{
    switch (kind) {
    case CLI_KIND_SANDBOX:
        *ret = (struct names_place){"/sandboxes", "sandboxes", "name", "sandbox"};
        return true;
    case CLI_KIND_IMAGE:
    case CLI_KIND_RECIPE:
        *ret = (struct names_place){"/images", "images", "name", "image"};
        return true;
    case CLI_KIND_TOKEN:
        *ret = (struct names_place){"/tokens", "tokens", "id", "token"};
        return true;
    case CLI_KIND_AGENT:
        *ret = (struct names_place){"/agents", "agents", "name", "agent"};
        return true;
    case CLI_KIND_POLICY:
        *ret = (struct names_place){"/policies", "policies", "name", "policy"};
        return true;
    case CLI_KIND_TEXT:
    case CLI_KIND_VERB:
    case CLI_KIND_FILE:
        break;
    }
    return false;
}

enum cli_exit cli_names_ask(const struct cli *cli, enum cli_kind kind, long timeout_ms,
                            struct json **ret, struct cli_names *ret_names)
{
    struct names_place place;
    struct err ignored = {0};
    cleanup_reply struct cli_reply reply = {0};
    if (!find_place(kind, &place))
        return CLI_FAILED;
    struct cli_request request = {.method = "GET", .path = place.path, .timeout_ms = timeout_ms};
    enum cli_exit status = cli_call(cli, &request, &reply, &ignored);
    if (status != CLI_OK || reply.status != 200 ||
        json_parse(buf_text(&reply.body), reply.body.len, JSON_STRICT, ret, NULL) < 0)
        return CLI_FAILED;
    *ret_names = (struct cli_names){
        .rows = json_type(*ret) == JSON_ARRAY ? *ret : json_get(*ret, place.list),
        .key = place.key,
        .what = place.what};
    return CLI_OK;
}

bool cli_suggest(const struct cli *cli, const char *name, char *ret, size_t size)
{
    cleanup_json struct json *json = NULL;
    struct cli_names names;
    struct near near = {.word = name};
    ret[0] = '\0';
    if (cli_names_ask(cli, cli->verb->kind, SUGGEST_TIMEOUT_MS, &json, &names) != CLI_OK)
        return false;
    for (size_t i = 0; i < json_count(names.rows); i++) {
        const char *known = json_text(json_get(json_at(names.rows, i), names.key));
        if (known && strcmp(known, name) == 0)
            return false;
        if (known && name_is_valid(known, strlen(known)))
            near_consider(&near, known);
    }
    if (near.best)
        snprintf(ret, size, "there is no %s \"%s\": did you mean \"%s\"?", names.what, name,
                 near.best);
    return near.best != NULL;
}
