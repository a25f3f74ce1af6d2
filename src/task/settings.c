/* Settings of a sandbox; see settings.h. Pure functions, used by api and supervisor. */
#include "task/settings.h"

#include <stdio.h>
#include <string.h>

#include "util/cleanup.h"

#define DIGITS "0123456789"
#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

#define TRUST_BUNDLE "/etc/ssl/certs/ca-certificates.crt"
#define TRUST_CA "/usr/local/share/ca-certificates/paddock.crt"

/* What every program inside has. Fixed: who the user is, whom to trust, and that nobody is asked;
 * without these nothing in the sandbox works as it should. */
static const struct {
    const char *text;
    bool is_fixed;
} settings_base[SETTINGS_BASE] = {
    {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", false},
    {"LANG=C.UTF-8", false},
    {"TZ=UTC", false},
    {"HOME=/home/agent", true}, /* init changes HOME and USER for root */
    {"USER=agent", true},
    {"LOGNAME=agent", true},
    {"SHELL=/bin/bash", true},
    {"GIT_TERMINAL_PROMPT=0", true},
    {"NODE_EXTRA_CA_CERTS=" TRUST_CA, true},
    {"GIT_SSL_CAINFO=" TRUST_BUNDLE, true},
    {"CURL_CA_BUNDLE=" TRUST_BUNDLE, true},
    {"SSL_CERT_FILE=" TRUST_BUNDLE, true},
    {"REQUESTS_CA_BUNDLE=" TRUST_BUNDLE, true},
    {"PIP_CERT=" TRUST_BUNDLE, true},
    {"AWS_CA_BUNDLE=" TRUST_BUNDLE, true},
    {"CARGO_HTTP_CAINFO=" TRUST_BUNDLE, true},
    {"DENO_CERT=" TRUST_BUNDLE, true},
    {"CODEX_CA_CERTIFICATE=" TRUST_BUNDLE, true},
};

void settings_free(struct settings *settings)
{
    buf_free(&settings->env);
    buf_free(&settings->labels);
}

/* The first `len` bytes of a text are `name`, and then "=". */
static bool settings_has_name(const char *text, const char *name, size_t len)
{
    return strncmp(text, name, len) == 0 && text[len] == '=';
}

static const char *settings_env_refusal(const char *name, const char *value)
{
    size_t len = strlen(name);
    if (len == 0 || len > LIMIT_ENV_NAME_BYTES || strspn(name, DIGITS LOWER UPPER "_") != len ||
        strchr(DIGITS, name[0]))
        return "is not a name of a variable";
    if (strncmp(name, "PADDOCK_", 8) == 0)
        return "is reserved for Paddock";
    for (size_t i = 0; i < SETTINGS_BASE; i++)
        if (settings_base[i].is_fixed && settings_has_name(settings_base[i].text, name, len))
            return "is set by Paddock itself";
    return strlen(value) > LIMIT_ENV_VALUE_BYTES ? "has a value that is too long" : NULL;
}

/* As a label's name or value in Kubernetes. */
static bool settings_is_label_word(const char *text, size_t len)
{
    return len > 0 && len <= LIMIT_NAME_BYTES && strspn(text, DIGITS LOWER UPPER "-_.") >= len &&
           !strchr("-_.", text[0]) && !strchr("-_.", text[len - 1]);
}

static bool settings_is_label_name(const char *name)
{
    const char *slash = strchr(name, '/');
    size_t prefix_len = slash ? (size_t)(slash - name) : 0;
    const char *word = slash ? slash + 1 : name;
    if (slash && (prefix_len == 0 || prefix_len > LIMIT_LABEL_PREFIX_BYTES ||
                  strspn(name, DIGITS LOWER "-.") != prefix_len || strchr("-.", name[0])))
        return false;
    return settings_is_label_word(word, strlen(word));
}

const char *settings_refusal(enum settings_list kind, const char *name, const char *value)
{
    if (kind == SETTINGS_ENV)
        return settings_env_refusal(name, value);
    if (!settings_is_label_name(name))
        return "is not a label: letters, digits, \"-\", \"_\" and \".\", 63 at most, the first and "
               "the last a letter or digit, and in front of them perhaps a domain and \"/\"";
    if (value[0] && !settings_is_label_word(value, strlen(value)))
        return "has a value that is none of a label: letters, digits, \"-\", \"_\" and \".\", 63 "
               "at most, the first and the last a letter or digit";
    return NULL;
}

int settings_add(struct buf *list, const char *name, const char *value)
{
    size_t len = list->len;
    int result = buf_appendf(list, "%s=%s", name, value);
    if (result == 0)
        result = buf_append(list, "", 1);
    if (result < 0)
        list->len = len;
    return result;
}

const char *settings_next(const struct buf *list, const char *previous)
{
    const char *next = previous ? previous + strlen(previous) + 1 : list->data;
    return next && next < list->data + list->len ? next : NULL;
}

static bool settings_text_is_valid(enum settings_list kind, const struct buf *list,
                                   const char *text)
{
    char name[LIMIT_LABEL_PREFIX_BYTES + LIMIT_ENV_NAME_BYTES + 2];
    const char *equals = strchr(text, '=');
    size_t len = equals ? (size_t)(equals - text) : sizeof(name);
    if (len >= sizeof(name))
        return false;
    memcpy(name, text, len);
    name[len] = '\0';
    if (settings_refusal(kind, name, equals + 1))
        return false;
    for (const char *other = settings_next(list, NULL); other != text;
         other = settings_next(list, other))
        if (settings_has_name(other, name, len))
            return false;
    return true;
}

bool settings_list_is_valid(enum settings_list kind, const struct buf *list)
{
    size_t count = 0;
    size_t most = kind == SETTINGS_ENV ? LIMIT_ENV : LIMIT_LABELS;
    if (list->len && list->data[list->len - 1])
        return false;
    for (const char *text = NULL; (text = settings_next(list, text));)
        if (++count > most || !settings_text_is_valid(kind, list, text))
            return false;
    return true;
}

bool settings_have(const struct buf *list, const char *wanted)
{
    bool has_value = strchr(wanted, '=');
    size_t len = strlen(wanted);
    for (const char *text = NULL; (text = settings_next(list, text));)
        if (has_value ? strcmp(text, wanted) == 0 : settings_has_name(text, wanted, len))
            return true;
    return false;
}

int settings_merge(const struct buf *image, const struct buf *own, struct buf *ret)
{
    int result = 0;
    for (const char *text = NULL; result == 0 && (text = settings_next(image, text));) {
        char name[LIMIT_ENV_NAME_BYTES + 1];
        size_t len = strcspn(text, "=");
        if (len >= sizeof(name))
            continue;
        memcpy(name, text, len);
        name[len] = '\0';
        if (!settings_env_refusal(name, text + len + 1) && !settings_have(own, name) &&
            !settings_have(ret, name))
            result = buf_append(ret, text, strlen(text) + 1);
    }
    return result == 0 && own->len ? buf_append(ret, own->data, own->len) : result;
}

void settings_environment(const struct buf *list, const char *ret[SETTINGS_ENVIRONMENT])
{
    size_t count = 0;
    for (size_t i = 0; i < SETTINGS_BASE; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(settings_base[i].text, "="),
                 settings_base[i].text);
        if (!settings_have(list, name))
            ret[count++] = settings_base[i].text;
    }
    for (const char *text = NULL; (text = settings_next(list, text));)
        ret[count++] = text;
    ret[count] = NULL;
}
