/*
 * Control groups that could not be removed at once: a process that was killed needs a moment to
 * leave them. The removal is tried again on a timer. No other instance ever has groups of that
 * name: they are named after its boot id.
 */
#include <stdio.h>
#include <stdlib.h>

#include "supervisor/table.h"
#include "util/log.h"

#define LEFTOVERS_TRIES 50
#define LEFTOVERS_PAUSE_MS 100

struct leftovers {
    struct supervisor *supervisor;
    struct event *timer;
    char group[64];
    int tries;
};

static void leftovers_try(void *ctx)
{
    struct leftovers *leftovers = ctx;
    struct err err = {0};
    int result = sandbox_instance_cleanup(leftovers->supervisor->host, leftovers->group, &err);
    if (result < 0 && ++leftovers->tries < LEFTOVERS_TRIES)
        return;
    if (result < 0)
        log_error("control groups of a former instance stay: %s", err.message);
    event_free(&leftovers->timer);
    free(leftovers);
}

void leftovers_clear(struct supervisor *supervisor, const char *group)
{
    if (sandbox_instance_cleanup(supervisor->host, group, NULL) == 0)
        return;
    struct leftovers *leftovers = must_alloc(sizeof(*leftovers));
    leftovers->supervisor = supervisor;
    snprintf(leftovers->group, sizeof(leftovers->group), "%s", group);
    leftovers->timer = event_timer(&supervisor->loop, LEFTOVERS_PAUSE_MS, LEFTOVERS_PAUSE_MS,
                                   leftovers_try, leftovers);
}

void leftovers_kill(struct supervisor *supervisor, const char *group)
{
    sandbox_group_kill(supervisor->host, group, NULL);
    leftovers_clear(supervisor, group);
}

static void leftovers_on_group(void *ctx, const char *group)
{
    struct supervisor *supervisor = ctx;
    struct err err = {0};
    if (!table_has_group(supervisor, group) &&
        sandbox_instance_cleanup_late(supervisor->host, group, &err) < 0)
        log_error("control groups of a former instance stay: %s", err.message);
}

void leftovers_end(struct supervisor *supervisor)
{
    sandbox_instance_list(supervisor->host, leftovers_on_group, supervisor, NULL);
}
