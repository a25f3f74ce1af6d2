/*
 * Reads a pipe of a program as its bytes come, with pause and resume. Inside src/api only. The pipe
 * may stay open long after the program has ended (a child of it holds it), so its end is told by
 * the supervisor, never by end of file: source_drain then takes what is there.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct source;

/* The bytes. False: no more until source_resume. */
typedef bool (*source_on_data)(void *ctx, struct source *source, const char *data, size_t len);

/* The descriptor becomes the source's. `on_eof` may be NULL. NULL: no memory, or no pipe. */
struct source *source_new(uv_loop_t *loop, int fd, source_on_data on_data,
                          void (*on_eof)(void *ctx, struct source *source), void *ctx);
int source_fd(const struct source *source); /* stays the source's */
void source_resume(struct source *source);

/* Reads what is there now. True: there is nothing more; false: it was paused. */
bool source_drain(struct source *source);

/* Closes the pipe and frees the source when the loop has turned. NULL is allowed. */
void source_close(struct source *source);
