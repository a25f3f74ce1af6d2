/* Settings of sandboxes; see settings.h. What clients send was checked by api; it is checked again
 * here, together with what only the supervisor knows: agents, policies, the configuration's
 * limits. */
#include "supervisor/settings.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "supervisor/table.h"
#include "util/cleanup.h"
#include "util/name.h"
#include "util/near.h"

void settings_put_free(struct settings_put *put)
{
    if (!put)
        return;
    settings_free(&put->settings);
    buf_free(&put->env_gone);
    buf_free(&put->labels_gone);
    free(put);
}

/* --------------------------------------------------------------------------------- changes */

bool settings_list_equals(const struct buf *a, const struct buf *b)
{
    if (a->len != b->len)
        return false; /* no name is twice in a list */
    for (const char *text = NULL; (text = settings_next(a, text));)
        if (!settings_have(b, text))
            return false;
    return true;
}

static bool settings_has_name_of(const struct buf *list, const char *text)
{
    char name[LIMIT_LABEL_PREFIX_BYTES + LIMIT_ENV_NAME_BYTES + 2];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, "="), text);
    return settings_have(list, name);
}

/* The texts of `old` that are neither set nor gone, then those that are set. */
static int settings_change_list(enum settings_list kind, const struct buf *old,
                                const struct buf *set, const struct buf *gone, struct buf *ret,
                                struct err *err)
{
    int result = 0;
    for (const char *text = NULL; result == 0 && (text = settings_next(old, text));)
        if (!settings_has_name_of(set, text) && !settings_has_name_of(gone, text))
            result = buf_append(ret, text, strlen(text) + 1);
    if (result == 0 && set->len)
        result = buf_append(ret, set->data, set->len);
    if (result == -ENOMEM)
        return err_set(err, ENOMEM, "no memory for the settings");
    if (result == 0 && settings_list_is_valid(kind, ret))
        return 0;
    bool is_env = kind == SETTINGS_ENV;
    return err_set(err, EINVAL, "\"%s\" may have at most %d members, and %zu bytes in all",
                   is_env ? "env" : "labels", is_env ? LIMIT_ENV : LIMIT_LABELS, ret->max);
}

int settings_change(const struct settings *old, const struct settings_put *put,
                    struct settings *ret, struct err *err)
{
    static const struct buf nothing;
    const struct settings *set = &put->settings;
    struct settings fresh = SETTINGS_INIT;
    uint32_t named = put->is_patch ? put->named : PATCH_ALL;
    memcpy(fresh.policy, named & PATCH_POLICY ? set->policy : old->policy, sizeof(fresh.policy));
    memcpy(fresh.size, named & PATCH_SIZE ? set->size : old->size, sizeof(fresh.size));
    fresh.memory_mib = named & PATCH_MEMORY ? set->memory_mib : old->memory_mib;
    fresh.cpu_millis = named & PATCH_CPUS ? set->cpu_millis : old->cpu_millis;
    fresh.pids = named & PATCH_PIDS ? set->pids : old->pids;
    fresh.disk_mib = named & PATCH_DISK ? set->disk_mib : old->disk_mib;
    fresh.inodes = named & PATCH_INODES ? set->inodes : old->inodes;
    fresh.budget_output_tokens =
        named & PATCH_OUTPUT_TOKENS ? set->budget_output_tokens : old->budget_output_tokens;
    fresh.budget_requests = named & PATCH_REQUESTS ? set->budget_requests : old->budget_requests;
    int result = settings_change_list(SETTINGS_ENV, named & PATCH_NO_ENV ? &nothing : &old->env,
                                      &set->env, &put->env_gone, &fresh.env, err);
    if (result == 0)
        result =
            settings_change_list(SETTINGS_LABELS, named & PATCH_NO_LABELS ? &nothing : &old->labels,
                                 &set->labels, &put->labels_gone, &fresh.labels, err);
    if (result == 0)
        *ret = fresh;
    else
        settings_free(&fresh);
    return result;
}

/* ----------------------------------------------------------------------------------- JSON */

static void settings_write_list(struct json_writer *writer, const char *key, const struct buf *list)
{
    if (!list->len)
        return;
    json_write_key(writer, key);
    json_write_object_begin(writer);
    for (const char *text = NULL; (text = settings_next(list, text));) {
        const char *equals = strchr(text, '=');
        json_write_bytes(writer, text, (size_t)(equals - text));
        json_write_string(writer, equals + 1);
    }
    json_write_object_end(writer);
}

static void settings_write_budget(struct json_writer *writer, const struct settings *settings)
{
    if (!settings->budget_output_tokens && !settings->budget_requests)
        return;
    json_write_key(writer, "budget");
    json_write_object_begin(writer);
    if (settings->budget_output_tokens)
        json_write_pair_integer(writer, "output_tokens", settings->budget_output_tokens);
    if (settings->budget_requests)
        json_write_pair_integer(writer, "requests", settings->budget_requests);
    json_write_object_end(writer);
}

void settings_write(struct json_writer *writer, const struct settings *settings, bool with_env)
{
    if (settings->policy[0])
        json_write_pair_string(writer, "policy", settings->policy);
    if (settings->size[0])
        json_write_pair_string(writer, "size", settings->size);
    if (settings->memory_mib || settings->cpu_millis || settings->pids || settings->disk_mib ||
        settings->inodes) {
        json_write_key(writer, "limits");
        json_write_object_begin(writer);
        if (settings->memory_mib)
            json_write_pair_integer(writer, "memory_mib", settings->memory_mib);
        if (settings->cpu_millis) {
            json_write_key(writer, "cpus");
            json_write_thousandths(writer, settings->cpu_millis);
        }
        if (settings->pids)
            json_write_pair_integer(writer, "pids", settings->pids);
        if (settings->disk_mib)
            json_write_pair_integer(writer, "disk_mib", settings->disk_mib);
        if (settings->inodes)
            json_write_pair_integer(writer, "inodes", settings->inodes);
        json_write_object_end(writer);
    }
    settings_write_budget(writer, settings);
    if (with_env)
        settings_write_list(writer, "env", &settings->env);
    settings_write_list(writer, "labels", &settings->labels);
}

static bool settings_read_list(const struct json *object, enum settings_list kind, struct buf *ret)
{
    for (size_t i = 0; i < json_count(object); i++) {
        const char *value = json_text(json_at(object, i));
        if (!value || settings_add(ret, json_key_at(object, i), value) < 0)
            return false;
    }
    return settings_list_is_valid(kind, ret);
}

static bool settings_read_name(const struct json *value, char ret[LIMIT_NAME_BYTES + 1])
{
    const char *name = json_text(value);
    if (!value)
        return true;
    if (!name || !name_is_valid(name, strlen(name)))
        return false;
    memcpy(ret, name, strlen(name) + 1);
    return true;
}

bool settings_read(const struct json *object, struct settings *ret)
{
    struct settings settings = SETTINGS_INIT;
    const struct json *limits = json_get(object, "limits");
    bool is_good = settings_read_name(json_get(object, "policy"), settings.policy) &&
                   settings_read_name(json_get(object, "size"), settings.size);
    settings.memory_mib = json_integer(json_get(limits, "memory_mib"));
    settings.cpu_millis = (int64_t)(json_real(json_get(limits, "cpus")) * 1000 + 0.5);
    settings.pids = json_integer(json_get(limits, "pids"));
    settings.disk_mib = json_integer(json_get(limits, "disk_mib"));
    settings.inodes = json_integer(json_get(limits, "inodes"));
    const struct json *budget = json_get(object, "budget");
    settings.budget_output_tokens = json_integer(json_get(budget, "output_tokens"));
    settings.budget_requests = json_integer(json_get(budget, "requests"));
    is_good = is_good && settings.memory_mib >= 0 && settings.cpu_millis >= 0 &&
              settings.pids >= 0 && settings.disk_mib >= 0 && settings.inodes >= 0 &&
              settings.budget_output_tokens >= 0 && settings.budget_requests >= 0 &&
              settings_read_list(json_get(object, "env"), SETTINGS_ENV, &settings.env) &&
              settings_read_list(json_get(object, "labels"), SETTINGS_LABELS, &settings.labels);
    if (is_good)
        *ret = settings;
    else
        settings_free(&settings);
    return is_good;
}

/* --------------------------------------------------------------------------------- checks */

const char *settings_policy(const struct sandbox *sandbox)
{
    const char *own = sandbox->meta.settings.policy;
    const char *named = config_prefix_policy(sandbox->supervisor->config, sandbox->meta.name);
    return own[0] || !named ? own : named;
}

static int64_t settings_limit(int64_t own, int64_t of_size, int64_t of_config)
{
    own = own ? own : of_size;
    return own && (!of_config || own < of_config) ? own : of_config;
}

int settings_limits(const struct sandbox *sandbox, struct sandbox_limits *ret, struct err *err)
{
    static const struct config_size none;
    const struct settings *own = &sandbox->meta.settings;
    const struct config *config = sandbox->supervisor->config;
    const struct config_size *size = own->size[0] ? config_size(config, own->size) : &none;
    if (!size)
        return err_set(err, EAGAIN,
                       "The size %s of this sandbox is not in the daemon's configuration any more: "
                       "set another one",
                       own->size);
    *ret = (struct sandbox_limits){
        .memory_bytes =
            settings_limit(own->memory_mib, size->memory_mib, config->memory_mib) * 1024 * 1024,
        .cpu_millis = settings_limit(own->cpu_millis, size->cpu_millis, config->cpu_millis),
        .pids = settings_limit(own->pids, size->pids, config->pids)};
    return 0;
}

void settings_disk(const struct sandbox *sandbox, struct settings_disk *ret)
{
    static const struct config_size none;
    const struct config *config = sandbox->supervisor->config;
    const struct settings *own = &sandbox->meta.settings;
    const struct config_size *size = own->size[0] ? config_size(config, own->size) : NULL;
    if (!size)
        size = &none;
    *ret = (struct settings_disk){
        .bytes =
            (uint64_t)settings_limit(own->disk_mib, size->disk_mib, config->disk_mib) * 1024 * 1024,
        .inodes = (uint64_t)settings_limit(own->inodes, size->inodes, config->inodes)};
}

/* "; there are: a, b", as far as there is room. */
struct settings_names {
    struct near near;
    char list[512];
};

static void settings_offer(struct settings_names *names, const char *name)
{
    size_t len = strlen(names->list);
    near_consider(&names->near, name);
    if (len + strlen(name) + 3 < sizeof(names->list))
        snprintf(names->list + len, sizeof(names->list) - len, "%s%s", len ? ", " : "", name);
}

static int settings_refuse_name(const char *kind, const struct settings_names *names,
                                const char *more, struct err *err)
{
    const char *best = names->near.best;
    return err_set(err, EINVAL, "There is no %s %s%s%s%s There are: %s%s", kind, names->near.word,
                   best ? ": did you mean " : ".", best ? best : "", best ? "?" : "",
                   names->list[0] ? names->list : "none", more);
}

static int settings_refuse_agent(const struct supervisor *supervisor, const char *agent,
                                 struct err *err)
{
    struct settings_names names = {.near = {.word = agent}};
    struct agents agents;
    agents_list(supervisor, &agents);
    for (size_t i = 0; i < agents.count; i++)
        settings_offer(&names, agents.names[i]);
    return settings_refuse_name("agent", &names, "", err);
}

int settings_check_agent(struct supervisor *supervisor, const char *name,
                         char ret_image[LIMIT_NAME_BYTES + 1], struct err *err)
{
    struct agent *agent = NULL;
    int result = supervisor_read_agent(supervisor, name, &agent, err);
    if (result == -ENOENT)
        return settings_refuse_agent(supervisor, name, err);
    if (result < 0)
        return result == -EINVAL ? -EAGAIN : result; /* its recipe is wrong, not the request */
    snprintf(ret_image, LIMIT_NAME_BYTES + 1, "%s", agent_image(agent));
    agent_free(agent);
    return 0;
}

static int settings_check_policy(const struct supervisor *supervisor, const char *name,
                                 struct err *err)
{
    struct settings_names names = {.near = {.word = name}};
    if (!name[0])
        return 0;
    if (!supervisor->policy.is_loaded)
        return err_set(err, EAGAIN, "The policies are not read yet%s%s",
                       supervisor->policy.text[0] ? ": " : "", supervisor->policy.text);
    for (size_t i = 0; i < supervisor->named_count; i++) {
        const struct msg_policy_state *named = &supervisor->named[i];
        if (strcmp(named->name, name) == 0 && named->is_in_force)
            return 0;
        if (strcmp(named->name, name) == 0)
            return err_set(err, EINVAL, "The policy %s is refused: %s", name, named->text);
        settings_offer(&names, named->name);
    }
    return settings_refuse_name("policy", &names,
                                ". A file that is new is read with `paddock policy reload`", err);
}

static int settings_check_size(const struct supervisor *supervisor, const char *name,
                               struct err *err)
{
    const struct config *config = supervisor->config;
    struct settings_names names = {.near = {.word = name}};
    if (!name[0] || config_size(config, name))
        return 0;
    for (size_t i = 0; i < config->size_count; i++)
        settings_offer(&names, config->sizes[i].name);
    return settings_refuse_name("size", &names, "", err);
}

/* `unit` of the value: 1000 for thousandths. */
static int settings_check_limit(const char *name, int64_t value, int64_t least, int64_t most,
                                int unit, struct err *err)
{
    if (!value || (value >= least && (!most || value <= most)))
        return 0;
    double low = (double)least / unit;
    if (!most)
        return err_set(err, EINVAL, "limits.%s must be at least %g", name, low);
    return err_set(err, EINVAL,
                   "limits.%s must be from %g to %g, which is limits.%s of the daemon's "
                   "configuration",
                   name, low, (double)most / unit, name);
}

/* One that is asked for and would not hold is refused. The daemon's own is not: it says so at its
 * start. */
static int settings_check_cpus(const struct supervisor *supervisor, int64_t millis, struct err *err)
{
    if (!millis || !sandbox_host_unheld(supervisor->host).cpus)
        return 0;
    return err_set(err, EBUSY,
                   "limits.cpus cannot be held here, no control group with the controller cpu can "
                   "be made: leave it out, or " HOST_GROUPS_CURE);
}

int settings_check(const struct supervisor *supervisor, const struct settings *settings,
                   const struct settings *old, struct err *err)
{
    const struct config *config = supervisor->config;
    const struct {
        const char *name;
        int64_t value, old, least, most;
        int unit;
    } limits[] = {
        {"memory_mib", settings->memory_mib, old->memory_mib, LIMIT_LEAST_MEMORY_MIB,
         config->memory_mib, 1},
        {"cpus", settings->cpu_millis, old->cpu_millis, LIMIT_LEAST_CPU_MILLIS, config->cpu_millis,
         1000},
        {"pids", settings->pids, old->pids, LIMIT_LEAST_PIDS, config->pids, 1},
        {"disk_mib", settings->disk_mib, old->disk_mib, LIMIT_LEAST_DISK_MIB, config->disk_mib, 1},
        {"inodes", settings->inodes, old->inodes, LIMIT_LEAST_INODES, config->inodes, 1},
    };
    int result = 0;
    for (size_t i = 0; result == 0 && i < ARRAY_LEN(limits); i++)
        if (limits[i].value != limits[i].old)
            result = settings_check_limit(limits[i].name, limits[i].value, limits[i].least,
                                          limits[i].most, limits[i].unit, err);
    if (result == 0 && settings->cpu_millis != old->cpu_millis)
        result = settings_check_cpus(supervisor, settings->cpu_millis, err);
    if (result == 0 && strcmp(settings->size, old->size) != 0)
        result = settings_check_size(supervisor, settings->size, err);
    if (result < 0 || strcmp(settings->policy, old->policy) == 0)
        return result;
    return settings_check_policy(supervisor, settings->policy, err);
}
