/*
 * Control groups that could not be removed at once: a process that was killed needs a moment to
 * leave them. The removal is tried again on a timer, until it is done or an instance of that name
 * starts, whose groups they are then.
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
    char name[LIMIT_NAME_BYTES + 1];
    int tries;
};

static void leftovers_try(void *ctx)
{
    struct leftovers *leftovers = ctx;
    const struct sandbox *sandbox = table_find(leftovers->supervisor, leftovers->name);
    struct err err = {0};
    int result = 0;
    /* Of a new instance's groups one may be empty, for the moment before a program joins it. */
    if (!sandbox || sandbox->state == SANDBOX_STOPPED)
        result = sandbox_instance_cleanup(leftovers->supervisor->host, leftovers->name, &err);
    if (result < 0 && ++leftovers->tries < LEFTOVERS_TRIES)
        return;
    if (result < 0)
        log_error("sandbox=%s cgroups of a former instance stay: %s", leftovers->name, err.message);
    event_free(&leftovers->timer);
    free(leftovers);
}

void leftovers_clear(struct supervisor *supervisor, const char *name)
{
    if (sandbox_instance_cleanup(supervisor->host, name, NULL) == 0)
        return;
    struct leftovers *leftovers = must_alloc(sizeof(*leftovers));
    leftovers->supervisor = supervisor;
    snprintf(leftovers->name, sizeof(leftovers->name), "%s", name);
    leftovers->timer = event_timer(&supervisor->loop, LEFTOVERS_PAUSE_MS, LEFTOVERS_PAUSE_MS,
                                   leftovers_try, leftovers);
}

void leftovers_kill(struct supervisor *supervisor, const char *name)
{
    struct sandbox_instance instance = {.init = {.pidfd = -1}, .socket = -1};
    snprintf(instance.name, sizeof(instance.name), "%s", name);
    sandbox_instance_kill(supervisor->host, &instance, NULL);
    leftovers_clear(supervisor, name);
}

static void leftovers_on_group(void *ctx, const char *name)
{
    struct supervisor *supervisor = ctx;
    const struct sandbox *sandbox = table_find(supervisor, name);
    struct err err = {0};
    if (sandbox && sandbox->state != SANDBOX_STOPPED)
        return;
    if (sandbox_instance_cleanup_late(supervisor->host, name, &err) < 0)
        log_error("sandbox=%s cgroups of a former instance stay: %s", name, err.message);
}

void leftovers_end(struct supervisor *supervisor)
{
    sandbox_instance_list(supervisor->host, leftovers_on_group, supervisor, NULL);
}
