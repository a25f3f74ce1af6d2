/*
 * The JSON that answers the API's questions, as sealed memfds that api passes on: /healthz, the
 * list of sandboxes, one sandbox, the lists of images, policies and tokens. Times are Unix
 * milliseconds.
 */
#include <string.h>

#include "agent/agent.h"
#include "agent/usage.h"
#include "image/image.h"
#include "supervisor/table.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/log.h"
#include "json/json.h"

typedef void document_fn(struct json_writer *writer, const void *ctx);

static int document_make(document_fn *fill, const void *ctx, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_DOCUMENT_BYTES);
    struct json_writer *writer = json_writer_new(&text, false);
    if (!writer)
        return err_set(err, ENOMEM, "no memory for an answer");
    fill(writer, ctx);
    int result = json_writer_end(writer);
    if (result == 0)
        result = buf_append_string(&text, "\n");
    if (result < 0)
        return err_errno(err, -result, "cannot write an answer");
    return fd_sealed("document", text.data, text.len, err);
}

const char *document_state_name(enum sandbox_state state)
{
    static const char *const names[] = {[SANDBOX_STOPPED] = "stopped",
                                        [SANDBOX_STARTING] = "starting",
                                        [SANDBOX_RUNNING] = "running",
                                        [SANDBOX_STOPPING] = "stopping"};
    return names[state];
}

static const char *document_task_name(enum task_state state)
{
    static const char *const names[] = {[TASK_NONE] = "none",
                                        [TASK_RUNNING] = "running",
                                        [TASK_ENDED] = "ended",
                                        [TASK_LOST] = "lost"};
    return names[state];
}

/* What holds for it now; 0: no limit. None when its size is not there any more. */
static void document_write_limits(struct json_writer *writer, const struct sandbox *sandbox)
{
    struct sandbox_limits limits;
    struct settings_disk files;
    if (settings_limits(sandbox, &limits, NULL) < 0)
        return;
    settings_disk(sandbox, &files);
    json_write_key(writer, "limitsInForce");
    json_write_object_begin(writer);
    json_write_pair_integer(writer, "memory_mib", limits.memory_bytes >> 20);
    json_write_key(writer, "cpus");
    json_write_thousandths(writer, limits.cpu_millis);
    json_write_pair_integer(writer, "pids", limits.pids);
    json_write_pair_integer(writer, "disk_mib", (int64_t)(files.bytes >> 20));
    json_write_pair_integer(writer, "inodes", (int64_t)files.inodes);
    json_write_object_end(writer);
}

/* The environment is not in the list, which could become too long. */
static void document_write_sandbox(struct json_writer *writer, const struct sandbox *sandbox,
                                   bool with_env)
{
    const struct meta *meta = &sandbox->meta;
    int64_t quiet = clock_monotonic_ms() - sandbox->activity_ms;
    json_write_object_begin(writer);
    json_write_pair_string(writer, "name", meta->name);
    json_write_pair_string(writer, "state", document_state_name(sandbox->state));
    json_write_pair_string(writer, "agent", meta->agent);
    json_write_pair_string(writer, "image", meta->image);
    json_write_pair_integer(writer, "created", meta->created_ms);
    json_write_pair_bool(writer, "cloned", meta->is_cloned);
    json_write_pair_string(writer, "task", document_task_name(meta->task));
    if (sandbox->state != SANDBOX_STOPPED)
        json_write_pair_string(writer, "bootId", meta->lease.boot_id);
    else if (meta->stopped_ms)
        json_write_pair_integer(writer, "stopped", meta->stopped_ms);
    json_write_pair_integer(writer, "lastActivity", clock_unix_ms() - quiet);
    if (!meta->settings.policy[0] && settings_policy(sandbox)[0])
        json_write_pair_string(writer, "policyByName", settings_policy(sandbox));
    model_usage_write(writer, "usage", &meta->usage);
    settings_write(writer, &meta->settings, with_env);
    document_write_limits(writer, sandbox);
    if (meta->is_over_disk)
        json_write_pair_bool(writer, "overDisk", true);
    json_write_object_end(writer);
}

static void document_fill_sandbox(struct json_writer *writer, const void *ctx)
{
    document_write_sandbox(writer, ctx, true);
}

int document_sandbox(const struct sandbox *sandbox, struct err *err)
{
    return document_make(document_fill_sandbox, sandbox, err);
}

struct document_list {
    const struct supervisor *supervisor;
    const struct msg_sandbox_list *only;
    struct buf labels; /* lies in *only */
};

static bool document_has(const struct document_list *list, const struct sandbox *sandbox)
{
    const char *prefix = IPC_TEXT(list->only->prefix);
    if (strncmp(sandbox->meta.name, prefix, strlen(prefix)) != 0 ||
        (list->only->state && list->only->state != 1U + sandbox->state))
        return false;
    for (const char *label = NULL; (label = settings_next(&list->labels, label));)
        if (!settings_have(&sandbox->meta.settings.labels, label))
            return false;
    return true;
}

static void document_fill_sandboxes(struct json_writer *writer, const void *ctx)
{
    const struct document_list *list = ctx;
    const struct sandbox *sandbox = list->supervisor->sandboxes;
    json_write_array_begin(writer);
    for (; sandbox; sandbox = sandbox->next)
        if (document_has(list, sandbox))
            document_write_sandbox(writer, sandbox, false);
    json_write_array_end(writer);
}

int document_sandboxes(struct supervisor *supervisor, const struct msg_sandbox_list *only,
                       struct err *err)
{
    size_t len = 0;
    for (uint32_t i = 0; i < only->label_count && len < sizeof(only->labels); i++)
        len += strnlen(only->labels + len, sizeof(only->labels) - len - 1) + 1;
    struct document_list list = {
        supervisor, only, {.data = (char *)(uintptr_t)only->labels, .len = len}};
    return document_make(document_fill_sandboxes, &list, err);
}

static void document_fill_health(struct json_writer *writer, const void *ctx)
{
    const struct supervisor *supervisor = ctx;
    size_t count = 0;
    for (const struct sandbox *sandbox = supervisor->sandboxes; sandbox; sandbox = sandbox->next)
        count++;
    json_write_object_begin(writer);
    json_write_pair_string(writer, "status", supervisor->policy.is_loaded ? "ok" : "degraded");
    json_write_pair_string(writer, "version", PADDOCK_VERSION);
    json_write_pair_bool(writer, "egress", supervisor->egress.channel);
    json_write_pair_bool(writer, "policy", supervisor->policy.is_loaded);
    json_write_pair_integer(writer, "inactiveRules", supervisor->policy.inactive);
    json_write_pair_string(writer, "hint", egress_hint(supervisor, ""));
    json_write_pair_integer(writer, "sandboxes", (int64_t)count);
    json_write_pair_integer(writer, "running", (int64_t)supervisor->instance_count);
    json_write_object_end(writer);
}

int document_health(struct supervisor *supervisor, struct err *err)
{
    return document_make(document_fill_health, supervisor, err);
}

struct document_images {
    struct json_writer *writer;
    const struct supervisor *supervisor;
    const char *prefix;        /* of the sandboxes that may be told */
    const char *default_image; /* of the default agent */
};

static void document_add_image(void *ctx, const struct image_info *info)
{
    const struct document_images *images = ctx;
    struct json_writer *writer = images->writer;
    cleanup_free struct image_config *config = must_alloc(sizeof(*config));
    int state_fd = images->supervisor->state_fd;
    bool is_known = image_config_read(state_fd, info->name, config, NULL) == 0;
    json_write_object_begin(writer);
    json_write_pair_string(writer, "name", info->name);
    json_write_pair_string(writer, "digest", info->digest);
    json_write_pair_integer(writer, "built", info->built * 1000);
    json_write_pair_integer(writer, "sizeBytes", info->size_bytes);
    json_write_pair_bool(writer, "imported", info->is_imported);
    json_write_pair_bool(writer, "stale",
                         image_is_stale(images->supervisor->recipes_fd, state_fd, info));
    json_write_pair_string(writer, "user", is_known ? config->user : "");
    json_write_pair_string(writer, "workdir", is_known ? config->workdir : "");
    json_write_pair_bool(writer, "default", strcmp(info->name, images->default_image) == 0);
    json_write_key(writer, "usedBy");
    json_write_array_begin(writer);
    for (const struct sandbox *at = images->supervisor->sandboxes; at; at = at->next)
        if (strcmp(at->meta.image, info->name) == 0 &&
            strncmp(at->meta.name, images->prefix, strlen(images->prefix)) == 0)
            json_write_string(writer, at->meta.name);
    json_write_array_end(writer);
    json_write_object_end(writer);
}

static void document_fill_images(struct json_writer *writer, const void *ctx)
{
    struct document_images images = *(const struct document_images *)ctx;
    images.writer = writer;
    struct err err = {0};
    json_write_array_begin(writer);
    if (image_list(images.supervisor->state_fd, document_add_image, &images, &err) < 0)
        log_warn("the list of images ends early: %s", err.message);
    json_write_array_end(writer);
}

int document_images(struct supervisor *supervisor, const char *prefix, struct err *err)
{
    struct agent *agent = NULL;
    supervisor_read_agent(supervisor, supervisor->config->default_agent, &agent, NULL);
    struct document_images images = {.supervisor = supervisor,
                                     .prefix = prefix,
                                     .default_image = agent ? agent_image(agent) : ""};
    int result = document_make(document_fill_images, &images, err);
    agent_free(agent);
    return result;
}

static int64_t document_users(const struct supervisor *supervisor, const char *policy)
{
    int64_t count = 0;
    for (const struct sandbox *sandbox = supervisor->sandboxes; sandbox; sandbox = sandbox->next)
        count += strcmp(settings_policy(sandbox), policy) == 0;
    return count;
}

static void document_add_policy(struct json_writer *writer, const struct supervisor *supervisor,
                                const struct msg_policy_state *policy)
{
    const char *file = strrchr(supervisor->config->policy, '/') + 1;
    size_t len = strlen(policy->name);
    bool is_default = strncmp(file, policy->name, len) == 0 && strcmp(file + len, ".json") == 0;
    int64_t users = document_users(supervisor, policy->name);
    json_write_object_begin(writer);
    json_write_pair_string(writer, "name", policy->name);
    json_write_pair_bool(writer, "default", is_default);
    json_write_pair_bool(writer, "inForce", policy->is_in_force);
    if (!policy->is_refused) {
        json_write_pair_integer(writer, "rules", policy->rules);
        json_write_pair_integer(writer, "inactiveRules", policy->inactive);
    }
    if (policy->text[0])
        json_write_pair_string(writer, policy->is_refused ? "error" : "hint", policy->text);
    json_write_pair_integer(writer, "sandboxes",
                            users + (is_default ? document_users(supervisor, "") : 0));
    json_write_object_end(writer);
}

static void document_fill_policies(struct json_writer *writer, const void *ctx)
{
    const struct supervisor *supervisor = ctx;
    json_write_array_begin(writer);
    for (size_t i = 0; i < supervisor->named_count; i++)
        document_add_policy(writer, supervisor, &supervisor->named[i]);
    json_write_array_end(writer);
}

int document_policies(struct supervisor *supervisor, struct err *err)
{
    return document_make(document_fill_policies, supervisor, err);
}

static void document_fill_agents(struct json_writer *writer, const void *ctx)
{
    struct supervisor *const *supervisor = ctx;
    agents_write(writer, *supervisor);
}

int document_agents(struct supervisor *supervisor, struct err *err)
{
    return document_make(document_fill_agents, &supervisor, err);
}

static void document_fill_tokens(struct json_writer *writer, const void *ctx)
{
    tokens_write(writer, ctx, false);
}

int document_tokens(struct supervisor *supervisor, struct err *err)
{
    return document_make(document_fill_tokens, supervisor, err);
}
