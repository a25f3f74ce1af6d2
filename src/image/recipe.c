/*
 * Recipes; see recipe.h. Used by the supervisor (to refuse a bad one before anything is started)
 * and by paddock-image-build (which trusts nobody's check but its own).
 */
#include "image/recipe.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/buf.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "util/name.h"
#include "json/json.h"

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGIT "0123456789"

#define LINK_FOLDER "/usr/local/bin/"
#define ARCH_VARIABLE "${ARCH}"

const char *recipe_arch(void)
{
#if defined(__x86_64__)
    return "x64";
#elif defined(__aarch64__)
    return "arm64";
#else
#error "Paddock runs on x86-64 and arm64"
#endif
}

/* One or more characters: the first of `first`, the others of `rest`. */
static bool is_word(const char *text, size_t len, const char *first, const char *rest)
{
    if (len == 0 || len > LIMIT_RECIPE_STRING_BYTES || !strchr(first, text[0]))
        return false;
    for (size_t i = 1; i < len; i++)
        if (!strchr(rest, text[i]))
            return false;
    return true;
}

static bool is_suite(const char *text)
{
    return is_word(text, strlen(text), LOWER, LOWER DIGIT "-");
}

/* Debian Policy 5.6.1 and 5.6.12. A name that ends with "-" would tell apt to remove. */
static bool is_debian_package(const char *text)
{
    size_t name = strcspn(text, "=");
    if (name < 2 || text[name - 1] == '-' || !is_word(text, name, LOWER DIGIT, LOWER DIGIT "+-."))
        return false;
    const char *version = text + name;
    return *version == '\0' ||
           is_word(version + 1, strlen(version + 1), DIGIT, LOWER UPPER DIGIT ".+:~-");
}

static bool is_npm_name(const char *text, size_t len)
{
    return is_word(text, len, LOWER DIGIT, LOWER DIGIT "._-");
}

/* MAJOR.MINOR.PATCH exactly, with an optional pre-release: a range or a tag is no pin. */
static bool is_npm_version(const char *text)
{
    for (int part = 0; part < 3; part++) {
        size_t digits = strspn(text, DIGIT);
        if (digits == 0 || digits > 9 || (part < 2 && text[digits] != '.'))
            return false;
        text += digits + (part < 2);
    }
    return *text == '\0' || (*text == '-' && is_word(text + 1, strlen(text + 1), LOWER UPPER DIGIT,
                                                     LOWER UPPER DIGIT ".-"));
}

static bool is_npm_package(const char *text)
{
    if (*text == '@') {
        const char *slash = strchr(text, '/');
        if (!slash || !is_npm_name(text + 1, (size_t)(slash - text - 1)))
            return false;
        text = slash + 1;
    }
    const char *at = strchr(text, '@');
    return at && is_npm_name(text, (size_t)(at - text)) && is_npm_version(at + 1);
}

/* An absolute path whose components are neither empty nor "." nor "..". */
static bool is_clean_path(const char *text)
{
    if (strlen(text) > LIMIT_RECIPE_STRING_BYTES || *text != '/')
        return false;
    while (*text == '/') {
        text++;
        size_t len = strcspn(text, "/");
        if (!is_word(text, len, LOWER UPPER DIGIT "@_.+-", LOWER UPPER DIGIT "@_.+-") ||
            strspn(text, ".") == len)
            return false;
        text += len;
    }
    return true;
}

static bool is_link_path(const char *text)
{
    size_t folder = strlen(LINK_FOLDER);
    return strncmp(text, LINK_FOLDER, folder) == 0 &&
           is_word(text + folder, strlen(text + folder), LOWER UPPER DIGIT,
                   LOWER UPPER DIGIT "._+-");
}

struct recipe_reader {
    const char *file;
    struct err *err;
};

static int recipe_refuse(const struct recipe_reader *reader, const struct json *at,
                         const char *reason)
{
    return err_set(reader->err, EINVAL, "%s:%u:%u: %s", reader->file, json_line(at),
                   json_column(at), reason);
}

/* Refuses keys that are not in the list: a misspelt one would be passed over in silence. */
static int recipe_check_keys(const struct recipe_reader *reader, const struct json *object,
                             const char *const *keys)
{
    for (size_t i = 0; i < json_count(object); i++) {
        const char *const *known = keys;
        while (*known && strcmp(*known, json_key_at(object, i)) != 0)
            known++;
        if (!*known)
            return recipe_refuse(reader, json_at(object, i), "this key is unknown");
    }
    return 0;
}

static int recipe_read_list(const struct recipe_reader *reader, const struct json *list,
                            bool (*is_valid)(const char *), const char *expected, const char ***ret,
                            size_t *ret_count)
{
    size_t count = json_count(list);
    if (json_type(list) != JSON_ARRAY || count > LIMIT_RECIPE_ITEMS)
        return recipe_refuse(reader, list, "must be a list of at most 256 strings");
    const char **items = calloc(count + 1, sizeof(*items));
    if (!items)
        return err_set(reader->err, ENOMEM, "no memory for %s", reader->file);
    for (size_t i = 0; i < count; i++) {
        items[i] = json_text(json_at(list, i));
        if (!items[i] || !is_valid(items[i])) {
            free(items);
            return recipe_refuse(reader, json_at(list, i), expected);
        }
    }
    *ret = items;
    *ret_count = count;
    return 0;
}

static int recipe_read_debian(const struct recipe_reader *reader, const struct json *debian,
                              struct recipe *recipe)
{
    static const char *const keys[] = {"suite", "packages", NULL};
    if (json_type(debian) != JSON_OBJECT)
        return recipe_refuse(reader, debian, "needs \"debian\" with \"suite\" and \"packages\"");
    int result = recipe_check_keys(reader, debian, keys);
    if (result < 0)
        return result;
    recipe->suite = json_text(json_get(debian, "suite"));
    if (!recipe->suite || !is_suite(recipe->suite))
        return recipe_refuse(reader, debian, "\"suite\" must be a release's name, as bookworm");
    result = recipe_read_list(reader, json_get(debian, "packages"), is_debian_package,
                              "must be a Debian package, NAME or NAME=VERSION", &recipe->packages,
                              &recipe->package_count);
    if (result == 0 && recipe->package_count == 0)
        result = recipe_refuse(reader, debian, "\"packages\" must name at least one package");
    return result;
}

static int recipe_read_from(const struct recipe_reader *reader, const struct json *from,
                            struct recipe *recipe)
{
    const char *name = json_text(from);
    if (from && (!name || !name_is_valid(name, strlen(name))))
        return recipe_refuse(reader, from, "\"from\" must be the name of an image");
    recipe->from = name;
    return 0;
}

/* The target with ${ARCH} put in; NULL when out of memory. */
static char *recipe_expand(const char *target)
{
    cleanup_buf struct buf out = BUF_INIT(4 * LIMIT_RECIPE_STRING_BYTES);
    for (const char *variable; (variable = strstr(target, ARCH_VARIABLE));) {
        if (buf_append(&out, target, (size_t)(variable - target)) < 0 ||
            buf_append_string(&out, recipe_arch()) < 0)
            return NULL;
        target = variable + strlen(ARCH_VARIABLE);
    }
    if (buf_append_string(&out, target) < 0)
        return NULL;
    return TAKE_PTR(out.data);
}

static int recipe_read_links(const struct recipe_reader *reader, const struct json *links,
                             struct recipe *recipe)
{
    size_t count = json_count(links);
    if (json_type(links) != JSON_OBJECT || count > LIMIT_RECIPE_ITEMS)
        return recipe_refuse(reader, links, "\"links\" must be an object of at most 256 paths");
    recipe->links = calloc(count + 1, sizeof(*recipe->links));
    if (!recipe->links)
        return err_set(reader->err, ENOMEM, "no memory for %s", reader->file);
    for (size_t i = 0; i < count; i++) {
        struct recipe_link *link = &recipe->links[recipe->link_count++];
        const struct json *value = json_at(links, i);
        const char *target = json_text(value);
        if (!target || strlen(target) > LIMIT_RECIPE_STRING_BYTES)
            return recipe_refuse(reader, value, "the target of a link must be a path");
        link->path = json_key_at(links, i);
        link->target = recipe_expand(target);
        if (!link->target)
            return err_set(reader->err, ENOMEM, "no memory for %s", reader->file);
        if (!is_link_path(link->path))
            return recipe_refuse(reader, value, "a link must be " LINK_FOLDER "NAME");
        if (!is_clean_path(link->target))
            return recipe_refuse(reader, value, "the target of a link must be an absolute path");
    }
    return 0;
}

static int recipe_read(const struct recipe_reader *reader, struct recipe *recipe)
{
    static const char *const keys[] = {"from", "debian", "npm", "links", NULL};
    const struct json *json = recipe->json;
    if (json_type(json) != JSON_OBJECT)
        return recipe_refuse(reader, json, "a recipe must be an object");
    int result = recipe_check_keys(reader, json, keys);
    if (result == 0)
        result = recipe_read_from(reader, json_get(json, "from"), recipe);
    if (result == 0 && (json_get(json, "debian") || !recipe->from))
        result = recipe_read_debian(reader, json_get(json, "debian"), recipe);
    if (result == 0 && json_get(json, "npm"))
        result = recipe_read_list(reader, json_get(json, "npm"), is_npm_package,
                                  "must be an npm package with its exact version, NAME@1.2.3",
                                  &recipe->npm, &recipe->npm_count);
    if (result == 0 && json_get(json, "links"))
        result = recipe_read_links(reader, json_get(json, "links"), recipe);
    return result;
}

int recipe_parse(const char *file, const char *data, size_t len, struct recipe *ret,
                 struct err *err)
{
    cleanup_recipe struct recipe recipe = {0};
    const struct recipe_reader reader = {.file = file, .err = err};
    int result = json_parse(data, len, JSON_COMMENTS, &recipe.json, err);
    if (result < 0) {
        if (err) {
            struct err inner = *err;
            err_set(err, -result, "%s:%s", file, inner.message);
        }
        return result;
    }
    result = recipe_read(&reader, &recipe);
    if (result < 0)
        return result;
    *ret = recipe;
    recipe = (struct recipe){0};
    return 0;
}

void recipe_free(struct recipe *recipe)
{
    for (size_t i = 0; i < recipe->link_count; i++)
        free(recipe->links[i].target);
    free(recipe->links);
    free(recipe->packages);
    free(recipe->npm);
    json_free(recipe->json);
    *recipe = (struct recipe){0};
}
