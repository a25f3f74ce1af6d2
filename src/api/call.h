/*
 * A call: a client's request on its way through the supervisor. Inside src/api only. It lives until
 * the client's exchange has ended and no reply is awaited any more, whichever comes last: a client
 * that hangs up leaves what it started going on.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "api/api.h"
#include "http/router.h"
#include "http/server.h"
#include "ipc/ipc.h"
#include "json/json.h"

struct api_call;

struct api_route {
    void (*handle)(struct api_call *call); /* the body is there; or it is streamed, and to come */
    int64_t body_max;
};
/* A body of this limit is an image's archive: it is streamed (import.c). */
#define CALL_IS_STREAMED(route) ((route)->body_max == LIMIT_IMPORT_BYTES)

struct api_call {
    struct api *api;
    struct http_exchange *exchange; /* NULL: the client is gone, or was answered long ago */
    const struct api_route *route;
    uint64_t id; /* of the messages to the supervisor, the log and the answer; never used twice */
    char method[16], path[LIMIT_LOG_PATH_BYTES + 1]; /* for the log; cut */
    int status;                                      /* of the answer; 0: none yet */
    int64_t began_ms;                                /* clock_monotonic_ms */
    char name[MSG_NAME];
    char token[MSG_TOKEN_ID];    /* of the client, "" over the Unix socket */
    int64_t expires_ms;          /* of the token; 0: never */
    char prefix[MSG_NAME];       /* of the sandboxes that the client's token is for; "": all */
    struct http_matched matched; /* valid while the exchange is */
    bool is_waiting;             /* for a reply; more may follow it */
    bool is_answered;            /* or its stream was begun */
    bool is_streaming;
    bool is_events; /* server-sent events, which a comment keeps alive */

    /* Each reply; sets is_waiting again when another one follows. */
    void (*on_reply)(struct api_call *call, struct ipc_message *message);
    void (*on_drain)(struct api_call *call); /* of a stream: the client takes more */
    /* After call_upgrade: bytes of the client; false: no more until http_resume_body. */
    bool (*on_data)(struct api_call *call, const char *data, size_t len);
    void (*on_gone)(struct api_call *call); /* the client went away; NULL: nothing to do */
    void *state;                            /* of the handler */
    void (*state_free)(void *state);
    struct api_call *next, *previous;
};

/* routes.def */
#define ROUTE(method, pattern, handler, body_max, request, answer, query, statuses, summary)       \
    void api_##handler(struct api_call *call);
#include "api/routes.def"
#undef ROUTE

/* api.c. Sends a message with the call's id; when the supervisor cannot take it, answers 503. */
void call_send(struct api_call *call, enum ipc_type type, const void *body, const int *fds,
               size_t fd_count,
               void (*on_reply)(struct api_call *call, struct ipc_message *message));
/* Sends a message without a body that nobody answers. */
void call_tell(struct api_call *call, enum ipc_type type);
/* A call that set is_waiting for something else than a reply was answered. It may be gone then. */
void call_resume(struct api_call *call);
/* Its stream was begun, and is one of events: it gets a comment now and then. */
void call_keep_alive(struct api_call *call);
uv_loop_t *call_loop(const struct api_call *call);

#define CALL_JSON "application/json"
#define CALL_EVENTS "text/event-stream"

/* call.c. Answers; nothing happens when the client is gone or was answered. */
void call_answer(struct api_call *call, int status, const char *type, const void *body, size_t len);
void call_text(struct api_call *call, int status, const char *text);
/* As call_text, with more lines of the head, each with its end; NULL: none. */
void call_refuse(struct api_call *call, int status, const char *more, const char *text);
void call_json(struct api_call *call, int status, const struct buf *json);
void call_empty(struct api_call *call); /* 204 */
/* 500 `Sandbox request failed`; the reason goes to the log. */
void call_failed(struct api_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* What a STATUS stands for, other than OK. */
void call_status(struct api_call *call, const struct msg_status *status);
/* {"exitCode","stdout","stderr"}; bytes that are not UTF-8 are replaced. */
void call_run_result(struct api_call *call, int status, int exit_code, const struct buf *out,
                     const struct buf *errors);
/* The same document alone, into *ret, which is made here and the caller's to free, whatever comes.
 */
int call_write_result(struct buf *ret, int exit_code, const struct buf *out,
                      const struct buf *errors);
/* {"state":"..."} */
void call_state(struct api_call *call, int status, const char *state);
/* A WebSocket is begun with the value of Sec-WebSocket-Accept; false: the client is gone. */
bool call_upgrade(struct api_call *call, const char *accept);
bool call_stream_begin(struct api_call *call, const char *type);

/* sandbox.c. For replies: passes a DOCUMENT on; 204 for a STATUS that is OK. */
void call_pass_document(struct api_call *call, struct ipc_message *message);
void call_pass_done(struct api_call *call, struct ipc_message *message);

/* For replies: true when the message has this type; else it is answered (STATUS by call_status). */
bool call_expects(struct api_call *call, const struct ipc_message *message, enum ipc_type type);
/* A reply that is STATUS: true when OK, else answered. */
bool call_is_ok(struct api_call *call, const struct ipc_message *message);
