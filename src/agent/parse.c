/* agent.json and the program that it stands for; see agent.h. Read by the supervisor: only root (or
 * the invoking user) can write the file, so what is wrong in it is a mistake, told with its place.
 * Invariant: a parsed agent has a command of strings, a known adapter, and one ${PROMPT}. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent/adapter.h"
#include "agent/agent.h"
#include "task/spec.h"
#include "util/cleanup.h"
#include "util/name.h"
#include "json/json.h"

#define AGENT_PROMPT "${PROMPT}"
#define AGENT_CWD "/workspace/repo"
/* A variable's name; the longest of ours has 22 bytes. */
#define AGENT_VARIABLE_BYTES 64

struct agent {
    struct json *root;
    const struct json *command;
    const struct json *env;
    uint32_t prompt; /* index in command */
};

static int agent_refuse(const char *file, const struct json *at, struct err *err,
                        const char *reason)
{
    return err_set(err, EINVAL, "%s:%u:%u: %s", file, json_line(at), json_column(at), reason);
}

/* Length of the ${NAME} at the start of the text, and its name; 0: there is none. */
static size_t agent_variable(const char *text, char ret_name[AGENT_VARIABLE_BYTES])
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t len = strspn(text + 2, allowed);
    if (len == 0 || len >= AGENT_VARIABLE_BYTES || text[2 + len] != '}')
        return 0;
    memcpy(ret_name, text + 2, len);
    ret_name[len] = '\0';
    return len + 3;
}

/* A string whose variables are well-formed; ${PROMPT} only where the caller allows it. */
static int agent_check_text(const char *file, const struct json *value, bool may_be_prompt,
                            struct err *err)
{
    const char *text = json_text(value);
    if (!text)
        return agent_refuse(file, value, err, "must be a string without NUL");
    if (may_be_prompt && strcmp(text, AGENT_PROMPT) == 0)
        return 0;
    char name[AGENT_VARIABLE_BYTES];
    for (const char *at = text; (at = strstr(at, "${"));) {
        size_t len = agent_variable(at, name);
        if (len == 0)
            return agent_refuse(file, value, err,
                                "after \"${\" comes a name of capital letters, digits and "
                                "underscores, then \"}\"");
        if (strcmp(name, "PROMPT") == 0)
            return agent_refuse(file, value, err,
                                "${PROMPT} must be a whole argument of \"command\"");
        at += len;
    }
    return 0;
}

static int agent_check_command(const char *file, struct agent *agent, struct err *err)
{
    const struct json *command = agent->command;
    if (json_type(command) != JSON_ARRAY || json_count(command) < 2 ||
        json_count(command) > LIMIT_SPEC_STRINGS)
        return agent_refuse(file, command ? command : agent->root, err,
                            "\"command\" must be an array of the program and its arguments, one "
                            "of them ${PROMPT}");
    agent->prompt = SPEC_NO_PROMPT;
    for (size_t i = 0; i < json_count(command); i++) {
        const struct json *value = json_at(command, i);
        int r = agent_check_text(file, value, true, err);
        if (r < 0)
            return r;
        if (strcmp(json_text(value), AGENT_PROMPT) != 0)
            continue;
        if (i == 0 || agent->prompt != SPEC_NO_PROMPT)
            return agent_refuse(file, value, err, "${PROMPT} is one argument, and only once");
        agent->prompt = (uint32_t)i;
    }
    if (!json_text(json_at(command, 0))[0])
        return agent_refuse(file, json_at(command, 0), err, "the program's name is empty");
    if (agent->prompt == SPEC_NO_PROMPT)
        return agent_refuse(file, command, err, "no argument of \"command\" is ${PROMPT}");
    return 0;
}

static int agent_check_env(const char *file, const struct json *env, struct err *err)
{
    if (!env)
        return 0;
    if (json_type(env) != JSON_OBJECT || json_count(env) > LIMIT_SPEC_STRINGS)
        return agent_refuse(file, env, err, "\"env\" must be an object of names and strings");
    for (size_t i = 0; i < json_count(env); i++) {
        const char *name = json_key_at(env, i);
        if (!name[0] || strchr(name, '='))
            return agent_refuse(file, json_at(env, i), err, "the variable's name is not one");
        int r = agent_check_text(file, json_at(env, i), false, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int agent_check_rules(const char *file, const struct json *rules, struct err *err)
{
    if (rules && json_type(rules) != JSON_ARRAY)
        return agent_refuse(file, rules, err, "\"rules\" must be an array of rule names");
    for (size_t i = 0; i < json_count(rules); i++)
        if (!json_text(json_at(rules, i)))
            return agent_refuse(file, json_at(rules, i), err, "a rule's name is a string");
    return 0;
}

static int agent_check_keys(const char *file, const struct json *root, struct err *err)
{
    static const char *const known[] = {"image", "command", "env", "rules", "outcome"};
    if (json_type(root) != JSON_OBJECT)
        return agent_refuse(file, root, err, "an agent is an object");
    for (size_t i = 0; i < json_count(root); i++) {
        bool is_known = false;
        for (size_t k = 0; k < ARRAY_LEN(known); k++)
            is_known |= strcmp(json_key_at(root, i), known[k]) == 0;
        if (!is_known)
            return err_set(err, EINVAL,
                           "%s:%u:%u: unknown key \"%s\"; an agent has image, command, env, rules "
                           "and outcome",
                           file, json_line(json_at(root, i)), json_column(json_at(root, i)),
                           json_key_at(root, i));
    }
    return 0;
}

static int agent_check(const char *file, struct agent *agent, struct err *err)
{
    const struct json *root = agent->root;
    int r = agent_check_keys(file, root, err);
    if (r < 0)
        return r;
    const struct json *image = json_get(root, "image");
    if (!json_text(image) || !name_is_valid(json_text(image), strlen(json_text(image))))
        return agent_refuse(file, image ? image : root, err,
                            "\"image\" must name an image (lowercase letters, digits, hyphens)");
    const struct json *outcome = json_get(root, "outcome");
    if (!json_text(outcome) || !agent_adapter_find(json_text(outcome))) {
        char names[256];
        agent_adapter_names(names, sizeof(names));
        return err_set(err, EINVAL, "%s:%u:%u: \"outcome\" must be one of %s", file,
                       json_line(outcome ? outcome : root), json_column(outcome ? outcome : root),
                       names);
    }
    r = agent_check_command(file, agent, err);
    if (r == 0)
        r = agent_check_env(file, agent->env, err);
    if (r == 0)
        r = agent_check_rules(file, json_get(root, "rules"), err);
    return r;
}

int agent_parse(const char *file, const char *data, size_t len, struct agent **ret, struct err *err)
{
    struct agent *agent = calloc(1, sizeof(*agent));
    if (!agent)
        return err_set(err, ENOMEM, "out of memory");
    struct err inner = {0};
    int r = json_parse(data, len, JSON_COMMENTS, &agent->root, &inner);
    if (r < 0) {
        free(agent);
        return err_set(err, -r, "%s:%s", file, inner.message);
    }
    agent->command = json_get(agent->root, "command");
    agent->env = json_get(agent->root, "env");
    r = agent_check(file, agent, err);
    if (r < 0) {
        agent_free(agent);
        return r;
    }
    *ret = agent;
    return 0;
}

void agent_free(struct agent *agent)
{
    if (!agent)
        return;
    json_free(agent->root);
    free(agent);
}

const char *agent_image(const struct agent *agent)
{
    return json_text(json_get(agent->root, "image"));
}

const char *agent_adapter(const struct agent *agent)
{
    return json_text(json_get(agent->root, "outcome"));
}

/* Where the strings of a spec lie while they are put together: offsets, for the buffer may move. */
struct agent_strings {
    struct buf text;
    size_t offsets[2 * LIMIT_SPEC_STRINGS];
    size_t count;
    const char *(*lookup)(void *ctx, const char *name);
    void *ctx;
};

static int agent_append(struct agent_strings *strings, const char *data, size_t len,
                        struct err *err)
{
    int r = buf_append(&strings->text, data, len);
    if (r == -EMSGSIZE)
        return err_set(err, EMSGSIZE, "the agent's command and environment are over %d bytes",
                       LIMIT_SPEC_BYTES);
    return r < 0 ? err_set(err, -r, "out of memory") : 0;
}

/* Appends the text with its variables put in. */
static int agent_expand(struct agent_strings *strings, const char *text, struct err *err)
{
    const char *at;
    while ((at = strstr(text, "${"))) {
        char name[AGENT_VARIABLE_BYTES];
        size_t len = agent_variable(at, name);
        const char *value = len ? strings->lookup(strings->ctx, name) : NULL;
        if (!value)
            return err_set(err, ENOENT,
                           "the agent's command needs the variable %s, which is not set: set it in "
                           "the configuration's \"vars\"",
                           name);
        int r = agent_append(strings, text, (size_t)(at - text), err);
        if (r == 0)
            r = agent_append(strings, value, strlen(value), err);
        if (r < 0)
            return r;
        text = at + len;
    }
    return agent_append(strings, text, strlen(text), err);
}

static int agent_add(struct agent_strings *strings, const char *name, const char *text,
                     bool is_prompt, struct err *err)
{
    int r = 0;
    strings->offsets[strings->count++] = strings->text.len;
    if (name)
        r = agent_append(strings, name, strlen(name), err);
    if (r == 0 && name)
        r = agent_append(strings, "=", 1, err);
    if (r == 0)
        r = is_prompt ? agent_append(strings, text, strlen(text), err)
                      : agent_expand(strings, text, err);
    return r == 0 ? agent_append(strings, "", 1, err) : r;
}

static int agent_fill(const struct agent *agent, struct agent_strings *strings, struct err *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < json_count(agent->command); i++)
        r = agent_add(strings, NULL, json_text(json_at(agent->command, i)), i == agent->prompt,
                      err);
    for (size_t i = 0; r == 0 && i < json_count(agent->env); i++)
        r = agent_add(strings, json_key_at(agent->env, i), json_text(json_at(agent->env, i)), false,
                      err);
    return r;
}

int agent_encode_spec(const struct agent *agent, const char *(*lookup)(void *ctx, const char *name),
                      void *ctx, struct buf *ret, struct err *err)
{
    cleanup_free struct agent_strings *strings = calloc(1, sizeof(*strings));
    cleanup_free struct spec *spec = calloc(1, sizeof(*spec));
    if (!strings || !spec)
        return err_set(err, ENOMEM, "out of memory");
    strings->text.max = LIMIT_SPEC_BYTES;
    strings->lookup = lookup;
    strings->ctx = ctx;
    spec->cwd = AGENT_CWD;
    spec->argc = (uint32_t)json_count(agent->command);
    spec->envc = (uint32_t)json_count(agent->env);
    spec->prompt = agent->prompt;
    int r = agent_fill(agent, strings, err);
    if (r == 0) {
        for (uint32_t i = 0; i < spec->argc; i++)
            spec->argv[i] = strings->text.data + strings->offsets[i];
        for (uint32_t i = 0; i < spec->envc; i++)
            spec->envp[i] = strings->text.data + strings->offsets[spec->argc + i];
        r = spec_encode(spec, ret, err);
    }
    buf_free(&strings->text);
    return r;
}
