/* A fake supervisor and a client around the real loop of the api, for its tests. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ipc/ipc.h"

void fake_start(bool is_tcp);
void fake_stop(void); /* asserts that nothing leaked: descriptors, handles */

/* The supervisor's side. */
extern struct ipc_message fake_message; /* the last that came */
void fake_expect(enum ipc_type type);   /* waits for it */
void fake_expect_nothing(void);
void fake_send(enum ipc_type type, const void *body, const int *fds, size_t count);
void fake_send_unasked(enum ipc_type type, const void *body, const int *fds, size_t count);
void fake_status(enum ipc_status code, const char *text);
void fake_started(int ret_write_fds[2]); /* RUN_STARTED with two pipes */
void fake_ended(int kind, int code, const char *text);
int fake_file(const char *text);
bool fake_is_lost(void);
void fake_hang_up(void);

/* The client's side. */
int client_request(const char *method, const char *path, const char *body); /* a new connection */
/* With more lines of the head, each with its end. */
int client_request_with(const char *method, const char *path, const char *more, const char *body);
const char *client_until(int fd, const char *until); /* what came until then, or until closed */
/* Reads the whole answer, closes the connection, checks status and, unless NULL, body. */
const char *client_answer(int fd, int status, const char *body);
void fake_turn(void);
