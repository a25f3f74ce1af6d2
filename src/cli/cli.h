/*
 * The command line. Runs as the user; everything it does it asks of the daemon's REST API, except
 * `policy check` and `policy explain`, which read a policy themselves, and `doctor`, which runs
 * paddockd.
 *
 * verbs.c is the table of verbs and options: see verbs.h. args.c parses by it, help.c prints it.
 * Each verb has its file cmd_<verb>.c. What a sandbox or the daemon says goes to a terminal only
 * through text.c, so that no escape sequence of an agent reaches it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/verbs.h"
#include "util/buf.h"
#include "util/err.h"
#include "json/json.h"

#define CLI_REPEATED_MAX 128

/* A command line that was understood. Strings are argv's own. */
struct cli {
    const struct cli_verb *verb;      /* NULL: none was given (--help or --version alone) */
    const char *values[OPTION_COUNT]; /* NULL: not given; of a flag: "" */
    struct {                          /* each one of the options that may be repeated, in order */
        enum cli_option_id id;
        const char *value;
    } repeated[CLI_REPEATED_MAX];
    size_t repeated_count;
    const char **args; /* without the verb; the caller frees the array */
    size_t arg_count;
};

int cli_main(int argc, char **argv);

/* args.c. Options stand in front of the verb or behind it. CLI_OK, or CLI_USAGE with the reason and
 * the near name that may have been meant. */
enum cli_exit cli_parse(int argc, char **argv, struct cli *ret, struct err *err);
/* Words that are no verb: CLI_USAGE, with the verbs that begin so ("image"), else the near one. */
enum cli_exit cli_refuse_verb(const char *words, struct err *err);
/* The verb of this name, or NULL. */
const struct cli_verb *cli_verb_find(const char *name);

/* The next value of an option that may be repeated, or NULL. Start with *at 0. */
const char *cli_next_value(const struct cli *cli, enum cli_option_id id, size_t *at);

/* help.c: the whole help, or that of one verb. */
void cli_help_print(FILE *out, const struct cli_verb *verb);
/* help_json.c: the tables of verbs.h as JSON, for programs. */
void cli_help_print_json(FILE *out);

/* Sets the message and returns the status. */
enum cli_exit cli_fail(struct err *err, enum cli_exit status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* http.c: one request to the daemon; blocks until its end. */
struct cli_request {
    const char *method;
    const char *path;         /* with its query; only names that were checked go in */
    const char *content_type; /* NULL: no body */
    const char *accept;       /* NULL: anything */
    const char *body;
    size_t body_len;
    bool is_cleaning; /* Ctrl-C does not end it */
    bool is_only_new; /* of a PUT: what is there already is not replaced */
    /* When set, gives the body instead: up to max bytes, 0 at the end, negative when it broke. It
     * is asked for when the daemon has said that it takes it. */
    ssize_t (*upload)(void *ctx, char *data, size_t max);
    int64_t upload_bytes; /* -1: not known */
    /* When set, gets the body of an answer of 2xx as it comes. */
    void (*stream)(void *ctx, const char *data, size_t len);
    void (*on_time)(void *ctx); /* when set: called about each second */
    void *ctx;
    long timeout_ms; /* of the whole; 0: none */
};
struct cli_reply {
    long status;
    char request_id[24]; /* by which the daemon's log has it; "" for none */
    struct buf body;     /* up to LIMIT_CLI_REPLY_BYTES */
};
/* Connects to the daemon, and gives the value of Host; the socket is blocking and the caller's. */
enum cli_exit cli_connect(const struct cli *cli, const char *path, char *ret_host, size_t size,
                          int *ret_fd, struct err *err);
/* upgrade.c: the same, and a WebSocket's handshake. ret_rest, which the caller made and frees, gets
 * the bytes that came behind the answer. */
enum cli_exit cli_upgrade(const struct cli *cli, const char *path, int *ret_fd,
                          struct buf *ret_rest, struct err *err);
/* terminal.c: a program with a terminal; without arguments it is a shell. The program's status. */
struct cli_exec;
enum cli_exit cli_terminal(const struct cli *cli, const struct cli_exec *exec, struct err *err);

void cli_reply_free(struct cli_reply *reply);
#define cleanup_reply __attribute__((cleanup(cli_reply_free)))

/* CLI_OK when there was an answer, whatever its status; else CLI_UNREACHABLE (or CLI_USAGE: a bad
 * --url; CLI_INTERRUPTED) with the cause and the cure. */
enum cli_exit cli_call(const struct cli *cli, const struct cli_request *request,
                       struct cli_reply *ret, struct err *err);
/* As cli_call, and an answer that is not 2xx is CLI_FAILED with the daemon's reason. */
enum cli_exit cli_ask(const struct cli *cli, const struct cli_request *request,
                      struct cli_reply *ret, struct err *err);
/* As cli_ask, for a request whose answer tells people nothing: prints nothing, with --json the
 * answer. */
enum cli_exit cli_act(const struct cli *cli, const char *method, const char *path, struct err *err);
/* Turns an answer that is not 2xx into a message. */
enum cli_exit cli_refused(const struct cli *cli, const struct cli_reply *reply, struct err *err);

/* names.c: of a name of the verb's kind that the daemon does not have, the near one that it has:
 * "there is no sandbox "x": did you mean "y"?". False, and "": there is none near, or it is there.
 */
bool cli_suggest(const struct cli *cli, const char *name, char *ret, size_t size);

/* From here on Ctrl-C, or SIGTERM, ends a request (CLI_INTERRUPTED) instead of the program. */
void cli_catch_interrupt(void);
bool cli_is_interrupted(void);

/* text.c: foreign bytes for a terminal. Control characters, C1, bidirectional overrides and what is
 * no UTF-8 are shown, never sent. `one_line` makes blanks of line ends and tabs. At most max_bytes
 * of `data` are taken; more is told by "...". 0 or as buf_append. Pure. */
int cli_text_append(struct buf *ret, const char *data, size_t len, bool one_line, size_t max_bytes);
/* Writes foreign bytes: as they are to a file or a pipe, through cli_text_append to a terminal.
 * With a key they are the string of a JSON object with that key alone (what is no UTF-8 is
 * replaced). The writer is for bytes that come in pieces, which may be cut anywhere. */
struct cli_writer {
    FILE *out;
    const char *json_key; /* NULL: plain */
    bool is_begun;        /* the JSON is */
    char held[4];         /* the beginning of a character whose end was not there yet */
    size_t held_len;
};
void cli_writer_feed(struct cli_writer *writer, const char *data, size_t len);
/* `is_good`: an object with an empty text is written when nothing came. */
void cli_writer_end(struct cli_writer *writer, bool is_good);
/* Prints JSON; what a terminal would act on as escapes of JSON, which mean the same. */
void cli_write_json(FILE *out, const char *data, size_t len);
/* Prints a JSON document of the daemon on a line of its own; {} for what is none. */
void cli_print_json(const struct buf *document);
void cli_write(FILE *out, const char *data, size_t len);
/* Writes foreign text on one line, always made safe, in at least `width` columns. */
void cli_write_cell(FILE *out, const char *text, int width);

/* color.c: what begins a colour (NONE: ends it) on this stream; "" where it is no terminal, where
 * NO_COLOR is set and where TERM is unset or dumb. */
enum cli_color {
    CLI_COLOR_NONE,
    CLI_COLOR_BOLD,
    CLI_COLOR_RED,
    CLI_COLOR_GREEN,
    CLI_COLOR_YELLOW,
    CLI_COLOR_CYAN,
};
const char *cli_color(FILE *out, enum cli_color color);

/* sse.c: a stream of events. Pieces go to cli_sse_feed with the struct as ctx; on_data is called
 * with each one's data, and its name, "" for none. */
struct cli_sse {
    struct buf line; /* that is not whole yet; the owner sets its limit, and frees it */
    char event[16];
    void (*on_data)(void *ctx, const char *event, const char *data, size_t len);
    void *ctx;
};
void cli_sse_feed(void *ctx, const char *data, size_t len);

/* cmd_set.c. An option that may be repeated, of NAME=VALUE (with may_remove also NAME-). */
enum cli_exit cli_check_list(const struct cli *cli, enum cli_option_id id, bool may_remove,
                             struct err *err);
/* Writes it as a member of the object that is open. */
void cli_write_list(struct json_writer *writer, const struct cli *cli, enum cli_option_id id,
                    const char *key);
/* cmd_exec.c. The body of POST /sandboxes/NAME/exec. Returns 0, or a negative errno when it does
 * not fit `ret`. */
struct cli_exec {
    const char *const *argv;
    size_t count;
    const char *cwd; /* NULL: the daemon's choice */
    bool is_root;
    const struct cli *env_of; /* whose --env are its variables; NULL: none */
    int64_t timeout_ms;       /* 0: none */
    bool ends_with_client;
};
int cli_exec_body(const struct cli_exec *exec, struct buf *ret);

/* events.c: the agent's event lines in readable form. Pure: bytes in, text appended to `out`. */
struct cli_events {
    struct buf line;  /* a line that is not whole yet */
    bool is_skipping; /* inside a line that is too long */
};
void cli_events_init(struct cli_events *events);
void cli_events_free(struct cli_events *events);
void cli_events_feed(struct cli_events *events, const char *data, size_t len, struct buf *out);
void cli_events_end(struct cli_events *events, struct buf *out); /* the last line had no end */

/* follow.c: the log of a task, from its start. With `events` in readable form. With `follow` until
 * the task ends, also across a restart of the daemon. */
struct cli_follow {
    const char *name;
    bool follow;
    bool events;
    bool is_stderr;
    bool is_silent; /* only waits for the end */
};
enum cli_exit cli_follow(const struct cli *cli, const struct cli_follow *follow, struct err *err);

/* each.c: what --all names: the sandboxes there are, of that query ("" or "?..."); or the
 * arguments. The caller frees the array and its texts with cli_targets_free. */
struct cli_targets {
    char **list;
    size_t count;
};
void cli_targets_free(struct cli_targets *names);
#define cleanup_targets __attribute__((cleanup(cli_targets_free)))
enum cli_exit cli_targets(const struct cli *cli, struct cli_targets *ret, struct err *err);
/* Asks for the path before + NAME + after for each; goes on after one that fails, and is then no
 * success. The messages are put together. */
enum cli_exit cli_each(const struct cli *cli, const struct cli_targets *names, const char *method,
                       const char *before, const char *after, struct err *err);
/* Milliseconds of an option like "30m"; 0: it is not given; -1: it is no time of up to ten years.
 */
int64_t cli_read_ms(const struct cli *cli, enum cli_option_id id, struct err *err);

/* cmd_status.c: "12 requests to claude-sonnet-5: ..." of a task's JSON, with a newline; nothing
 * when it made none. */
struct json;
void cli_print_usage(FILE *out, const struct json *task);

/* cmd_ls.c: appends the query of --state and --label to a path. As buf_append. */
int cli_append_filters(const struct cli *cli, struct buf *path);

/* cmd_diff.c: the changes of the sandbox that is the first argument, as they come, with the options
 * of `diff`. */
enum cli_exit cli_diff(const struct cli *cli, bool is_binary,
                       void (*on_data)(void *ctx, const char *data, size_t len), void *ctx,
                       struct err *err);

/* The verbs. */
enum cli_exit cmd_apply(struct cli *cli, struct err *err);
enum cli_exit cmd_cancel(struct cli *cli, struct err *err);
enum cli_exit cmd_clone(struct cli *cli, struct err *err);
enum cli_exit cmd_complete(struct cli *cli, struct err *err);
enum cli_exit cmd_create(struct cli *cli, struct err *err);
enum cli_exit cmd_df(struct cli *cli, struct err *err);
enum cli_exit cmd_diff(struct cli *cli, struct err *err);
enum cli_exit cmd_doctor(struct cli *cli, struct err *err);
enum cli_exit cmd_egress(struct cli *cli, struct err *err);
enum cli_exit cmd_exec(struct cli *cli, struct err *err);
enum cli_exit cmd_help(struct cli *cli, struct err *err);
enum cli_exit cmd_image_import(struct cli *cli, struct err *err);
enum cli_exit cmd_image_build(struct cli *cli, struct err *err);
enum cli_exit cmd_image_ls(struct cli *cli, struct err *err);
enum cli_exit cmd_image_rm(struct cli *cli, struct err *err);
enum cli_exit cmd_log(struct cli *cli, struct err *err);
enum cli_exit cmd_ls(struct cli *cli, struct err *err);
enum cli_exit cmd_policy_check(struct cli *cli, struct err *err);
enum cli_exit cmd_policy_explain(struct cli *cli, struct err *err);
enum cli_exit cmd_policy_ls(struct cli *cli, struct err *err);
enum cli_exit cmd_policy_reload(struct cli *cli, struct err *err);
enum cli_exit cmd_prune(struct cli *cli, struct err *err);
enum cli_exit cmd_rm(struct cli *cli, struct err *err);
enum cli_exit cmd_run(struct cli *cli, struct err *err);
enum cli_exit cmd_set(struct cli *cli, struct err *err);
enum cli_exit cmd_shell(struct cli *cli, struct err *err);
enum cli_exit cmd_status(struct cli *cli, struct err *err);
enum cli_exit cmd_stop(struct cli *cli, struct err *err);
enum cli_exit cmd_token_create(struct cli *cli, struct err *err);
enum cli_exit cmd_token_ls(struct cli *cli, struct err *err);
enum cli_exit cmd_token_rm(struct cli *cli, struct err *err);
enum cli_exit cmd_version(struct cli *cli, struct err *err);
