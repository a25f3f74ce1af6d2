/*
 * The end of stopped sandboxes: one that was stopped for stopped_ttl_ms is removed with its files.
 * The time of the stop is on disk, by the clock of the wall; how much of it is left is reckoned
 * once, when the sandbox is stopped or found, and then runs by a clock that does not jump.
 */
#include <inttypes.h>

#include "supervisor/table.h"
#include "util/log.h"

/* Something waits for its turn, or its clone is being saved. */
#define EXPIRY_BUSY_MS 1000
/* It could not be removed. */
#define EXPIRY_FAILED_MS 60000

static void expiry_on_time(void *ctx);

static void expiry_again(struct sandbox *sandbox, int64_t ms)
{
    event_free(&sandbox->expiry);
    sandbox->expiry = event_timer(&sandbox->supervisor->loop, ms, 0, expiry_on_time, sandbox);
}

static void expiry_on_time(void *ctx)
{
    struct sandbox *sandbox = ctx;
    struct op op = {.kind = OP_REMOVE, .fd = -1, .is_only_stopped = true};
    event_free(&sandbox->expiry);
    if (sandbox->queue || sandbox->base_jail) {
        expiry_again(sandbox, EXPIRY_BUSY_MS);
        return;
    }
    log_info("sandbox=%s was stopped for %" PRId64 " s (stopped_ttl_ms): it is removed",
             sandbox->meta.name, sandbox->supervisor->config->stopped_ttl_ms / 1000);
    table_submit(sandbox->supervisor, sandbox->meta.name, &op);
}

void expiry_watch(struct sandbox *sandbox)
{
    int64_t limit = sandbox->supervisor->config->stopped_ttl_ms;
    int64_t now = clock_unix_ms();
    event_free(&sandbox->expiry);
    if (!limit || sandbox->state != SANDBOX_STOPPED)
        return;
    /* Written by a Paddock that noted no time, or before the clock was put back: from now on. */
    if (sandbox->meta.stopped_ms <= 0 || sandbox->meta.stopped_ms > now) {
        sandbox->meta.stopped_ms = now;
        table_save(sandbox);
    }
    int64_t gone = now - sandbox->meta.stopped_ms;
    expiry_again(sandbox, gone < limit ? limit - gone : 0);
}

void expiry_failed(struct sandbox *sandbox)
{
    if (sandbox->supervisor->config->stopped_ttl_ms && !sandbox->expiry)
        expiry_again(sandbox, EXPIRY_FAILED_MS);
}
