/* paddock prune, image prune: remove what is not used: stopped sandboxes, images that no sandbox
 * has, the trash. The daemon removes a sandbox only if it is still stopped, and no image of one
 * that runs.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/table.h"
#include "util/cleanup.h"
#include "util/clock.h"

#define PATH_BYTES 4096

struct prune {
    struct cli_targets sandboxes;
    struct cli_targets images;
};

static void prune_free(struct prune *prune)
{
    cli_targets_free(&prune->sandboxes);
    cli_targets_free(&prune->images);
}

static enum cli_exit ask_list(const struct cli *cli, const char *path, struct json **ret,
                              struct err *err)
{
    cleanup_reply struct cli_reply reply = {0};
    struct cli_request request = {.method = "GET", .path = path};
    enum cli_exit status = cli_ask(cli, &request, &reply, err);
    if (status == CLI_OK &&
        json_parse(buf_text(&reply.body), reply.body.len, JSON_STRICT, ret, NULL) < 0)
        return cli_fail(err, CLI_FAILED, "the daemon's answer is not JSON");
    return status;
}

static bool has_name(const struct cli_targets *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->list[i], name) == 0)
            return true;
    return false;
}

static enum cli_exit add_name(struct cli_targets *names, const struct json *entry, struct err *err)
{
    const char *name = json_text(json_get(entry, "name"));
    char **grown = reallocarray(names->list, names->count + 1, sizeof(*grown));
    if (!grown || !name)
        return cli_fail(err, CLI_FAILED, "the daemon's answer cannot be kept");
    names->list = grown;
    grown[names->count] = strdup(name);
    return grown[names->count++] ? CLI_OK : cli_fail(err, CLI_FAILED, "out of memory");
}

static enum cli_exit find_sandboxes(const struct cli *cli, struct prune *ret, struct err *err)
{
    cleanup_json struct json *json = NULL;
    cleanup_buf struct buf path = BUF_INIT(PATH_BYTES);
    int64_t older_ms = cli_read_ms(cli, OPTION_OLDER, err);
    int64_t until = clock_unix_ms() - older_ms;
    if (buf_append_string(&path, "/sandboxes") < 0 || cli_append_filters(cli, &path) < 0)
        return cli_fail(err, CLI_USAGE, "the labels are too long");
    enum cli_exit status = ask_list(cli, buf_text(&path), &json, err);
    for (size_t i = 0; status == CLI_OK && i < json_count(json); i++) {
        const struct json *one = json_at(json, i);
        const char *state = json_text(json_get(one, "state"));
        int64_t stopped = json_integer(json_get(one, "stopped")); /* 0: nobody knows since when */
        if (state && strcmp(state, "stopped") == 0 && (!older_ms || (stopped && stopped <= until)))
            status = add_name(&ret->sandboxes, one, err);
    }
    return status;
}

static bool is_used(const struct json *sandboxes, const char *image,
                    const struct cli_targets *going)
{
    for (size_t i = 0; i < json_count(sandboxes); i++) {
        const struct json *one = json_at(sandboxes, i);
        const char *name = json_text(json_get(one, "name"));
        const char *its = json_text(json_get(one, "image"));
        if (name && its && strcmp(its, image) == 0 && !has_name(going, name))
            return true;
    }
    return false;
}

static enum cli_exit find_images(const struct cli *cli, struct prune *ret, struct err *err)
{
    cleanup_json struct json *images = NULL;
    cleanup_json struct json *sandboxes = NULL;
    enum cli_exit status = ask_list(cli, "/images", &images, err);
    if (status == CLI_OK)
        status = ask_list(cli, "/sandboxes", &sandboxes, err);
    for (size_t i = 0; status == CLI_OK && i < json_count(images); i++) {
        const char *name = json_text(json_get(json_at(images, i), "name"));
        bool is_default = json_bool(json_get(json_at(images, i), "default"));
        if (name && !is_default && !is_used(sandboxes, name, &ret->sandboxes))
            status = add_name(&ret->images, json_at(images, i), err);
    }
    return status;
}

/* ------------------------------------------------------------------------------- what goes */

static void tell_names(FILE *out, const char *kind, const struct cli_targets *names)
{
    fprintf(out, "%s:", kind);
    for (size_t i = 0; i < names->count; i++) {
        fputc(' ', out);
        cli_write_cell(out, names->list[i], 0);
    }
    fputs(names->count ? "\n" : " none\n", out);
}

static void print_json_names(struct json_writer *writer, const char *key,
                             const struct cli_targets *names)
{
    json_write_key(writer, key);
    json_write_array_begin(writer);
    for (size_t i = 0; i < names->count; i++)
        json_write_string(writer, names->list[i]);
    json_write_array_end(writer);
}

/* `image prune`, not `prune`. */
static bool is_images_alone(const struct cli *cli)
{
    return strcmp(cli->verb->name, "image prune") == 0;
}

static void print_json(const struct cli *cli, const struct prune *prune, bool is_removed)
{
    cleanup_buf struct buf text = BUF_INIT(16 * 1024 * 1024);
    struct json_writer *writer = json_writer_new(&text, false);
    if (!writer)
        return;
    json_write_object_begin(writer);
    if (!is_images_alone(cli))
        print_json_names(writer, "sandboxes", &prune->sandboxes);
    print_json_names(writer, "images", &prune->images);
    json_write_pair_bool(writer, "removed", is_removed);
    json_write_object_end(writer);
    if (json_writer_end(writer) == 0)
        cli_print_json(&text);
}

/* True: go on. */
static bool is_agreed(const struct cli *cli)
{
    char answer[16] = "";
    fprintf(stderr, "Remove these%s? [y/N] ", is_images_alone(cli) ? "" : " and empty the trash");
    return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static enum cli_exit remove_all(const struct cli *cli, const struct prune *prune, struct err *err)
{
    cleanup_reply struct cli_reply reply = {0};
    struct cli_request trash = {.method = "DELETE", .path = "/trash"};
    enum cli_exit status =
        cli_each(cli, &prune->sandboxes, "DELETE", "/sandboxes/", "?state=stopped", err);
    enum cli_exit next = cli_each(cli, &prune->images, "DELETE", "/images/", "", err);
    if (status == CLI_OK)
        status = next;
    return status == CLI_OK && !is_images_alone(cli) ? cli_ask(cli, &trash, &reply, err) : status;
}

static enum cli_exit find_all(const struct cli *cli, struct prune *ret, struct err *err)
{
    if (is_images_alone(cli))
        return find_images(cli, ret, err);
    bool is_narrow = cli->values[OPTION_LABEL] || cli->values[OPTION_OLDER];
    enum cli_exit status = find_sandboxes(cli, ret, err);
    return status == CLI_OK && !is_narrow ? find_images(cli, ret, err) : status;
}

enum cli_exit cmd_prune(struct cli *cli, struct err *err)
{
    __attribute__((cleanup(prune_free))) struct prune prune = {0};
    bool is_dry = cli->values[OPTION_DRY_RUN];
    bool must_ask = !is_dry && !cli->values[OPTION_YES];
    if (cli_read_ms(cli, OPTION_OLDER, err) < 0)
        return CLI_USAGE;
    if (must_ask && !isatty(STDIN_FILENO))
        return cli_fail(
            err, CLI_USAGE,
            "this is no terminal to ask on: use --yes, or --dry-run to see what would go");
    enum cli_exit status = find_all(cli, &prune, err);
    if (status != CLI_OK)
        return status;
    FILE *out = must_ask ? stderr : stdout;
    if (!cli->values[OPTION_JSON] || must_ask) {
        if (!is_images_alone(cli))
            tell_names(out, "stopped sandboxes", &prune.sandboxes);
        tell_names(out, "unused images", &prune.images);
    }
    bool is_removed = !is_dry && (!must_ask || is_agreed(cli));
    if (is_removed)
        status = remove_all(cli, &prune, err);
    if (status == CLI_OK && cli->values[OPTION_JSON])
        print_json(cli, &prune, is_removed);
    return status;
}
