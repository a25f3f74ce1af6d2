/*
 * Writes to a pipe of a program as it takes bytes. Inside src/api only. What the program does not
 * take yet is kept; it may end, and take no more, at any time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct sink;

struct sink_ops {
    void (*on_drain)(void *ctx);   /* all was taken: more may be written */
    void (*on_ended)(void *ctx);   /* after sink_end: all was taken; still open */
    void (*on_refused)(void *ctx); /* the program takes no more */
};

/* The descriptor becomes the sink's. NULL: no memory, or no pipe. */
struct sink *sink_new(uv_loop_t *loop, int fd, const struct sink_ops *ops, void *ctx);

/* Queues the bytes (copied). False: enough is kept; write no more until on_drain. After on_refused
 * they are dropped. */
bool sink_write(struct sink *sink, const char *data, size_t len);

/* There is no more to come: calls on_ended, at once or later. */
void sink_end(struct sink *sink);

/* Closes the pipe and frees the sink when the loop has turned. NULL is allowed. */
void sink_close(struct sink *sink);
