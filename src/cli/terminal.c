/* A program of a sandbox on this terminal, over a WebSocket. What the program prints goes to the
 * terminal as it is. Invariant: the terminal is as it was before on every way out but SIGKILL. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "cli/cli.h"
#include "http/websocket.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define PATH_BYTES ((size_t)24 * 1024)
/* Of what was typed, or pasted, and is not sent yet. */
#define FULL_BYTES ((size_t)256 * 1024)

static struct termios before; /* of the terminal */
static volatile sig_atomic_t is_resized;

struct session {
    int fd;
    struct websocket *websocket;
    int64_t code; /* -1: the exit has not come */
    bool is_input_over;
};

static void on_resize(int signal)
{
    (void)signal;
    is_resized = 1;
}

static int append_escaped(struct buf *path, const char *name, const char *value)
{
    int r = buf_appendf(path, "%s%s=", strchr(buf_text(path), '?') ? "&" : "?", name);
    for (; *value && r == 0; value++)
        r = buf_appendf(path, "%%%02X", (unsigned char)*value);
    return r;
}

static int make_path(const struct cli *cli, const struct cli_exec *exec, struct buf *ret)
{
    struct winsize size = {0};
    const char *term = getenv("TERM"), *entry;
    size_t at = 0;
    int r = buf_appendf(ret, "/sandboxes/%s/terminal", cli->args[0]);
    for (size_t i = 0; i < exec->count && r == 0; i++)
        r = append_escaped(ret, "command", exec->argv[i]);
    if (r == 0 && exec->cwd)
        r = append_escaped(ret, "cwd", exec->cwd);
    if (r == 0 && exec->is_root)
        r = append_escaped(ret, "user", "root");
    if (r == 0 && term && term[0])
        r = append_escaped(ret, "term", term);
    while (r == 0 && exec->env_of && (entry = cli_next_value(cli, OPTION_ENV, &at)))
        r = append_escaped(ret, "env", entry);
    if (r == 0 && ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col)
        r = buf_appendf(ret, "%srows=%u&cols=%u", strchr(buf_text(ret), '?') ? "&" : "?",
                        size.ws_row, size.ws_col);
    return r;
}

static void on_message(void *ctx, bool is_text, const char *data, size_t len)
{
    struct session *session = ctx;
    cleanup_json struct json *json = NULL;
    if (!is_text)
        fd_write_all(STDOUT_FILENO, data, len); /* one that is gone tells the program nothing */
    else if (json_parse(data, len, JSON_STRICT, &json, NULL) == 0 && json_get(json, "exit"))
        session->code = json_integer(json_get(json_get(json, "exit"), "exitCode"));
}

static void tell_size(struct session *session)
{
    struct winsize size;
    char text[64];
    is_resized = 0;
    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_row || !size.ws_col)
        return;
    int len = snprintf(text, sizeof(text), "{\"resize\":{\"rows\":%u,\"cols\":%u}}", size.ws_row,
                       size.ws_col);
    websocket_send_text(session->websocket, text, (size_t)len);
}

/* False: the connection is over. */
static bool take_answer(struct session *session)
{
    char piece[65536];
    ssize_t n = recv(session->fd, piece, sizeof(piece), MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    return n > 0 && websocket_feed(session->websocket, piece, (size_t)n) == 0 &&
           !websocket_is_over(session->websocket);
}

static bool give_out(const struct session *session)
{
    struct buf *out = websocket_out(session->websocket);
    if (out->len == 0)
        return true;
    ssize_t n = send(session->fd, out->data, out->len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0)
        buf_consume(out, (size_t)n);
    return n > 0 || errno == EAGAIN || errno == EINTR;
}

static void take_input(struct session *session)
{
    char piece[4096];
    ssize_t n = read(STDIN_FILENO, piece, sizeof(piece));
    if (n > 0)
        websocket_send_bytes(session->websocket, piece, (size_t)n);
    session->is_input_over = n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
}

static void pump(struct session *session, const sigset_t *waiting)
{
    bool goes_on = true;
    while (goes_on && !cli_is_interrupted() && !session->is_input_over) {
        size_t len = websocket_out(session->websocket)->len;
        struct pollfd fds[] = {{.fd = session->fd, .events = (short)(POLLIN | (len ? POLLOUT : 0))},
                               {.fd = len < FULL_BYTES ? STDIN_FILENO : -1, .events = POLLIN}};
        int n = ppoll(fds, ARRAY_LEN(fds), NULL, waiting);
        if (is_resized)
            tell_size(session);
        if (n > 0 && fds[1].revents)
            take_input(session);
        if (n > 0 && (fds[0].revents & (POLLIN | POLLHUP | POLLERR)))
            goes_on = take_answer(session);
        goes_on = give_out(session) && goes_on;
    }
}

/* Signals come while it waits, and then alone. `rest`: what came with the handshake's answer. */
static void run(struct session *session, const struct buf *rest)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct sigaction resize = {.sa_handler = on_resize};
    struct sigaction interrupt;
    struct termios raw = before;
    sigset_t blocked, waiting;
    cli_catch_interrupt();
    sigaction(SIGTERM, NULL, &interrupt);
    sigemptyset(&blocked);
    for (size_t i = 0; i < ARRAY_LEN(caught); i++) {
        sigaction(caught[i], &interrupt, NULL);
        sigaddset(&blocked, caught[i]);
    }
    sigaction(SIGWINCH, &resize, NULL);
    sigaddset(&blocked, SIGWINCH);
    sigprocmask(SIG_BLOCK, &blocked, &waiting);
    cfmakeraw(&raw);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    tell_size(session);
    if (websocket_feed(session->websocket, buf_text(rest), rest->len) == 0 &&
        !websocket_is_over(session->websocket))
        pump(session, &waiting);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    sigprocmask(SIG_SETMASK, &waiting, NULL);
}

enum cli_exit cli_terminal(const struct cli *cli, const struct cli_exec *exec, struct err *err)
{
    cleanup_buf struct buf path = BUF_INIT(PATH_BYTES);
    cleanup_buf struct buf rest = BUF_INIT(1 << 20);
    cleanup_fd int fd = -1;
    struct session session = {.code = -1};
    if (exec->timeout_ms || cli->values[OPTION_JSON])
        return cli_fail(err, CLI_USAGE, "a terminal takes neither --timeout nor --json");
    if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &before) < 0)
        return cli_fail(err, CLI_EXEC_FAILED, "standard input is no terminal: leave --tty away");
    if (make_path(cli, exec, &path) < 0)
        return cli_fail(err, CLI_EXEC_FAILED, "the arguments are too long");
    if (cli_upgrade(cli, buf_text(&path), &fd, &rest, err) != CLI_OK)
        return CLI_EXEC_FAILED;
    session.fd = fd;
    session.websocket = websocket_new(WEBSOCKET_CLIENT, on_message, &session);
    if (!session.websocket)
        return cli_fail(err, CLI_EXEC_FAILED, "out of memory");
    run(&session, &rest);
    websocket_free(session.websocket);
    if (cli_is_interrupted())
        return CLI_INTERRUPTED;
    if (session.code < 0 || session.code > 255)
        return cli_fail(err, CLI_EXEC_FAILED,
                        "the connection broke off: what became of the program is not known");
    return (enum cli_exit)session.code;
}
