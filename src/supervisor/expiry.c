/*
 * The end of stopped sandboxes: one that was stopped for stopped_ttl_ms is removed with its files.
 * The time of the stop is on disk, by the clock of the wall; how much of it is left is reckoned
 * once, when the sandbox is stopped or found, and then runs by a clock that does not jump.
 *
 * The clock of the wall may be wrong: a machine without one of its own boots with an early time. So
 * it is not believed while it is before what the sandbox's record has seen, or before this program
 * was made: the time of a stop is not known then, and the whole time begins anew.
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

static bool expiry_believes(const struct sandbox *sandbox, int64_t now)
{
    const struct meta *meta = &sandbox->meta;
    return now >= meta->latest_ms && now >= meta->created_ms && now >= clock_program_ms();
}

void expiry_note_time(struct sandbox *sandbox)
{
    int64_t now = clock_unix_ms();
    if (now > sandbox->meta.latest_ms)
        sandbox->meta.latest_ms = now;
}

void expiry_note_stop(struct sandbox *sandbox)
{
    int64_t now = clock_unix_ms();
    sandbox->meta.stopped_ms = expiry_believes(sandbox, now) ? now : 0;
}

void expiry_watch(struct sandbox *sandbox)
{
    int64_t limit = sandbox->supervisor->config->stopped_ttl_ms;
    int64_t now = clock_unix_ms();
    event_free(&sandbox->expiry);
    if (!limit || sandbox->state != SANDBOX_STOPPED)
        return;
    /* Written by a Paddock that noted no time, or by a wrong clock: from now on. */
    if (sandbox->meta.stopped_ms <= 0 || sandbox->meta.stopped_ms > now ||
        !expiry_believes(sandbox, now)) {
        expiry_note_stop(sandbox);
        table_save(sandbox);
    }
    int64_t gone = sandbox->meta.stopped_ms ? now - sandbox->meta.stopped_ms : 0;
    expiry_again(sandbox, gone < limit ? limit - gone : 0);
}

void expiry_failed(struct sandbox *sandbox)
{
    if (sandbox->supervisor->config->stopped_ttl_ms && !sandbox->expiry)
        expiry_again(sandbox, EXPIRY_FAILED_MS);
}
