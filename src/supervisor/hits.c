/*
 * Limits that a sandbox ran into: counted for /metrics, and told in a line of the log. What the
 * kernel refused an instance is counted by its control groups; it is looked at whenever a task or a
 * program of it ends, and never while nothing does.
 */
#include "supervisor/table.h"
#include "util/cleanup.h"
#include "util/log.h"

static const struct {
    const char *name, *key; /* the key of the configuration, as far as there is one */
} hits_texts[HIT_KINDS] = {
    [HIT_MEMORY] = {"memory", "limits.memory_mib"},
    [HIT_PIDS] = {"pids", "limits.pids"},
    [HIT_DISK] = {"disk", "limits.disk_mib, limits.inodes"},
    [HIT_LOG] = {"log", "limits.log_mib"},
    [HIT_DEADLINE] = {"deadline", "limits.deadline_ms, or its start's own"},
};

const char *hits_name(enum hit hit)
{
    return hits_texts[hit].name;
}

void hits_note(struct sandbox *sandbox, enum hit hit)
{
    sandbox->supervisor->counters.hits[hit]++;
    log_warn("sandbox=%s has hit its limit of %s (%s)", sandbox->meta.name, hits_texts[hit].name,
             hits_texts[hit].key);
}

void hits_begin(struct sandbox *sandbox)
{
    sandbox_instance_refused(sandbox->supervisor->host, &sandbox->instance, &sandbox->refused);
}

struct hits hits_look(struct sandbox *sandbox)
{
    struct sandbox_refused before = sandbox->refused;
    hits_begin(sandbox);
    struct hits hits = {.memory = sandbox->refused.oom_kills > before.oom_kills,
                        .pids = sandbox->refused.forks > before.forks};
    if (hits.memory)
        hits_note(sandbox, HIT_MEMORY);
    if (hits.pids)
        hits_note(sandbox, HIT_PIDS);
    return hits;
}
