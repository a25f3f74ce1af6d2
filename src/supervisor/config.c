/*
 * The configuration; see config.h. Parsing, defaults, ranges, suggestions for mistyped keys and the
 * text of --help come from the table of config_keys.c. The file is the administrator's; still
 * nothing in it is taken unchecked.
 */
#include "supervisor/config_keys.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/messages.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/name.h"
#include "util/near.h"
#include "json/json.h"

/* What every parse function needs to place an error. */
struct config_source {
    const char *file;
    const char *data_dir;
    const struct places *places; /* NULL: the machine's */
    struct err *err;
};

#define REFUSE(source, value, ...)                                                                 \
    err_context((source)->err, err_set((source)->err, EINVAL, __VA_ARGS__), "%s:%u:%u",            \
                (source)->file, json_line(value), json_column(value))

static bool config_is_text(enum key_type type)
{
    return type == KEY_PATH || type == KEY_PROXY || type == KEY_NAME || type == KEY_FORMAT;
}

static char **config_text_at(struct config *config, const struct config_key *key)
{
    return (char **)(void *)((char *)config + key->offset);
}

static int64_t *config_number_at(struct config *config, const struct config_key *key)
{
    return (int64_t *)(void *)((char *)config + key->offset);
}

static int config_set_text(char **at, const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        return -ENOMEM;
    free(*at);
    *at = copy;
    return 0;
}

static bool config_is_port(const char *text)
{
    size_t len = strlen(text);
    if (len == 0 || len > 5 || strspn(text, "0123456789") != len)
        return false;
    long number = strtol(text, NULL, 10);
    return number >= 1 && number <= 65535;
}

/* "http://HOST:PORT", with "USER:PASSWORD@" in front of HOST where the proxy wants them. */
static bool config_is_proxy(const char *text)
{
    static const char scheme[] = "http://";
    if (strncmp(text, scheme, strlen(scheme)) != 0 ||
        strlen(text) >= sizeof(((struct msg_egress_start *)0)->upstream_proxy))
        return false;
    const char *user_end = strrchr(text, '@');
    const char *host = user_end ? user_end + 1 : text + strlen(scheme);
    const char *colon = strrchr(host, ':');
    return colon && colon > host && !strpbrk(host, "/?# ") && config_is_port(colon + 1);
}

static int config_parse_text(const struct config_source *source, const struct config_key *key,
                             const struct json *value, struct config *ret)
{
    const char *text = json_text(value);
    if (!text)
        return REFUSE(source, value, "%s must be a string, not %s", key->name,
                      json_type_name(json_type(value)));
    if (key->type == KEY_PATH && text[0] != '/')
        return REFUSE(source, value, "%s must be an absolute path", key->name);
    if (key->type == KEY_NAME && !name_is_valid(text, strlen(text)))
        return REFUSE(source, value, "%s must be a name of a-z, 0-9 and -", key->name);
    if (key->type == KEY_FORMAT && strcmp(text, "text") != 0 && strcmp(text, "json") != 0)
        return REFUSE(source, value, "%s must be text or json", key->name);
    if (key->type == KEY_PROXY && text[0] && !config_is_proxy(text))
        return REFUSE(source, value, "%s must be http://HOST:PORT", key->name);
    if (strlen(text) > LIMIT_CONFIG_TEXT_BYTES)
        return REFUSE(source, value, "%s is longer than %d bytes", key->name,
                      LIMIT_CONFIG_TEXT_BYTES);
    return config_set_text(config_text_at(ret, key), text);
}

static int config_parse_number(const struct config_source *source, const struct config_key *key,
                               const struct json *value, struct config *ret)
{
    bool real_allowed = key->type == KEY_THOUSANDTHS;
    if (json_type(value) != JSON_INTEGER && !(real_allowed && json_type(value) == JSON_REAL))
        return REFUSE(source, value, "%s must be %s, not %s", key->name,
                      real_allowed ? "a number" : "a whole number",
                      json_type_name(json_type(value)));
    double number = json_real(value);
    if (number != (double)key->min && key->min == key->max)
        return REFUSE(source, value, "%s can only be %lld in this version", key->name,
                      (long long)key->min);
    if (number < (double)key->min || number > (double)key->max)
        return REFUSE(source, value, "%s must be from %lld to %lld", key->name, (long long)key->min,
                      (long long)key->max);
    *config_number_at(ret, key) =
        real_allowed ? (int64_t)(number * 1000 + 0.5) : json_integer(value);
    return 0;
}

/* Only loopback: anything else must come through a proxy that speaks TLS. */
static bool config_is_listen_address(const char *text)
{
    if (strncmp(text, "unix:/", 6) == 0)
        return true;
    const char *port = NULL;
    if (strncmp(text, "tcp:127.0.0.1:", 14) == 0)
        port = text + 14;
    else if (strncmp(text, "tcp:[::1]:", 10) == 0)
        port = text + 10;
    return port && config_is_port(port);
}

static void config_clear_listen(struct config *config)
{
    for (size_t i = 0; i < config->listen_count; i++)
        free(config->listen[i]);
    config->listen_count = 0;
}

static int config_parse_listen(const struct config_source *source, const struct json *value,
                               struct config *ret)
{
    if (json_type(value) != JSON_ARRAY || json_count(value) == 0 ||
        json_count(value) > LIMIT_LISTEN_SOCKETS)
        return REFUSE(source, value, "listen must be a list of 1 to %d addresses",
                      LIMIT_LISTEN_SOCKETS);
    config_clear_listen(ret);
    for (size_t i = 0; i < json_count(value); i++) {
        const struct json *item = json_at(value, i);
        const char *text = json_text(item);
        if (!text || !config_is_listen_address(text))
            return REFUSE(source, item,
                          "an address to listen on is unix:/PATH, tcp:127.0.0.1:PORT or "
                          "tcp:[::1]:PORT; put a TLS proxy in front for any other");
        ret->listen[i] = strdup(text);
        if (!ret->listen[i])
            return -ENOMEM;
        ret->listen_count = i + 1;
    }
    return 0;
}

/* Keeps a value that is there. */
static int config_add_var(struct config *config, const char *name, const char *value)
{
    if (config_var(config, name))
        return 0;
    if (config->var_count == LIMIT_CONFIG_VARS)
        return -EMSGSIZE;
    struct config_var var = {.name = strdup(name), .value = strdup(value)};
    if (!var.name || !var.value) {
        free(var.name);
        free(var.value);
        return -ENOMEM;
    }
    config->vars[config->var_count++] = var;
    return 0;
}

static int config_parse_vars(const struct config_source *source, const struct json *value,
                             struct config *ret)
{
    if (json_type(value) != JSON_OBJECT || json_count(value) > LIMIT_CONFIG_VARS / 2)
        return REFUSE(source, value, "vars must be an object of at most %d texts",
                      LIMIT_CONFIG_VARS / 2);
    for (size_t i = 0; i < json_count(value); i++) {
        const struct json *item = json_at(value, i);
        const char *text = json_text(item);
        const char *name = json_key_at(value, i);
        if (!text || strlen(text) > LIMIT_CONFIG_TEXT_BYTES)
            return REFUSE(source, item, "vars.%.64s must be a string of at most %d bytes", name,
                          LIMIT_CONFIG_TEXT_BYTES);
        int result = config_add_var(ret, name, text);
        if (result < 0)
            return result;
    }
    return 0;
}

static int config_parse_prefixes(const struct config_source *source, const struct json *value,
                                 struct config *ret)
{
    if (json_type(value) != JSON_OBJECT || json_count(value) > LIMIT_POLICY_PREFIXES)
        return REFUSE(source, value, "policy_prefixes must be an object of at most %d names",
                      LIMIT_POLICY_PREFIXES);
    for (size_t i = 0; i < json_count(value); i++) {
        const struct json *item = json_at(value, i);
        const char *policy = json_text(item);
        const char *prefix = json_key_at(value, i);
        if (!name_prefix_is_valid(prefix, strlen(prefix)))
            return REFUSE(source, item, "no sandbox's name begins with \"%.64s\"", prefix);
        if (!policy || !name_is_valid(policy, strlen(policy)))
            return REFUSE(source, item,
                          "policy_prefixes.%s must be a policy's name of a-z, 0-9 and -, "
                          "without .json",
                          prefix);
        struct config_var *added = &ret->prefixes[ret->prefix_count++];
        *added = (struct config_var){.name = strdup(prefix), .value = strdup(policy)};
        if (!added->name || !added->value)
            return -ENOMEM;
    }
    return 0;
}

static bool config_parse_size(const struct json *value, struct config_size *ret)
{
    for (size_t i = 0; i < json_count(value); i++) {
        const struct json *item = json_at(value, i);
        const char *key = json_key_at(value, i);
        bool is_integer = json_type(item) == JSON_INTEGER;
        double number = is_integer || json_type(item) == JSON_REAL ? json_real(item) : -1;
        if (strcmp(key, "memory_mib") == 0 && is_integer && number >= LIMIT_LEAST_MEMORY_MIB)
            ret->memory_mib = json_integer(item);
        else if (strcmp(key, "pids") == 0 && is_integer && number >= LIMIT_LEAST_PIDS)
            ret->pids = json_integer(item);
        else if (strcmp(key, "disk_mib") == 0 && is_integer && number >= LIMIT_LEAST_DISK_MIB)
            ret->disk_mib = json_integer(item);
        else if (strcmp(key, "inodes") == 0 && is_integer && number >= LIMIT_LEAST_INODES)
            ret->inodes = json_integer(item);
        else if (strcmp(key, "cpus") == 0 && number * 1000 >= LIMIT_LEAST_CPU_MILLIS &&
                 number <= 4096)
            ret->cpu_millis = (int64_t)(number * 1000 + 0.5);
        else
            return false;
    }
    return json_type(value) == JSON_OBJECT;
}

static int config_parse_sizes(const struct config_source *source, const struct json *value,
                              struct config *ret)
{
    if (json_type(value) != JSON_OBJECT || json_count(value) > LIMIT_SIZES)
        return REFUSE(source, value, "sizes must be an object of at most %d names", LIMIT_SIZES);
    ret->size_count = 0;
    for (size_t i = 0; i < json_count(value); i++) {
        const struct json *item = json_at(value, i);
        const char *name = json_key_at(value, i);
        struct config_size *size = &ret->sizes[ret->size_count++];
        *size = (struct config_size){0};
        if (!name_is_valid(name, strlen(name)))
            return REFUSE(source, item, "sizes.%.64s is no name of a-z, 0-9 and -", name);
        if (!config_parse_size(item, size))
            return REFUSE(
                source, item,
                "sizes.%s must be an object of memory_mib (%d or more), cpus (%g or more), "
                "pids (%d or more), disk_mib (%d or more) and inodes (%d or more)",
                name, LIMIT_LEAST_MEMORY_MIB, LIMIT_LEAST_CPU_MILLIS / 1000.0, LIMIT_LEAST_PIDS,
                LIMIT_LEAST_DISK_MIB, LIMIT_LEAST_INODES);
        memcpy(size->name, name, strlen(name) + 1);
    }
    return 0;
}

static int config_parse_value(const struct config_source *source, const struct config_key *key,
                              const struct json *value, struct config *ret)
{
    switch (key->type) {
    case KEY_PATH:
    case KEY_PROXY:
    case KEY_NAME:
    case KEY_FORMAT:
        return config_parse_text(source, key, value, ret);
    case KEY_INTEGER:
    case KEY_THOUSANDTHS:
        return config_parse_number(source, key, value, ret);
    case KEY_LISTEN:
        return config_parse_listen(source, value, ret);
    case KEY_VARS:
        return config_parse_vars(source, value, ret);
    case KEY_PREFIXES:
        return config_parse_prefixes(source, value, ret);
    case KEY_SIZES:
        return config_parse_sizes(source, value, ret);
    }
    return -EINVAL;
}

static bool config_is_in_group(const struct config_key *key, const char *group, size_t len)
{
    return strncmp(key->name, group, len) == 0 && key->name[len] == '.';
}

static const struct config_key *config_find_key(const char *group, const char *name)
{
    char whole[128];
    int len = group ? snprintf(whole, sizeof(whole), "%s.%s", group, name)
                    : snprintf(whole, sizeof(whole), "%s", name);
    if (len < 0 || (size_t)len >= sizeof(whole) || (!group && strchr(name, '.')))
        return NULL;
    for (size_t i = 0; i < config_key_count; i++)
        if (strcmp(config_keys[i].name, whole) == 0)
            return &config_keys[i];
    return NULL;
}

static bool config_is_group(const char *name)
{
    for (size_t i = 0; i < config_key_count; i++)
        if (config_is_in_group(&config_keys[i], name, strlen(name)))
            return true;
    return false;
}

static int config_refuse_key(const struct config_source *source, const char *group,
                             const char *name, const struct json *value)
{
    struct near near = {.word = name};
    char groups[CONFIG_KEYS_MAX][32];
    for (size_t i = 0; i < config_key_count; i++) {
        const char *key = config_keys[i].name;
        const char *dot = strchr(key, '.');
        if (group && config_is_in_group(&config_keys[i], group, strlen(group)))
            near_consider(&near, dot + 1);
        if (group)
            continue;
        snprintf(groups[i], sizeof(groups[i]), "%.*s", dot ? (int)(dot - key) : 31, key);
        near_consider(&near, groups[i]);
    }
    const char *dot = group ? "." : "";
    const char *in = group ? group : "";
    if (near.best)
        return REFUSE(source, value, "unknown key %s%s%.64s: did you mean %s%s%s?", in, dot, name,
                      in, dot, near.best);
    return REFUSE(source, value, "unknown key %s%s%.64s; paddockd --help lists the keys", in, dot,
                  name);
}

static int config_parse_object(const struct config_source *source, const char *group,
                               const struct json *object, struct config *ret)
{
    for (size_t i = 0; i < json_count(object); i++) {
        const char *name = json_key_at(object, i);
        const struct json *value = json_at(object, i);
        const struct config_key *key = config_find_key(group, name);
        int result;
        if (key)
            result = config_parse_value(source, key, value, ret);
        else if (group || !config_is_group(name))
            result = config_refuse_key(source, group, name, value);
        else if (json_type(value) != JSON_OBJECT)
            result = REFUSE(source, value, "%s must be an object", name);
        else
            result = config_parse_object(source, name, value, ret);
        if (result < 0)
            return result;
    }
    return 0;
}

/* A user's daemon has its folders and its socket elsewhere than the machine's. */
static const char *config_default_path(const struct config_key *key, const struct places *places)
{
    if (places && places->is_user && key->offset == offsetof(struct config, state_dir))
        return places->state;
    if (places && places->is_user && key->offset == offsetof(struct config, secrets_dir))
        return places->secrets;
    return key->text;
}

static int config_set_default_listen(const struct config_key *key, const struct places *places,
                                     struct config *ret)
{
    char address[PLACES_MAX + sizeof("unix:")];
    bool is_user = places && places->is_user;
    snprintf(address, sizeof(address), "%s%s", is_user ? "unix:" : "",
             is_user ? places->socket : key->text);
    ret->listen[0] = strdup(address);
    ret->listen_count = ret->listen[0] ? 1 : 0;
    return ret->listen[0] ? 0 : -ENOMEM;
}

static int config_set_default(const struct config_key *key, const struct config_source *source,
                              struct config *ret)
{
    if (key->type == KEY_INTEGER || key->type == KEY_THOUSANDTHS)
        *config_number_at(ret, key) = key->number;
    if (key->type == KEY_SIZES) {
        static const struct config_size sizes[] = {
            {"small", 1024, 500, 256}, {"standard", 2048, 1000, 512}, {.name = "large"}};
        memcpy(ret->sizes, sizes, sizeof(sizes));
        ret->size_count = ARRAY_LEN(sizes);
    }
    if (key->type == KEY_LISTEN)
        return config_set_default_listen(key, source->places, ret);
    if (!config_is_text(key->type))
        return 0;
    char path[LIMIT_CONFIG_TEXT_BYTES];
    const char *text = config_default_path(key, source->places);
    bool in_data = strncmp(text, "@/", 2) == 0;
    snprintf(path, sizeof(path), "%s%s", in_data ? source->data_dir : "",
             in_data ? text + 1 : text);
    return config_set_text(config_text_at(ret, key), path);
}

/* Across keys: what no single range can say. */
static int config_check_ids(const struct config_source *source, const struct json *ids,
                            const struct config *config)
{
    if (config->ids_base % 65536 || config->ids_count % 65536)
        return REFUSE(source, ids, "ids.base and ids.count must be multiples of 65536");
    if (config->ids_base + config->ids_count > UINT32_MAX)
        return REFUSE(source, ids, "ids.base + ids.count must be below 4294967295");
    return 0;
}

static int config_fill(const struct config_source *source, const char *text, size_t len,
                       struct config *ret)
{
    for (size_t i = 0; i < config_key_count; i++)
        if (config_set_default(&config_keys[i], source, ret) < 0)
            return err_set(source->err, ENOMEM, "no memory for the configuration");
    cleanup_json struct json *json = NULL;
    struct err inner = {0};
    int result = text ? json_parse(text, len, JSON_COMMENTS, &json, &inner) : 0;
    if (result < 0)
        return err_set(source->err, -result, "%s:%s", source->file, inner.message);
    if (text && json_type(json) != JSON_OBJECT)
        return REFUSE(source, json, "the configuration must be an object");
    result = config_parse_object(source, NULL, json, ret);
    return result < 0 ? result : config_check_ids(source, json_get(json, "ids"), ret);
}

int config_parse(const char *file, const char *text, size_t len, const char *data_dir,
                 const struct places *places, struct config *ret, struct err *err)
{
    struct config_source source = {
        .file = file, .data_dir = data_dir, .places = places, .err = err};
    struct config config = {0};
    int result = config_fill(&source, text, len, &config);
    if (result < 0) {
        config_free(&config);
        return result;
    }
    *ret = config;
    return 0;
}

int config_load(const char *file, const char *data_dir, const struct places *places,
                struct config *ret, struct err *err)
{
    if (!file)
        return config_parse("defaults", NULL, 0, data_dir, places, ret, err);
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    int result = fd_read_file(AT_FDCWD, file, &text, err);
    if (result < 0)
        return result;
    return config_parse(file, buf_text(&text), text.len, data_dir, places, ret, err);
}

void config_free(struct config *config)
{
    for (size_t i = 0; i < config_key_count; i++) {
        if (config_is_text(config_keys[i].type))
            free(*config_text_at(config, &config_keys[i]));
    }
    config_clear_listen(config);
    for (size_t i = 0; i < config->var_count; i++) {
        free(config->vars[i].name);
        free(config->vars[i].value);
    }
    for (size_t i = 0; i < config->prefix_count; i++) {
        free(config->prefixes[i].name);
        free(config->prefixes[i].value);
    }
    *config = (struct config){0};
}

int config_add_environment(struct config *config, const char *(*lookup)(const char *name))
{
    static const struct {
        const char *name;
        const char *value; /* when nobody says otherwise */
    } vars[] = {
        {"AI_GATEWAY_ACCOUNT_ID", NULL},
        {"AI_GATEWAY_ID", "default"},
        {"MODEL", "claude-sonnet-5"},
    };
    for (size_t i = 0; i < ARRAY_LEN(vars); i++) {
        const char *value = lookup(vars[i].name);
        if (!value || !*value)
            value = vars[i].value;
        int result = value ? config_add_var(config, vars[i].name, value) : 0;
        if (result < 0)
            return result;
    }
    return 0;
}

const char *config_var(const struct config *config, const char *name)
{
    for (size_t i = 0; i < config->var_count; i++)
        if (strcmp(config->vars[i].name, name) == 0)
            return config->vars[i].value;
    return NULL;
}

const char *config_prefix_policy(const struct config *config, const char *sandbox)
{
    const char *policy = NULL;
    size_t longest = 0;
    for (size_t i = 0; i < config->prefix_count; i++) {
        const char *prefix = config->prefixes[i].name;
        size_t len = strlen(prefix);
        if (len > longest && strncmp(sandbox, prefix, len) == 0) {
            longest = len;
            policy = config->prefixes[i].value;
        }
    }
    return policy;
}

void config_print_keys(FILE *out)
{
    for (size_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        char value[64] = "";
        if (key->type == KEY_INTEGER)
            snprintf(value, sizeof(value), "%lld", (long long)key->number);
        else if (key->type == KEY_THOUSANDTHS)
            snprintf(value, sizeof(value), "%lld", (long long)key->number / 1000);
        else if (key->text)
            snprintf(value, sizeof(value), "%s",
                     strncmp(key->text, "@/", 2) == 0 ? key->text + 2 : key->text);
        fprintf(out, "  %-18s %s%s%s%s\n", key->name, key->describe, value[0] ? " [" : "", value,
                value[0] ? "]" : "");
    }
}

const struct config_size *config_size(const struct config *config, const char *name)
{
    for (size_t i = 0; i < config->size_count; i++)
        if (strcmp(config->sizes[i].name, name) == 0)
            return &config->sizes[i];
    return NULL;
}
