/*
 * What the supervisor waits for: a descriptor that becomes readable, a timer; on libuv's loop,
 * without its threads. And memory: a supervisor that has none ends, which is safe at any moment
 * (instances go on, the next one takes over).
 */
#pragma once

#include <stdint.h>
#include <uv.h>

struct event;
typedef void event_fn(void *ctx);

/* Calls fn(ctx) whenever fd is readable. The descriptor stays the caller's, and must be open until
 * event_free. */
struct event *event_watch(uv_loop_t *loop, int fd, event_fn *fn, void *ctx);
/* Calls fn(ctx) after `ms`, then every `repeat_ms` (0: once). */
struct event *event_timer(uv_loop_t *loop, int64_t ms, int64_t repeat_ms, event_fn *fn, void *ctx);
/* Ends it and clears the pointer; nothing when it is NULL. Also from within fn. */
void event_free(struct event **event);

/* Zeroed memory; never NULL. */
void *must_alloc(size_t size);
