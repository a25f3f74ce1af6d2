/*
 * A call that runs a program: RUN_STARTED brings its pipes, RUN_ENDED its end; then what the pipes
 * still hold is read, and the call is done. Inside src/api only.
 */
#pragma once

#include "api/call.h"
#include "api/sink.h"
#include "api/source.h"

enum { RUN_STDOUT, RUN_STDERR, RUN_STREAMS };

struct run;

struct run_ops {
    /* Bytes of a stream; false: no more until run_resume. */
    bool (*on_data)(struct run *run, int stream, const char *data, size_t len);
    /* Ended, and all was read. Called once, also when the client is gone. */
    void (*on_done)(struct run *run);
    /* The client went away; NULL: the program's output is read on and dropped. */
    void (*on_gone)(struct run *run);
    /* RUN_STARTED came; more descriptors than the two pipes may be in it. NULL: there are none. */
    void (*on_started)(struct run *run, struct ipc_message *message);
};

struct run {
    struct api_call *call;
    const struct run_ops *ops;
    struct source *sources[RUN_STREAMS];
    struct sink *sink;             /* of its input; NULL: it has none, or no more */
    struct buf tails[RUN_STREAMS]; /* kept by run_keep_tail */
    bool is_cut[RUN_STREAMS];
    struct buf input; /* that the program is given when it has started */
    bool ends_with_client;
    bool is_ended;
    const char *type;  /* of the streamed answer */
    bool is_streaming; /* the answer was begun */
    char last_byte;    /* of the streamed answer */
    void *extra;       /* of what the run is for; freed with it by extra_free */
    void (*extra_free)(void *extra);
    struct task_end end;
    char reason[MSG_TEXT];
};

/* Makes the call's run. NULL: it was answered. */
struct run *run_new(struct api_call *call, const struct run_ops *ops);
/* Sends the message that starts it; it may be gone afterwards. */
void run_send(struct run *run, enum ipc_type type, const void *body, int fd);
/* Both. */
void run_start(struct api_call *call, const struct run_ops *ops, enum ipc_type type,
               const void *body, int fd);

/* An on_data that keeps the last LIMIT_EXEC_OUTPUT_BYTES. */
bool run_keep_tail(struct run *run, int stream, const char *data, size_t len);

/* The tail without half a character in front; ends with the supervisor's reason, if any. */
void run_finish_tails(struct run *run);

/* As a shell tells it: 128 + signal; 127 or 126 for what could not be started; 124 (timeout(1)) for
 * what was over its time. */
int run_exit_code(const struct run *run);

void run_resume(struct run *run);

/* stream.c. Streams a piece of the answer; false: no more until run_resume. The first byte begins
 * it; afterwards a failure can only be told by breaking off, or in the last line. */
bool run_stream(struct run *run, const char *data, size_t len);
/* {"exitCode":N} or {"exitCode":N,"error":"..."}, without an end of line. */
int run_end_line(const struct run *run, struct buf *ret);
/* Ends the streamed answer with this line, which has no end of its own yet. */
void run_stream_last(struct run *run, const struct buf *line);

/* Of each line what is left to see on a terminal: what stands behind the last return in it. */
void run_drop_overwritten(struct buf *text);

/* import.c. The body of an import that comes in pieces (as http_handler's on_body_data), and its
 * end. */
bool import_piece(struct api_call *call, const char *data, size_t len);
void import_whole(struct api_call *call);
