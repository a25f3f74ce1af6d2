/* Requests to the daemon with libcurl, over its Unix socket or loopback TCP. No proxy, no redirect,
 * nothing but HTTP. */
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "util/places.h"

#define DEFAULT_SOCKET "/run/paddock/paddock.sock"
#define CONNECT_TIMEOUT_MS 10000L
#define CONTINUE_TIMEOUT_MS 30000L

struct target {
    char socket[256]; /* "" for TCP */
    char url[2048];   /* of the request */
};

struct transfer {
    CURL *curl;
    const struct cli_request *request;
    struct cli_reply *reply;
    bool is_too_long;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

void cli_catch_interrupt(void)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool cli_is_interrupted(void)
{
    return interrupted != 0;
}

void cli_reply_free(struct cli_reply *reply)
{
    buf_free(&reply->body);
}

static const char *get_variable(const char *name)
{
    return getenv(name);
}

/* There is such a file, and nobody else can have put it there. */
static bool is_ours(const char *path)
{
    char folder[PLACES_MAX];
    struct stat st;
    snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash)
        return false;
    *slash = '\0';
    return places_is_own_folder(folder) && stat(path, &st) == 0;
}

/* The socket of this user's own daemon, when there is one; else the machine's. */
static void default_socket(char *ret, size_t size)
{
    struct places places;
    snprintf(ret, size, "%s", DEFAULT_SOCKET);
    if (places_is_host_root())
        return;
    places_find(true, get_variable, &places);
    const char *const candidates[] = {places.socket, places.fallback};
    for (size_t i = 0; i < ARRAY_LEN(candidates); i++)
        if (strlen(candidates[i]) < size && is_ours(candidates[i])) {
            snprintf(ret, size, "%s", candidates[i]);
            return;
        }
}

static enum cli_exit find_target(const struct cli *cli, const char *path, struct target *ret,
                                 struct err *err)
{
    const char *url = cli->values[OPTION_URL];
    if (!url || !url[0])
        url = getenv("PADDOCK_URL");
    ret->socket[0] = '\0';
    if (!url || !url[0]) {
        default_socket(ret->socket, sizeof(ret->socket));
    } else if (strncmp(url, "unix:", 5) == 0 && url[5]) {
        if (strlen(url + 5) >= sizeof(ret->socket))
            return cli_fail(err, CLI_USAGE, "the socket's path is too long: %.80s...", url + 5);
        snprintf(ret->socket, sizeof(ret->socket), "%s", url + 5);
    } else if (strncmp(url, "http://", 7) == 0 && url[7]) {
        size_t len = strlen(url);
        int n = snprintf(ret->url, sizeof(ret->url), "%.*s%s",
                         (int)(url[len - 1] == '/' ? len - 1 : len), url, path);
        if (n < 0 || (size_t)n >= sizeof(ret->url))
            return cli_fail(err, CLI_USAGE, "the URL is too long");
        return CLI_OK;
    } else {
        return cli_fail(err, CLI_USAGE,
                        "\"%.200s\" is no place of the daemon: use unix:PATH or http://HOST:PORT",
                        url);
    }
    snprintf(ret->url, sizeof(ret->url), "http://paddock%s", path);
    return CLI_OK;
}

static size_t on_body(char *data, size_t size, size_t count, void *ctx)
{
    struct transfer *transfer = ctx;
    const struct cli_request *request = transfer->request;
    long status = 0;
    curl_easy_getinfo(transfer->curl, CURLINFO_RESPONSE_CODE, &status);
    size_t len = size * count;
    if (request->stream && status >= 200 && status < 300) {
        request->stream(request->ctx, data, len);
        return len;
    }
    if (buf_append(&transfer->reply->body, data, len) < 0) {
        transfer->is_too_long = true;
        return 0;
    }
    return len;
}

static size_t on_upload(char *data, size_t size, size_t count, void *ctx)
{
    const struct cli_request *request = ((struct transfer *)ctx)->request;
    ssize_t n = request->upload(request->ctx, data, size * count);
    return n < 0 ? CURL_READFUNC_ABORT : (size_t)n;
}

static int on_progress(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    const struct cli_request *request = ((struct transfer *)ctx)->request;
    if (request->on_time)
        request->on_time(request->ctx);
    return interrupted != 0 && !request->is_cleaning;
}

static struct curl_slist *make_headers(const struct cli_request *request, struct err *err)
{
    /* An archive waits until the daemon wants it: a refusal comes before gigabytes are sent. */
    struct curl_slist *headers =
        curl_slist_append(NULL, request->upload ? "Expect: 100-continue" : "Expect:");
    char line[4096];
    snprintf(line, sizeof(line), "Content-Type: %s",
             request->content_type ? request->content_type : "");
    headers = curl_slist_append(headers, line); /* without a value curl sends none */
    snprintf(line, sizeof(line), "Accept: %s", request->accept ? request->accept : "*/*");
    headers = curl_slist_append(headers, line);
    if (request->is_only_new)
        headers = curl_slist_append(headers, "If-None-Match: *");
    const char *token = getenv("PADDOCK_TOKEN");
    if (token && token[0]) {
        int len = snprintf(line, sizeof(line), "Authorization: Bearer %s", token);
        if (strpbrk(token, "\r\n") || len < 0 || (size_t)len >= sizeof(line)) {
            curl_slist_free_all(headers);
            cli_fail(err, CLI_USAGE, "PADDOCK_TOKEN is not a token");
            return NULL;
        }
        headers = curl_slist_append(headers, line);
        explicit_bzero(line, sizeof(line));
    }
    if (!headers)
        cli_fail(err, CLI_FAILED, "out of memory");
    return headers;
}

static void set_options(struct transfer *transfer, const struct target *target,
                        struct curl_slist *headers)
{
    CURL *curl = transfer->curl;
    const struct cli_request *request = transfer->request;
    curl_easy_setopt(curl, CURLOPT_URL, target->url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http");
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, request->timeout_ms);
    if (target->socket[0])
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, target->socket);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, transfer);
    bool is_post = strcmp(request->method, "POST") == 0;
    if (request->upload) {
        curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_upload);
        curl_easy_setopt(curl, CURLOPT_READDATA, transfer);
        curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->upload_bytes);
        curl_easy_setopt(curl, CURLOPT_EXPECT_100_TIMEOUT_MS, CONTINUE_TIMEOUT_MS);
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
    } else if (is_post || request->body) {
        curl_easy_setopt(curl, CURLOPT_POST, 1L);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_len);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body ? request->body : "");
    }
    if (!is_post)
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
}

/* Why there was no answer, and what to do. */
static enum cli_exit explain(const struct transfer *transfer, const struct target *target,
                             CURLcode code, struct err *err)
{
    long os_errno = 0;
    curl_easy_getinfo(transfer->curl, CURLINFO_OS_ERRNO, &os_errno);
    const char *where = target->socket[0] ? target->socket : target->url;
    bool is_root = places_is_host_root();
    if (interrupted)
        return CLI_INTERRUPTED;
    if (transfer->is_too_long)
        return cli_fail(err, CLI_FAILED, "the daemon's answer is longer than %d bytes",
                        LIMIT_CLI_REPLY_BYTES);
    if (code != CURLE_COULDNT_CONNECT)
        return cli_fail(err, CLI_UNREACHABLE, "the daemon at %.300s broke off: %s", where,
                        curl_easy_strerror(code));
    if (os_errno == EACCES || os_errno == EPERM)
        return cli_fail(err, CLI_UNREACHABLE,
                        "no permission to talk to the daemon at %.300s: run as its user, or have "
                        "the socket's mode or group changed%s",
                        where, is_root ? "" : ", or start one of your own with `paddockd`");
    return cli_fail(err, CLI_UNREACHABLE,
                    "no daemon at %.300s%s%s: start %s, or tell where it listens with --url or "
                    "PADDOCK_URL",
                    where, os_errno ? ": " : "", os_errno ? strerror((int)os_errno) : "",
                    is_root ? "it with `paddockd --config FILE`"
                            : "one of your own with `paddockd`, or the machine's as root");
}

/* A number, as the log has it behind "request=". */
static void read_request_id(CURL *curl, struct cli_reply *ret)
{
    struct curl_header *header = NULL;
    ret->request_id[0] = '\0';
    if (curl_easy_header(curl, "X-Request-Id", 0, CURLH_HEADER, -1, &header) == CURLHE_OK &&
        strspn(header->value, "0123456789") == strlen(header->value) &&
        strlen(header->value) < sizeof(ret->request_id))
        snprintf(ret->request_id, sizeof(ret->request_id), "%s", header->value);
}

enum cli_exit cli_call(const struct cli *cli, const struct cli_request *request,
                       struct cli_reply *ret, struct err *err)
{
    struct target target;
    ret->status = 0;
    ret->body = BUF_INIT(LIMIT_CLI_REPLY_BYTES);
    enum cli_exit status = find_target(cli, request->path, &target, err);
    if (status != CLI_OK)
        return status;
    struct curl_slist *headers = make_headers(request, err);
    if (!headers)
        return CLI_USAGE;
    struct transfer transfer = {.curl = curl_easy_init(), .request = request, .reply = ret};
    if (transfer.curl) {
        set_options(&transfer, &target, headers);
        CURLcode code = curl_easy_perform(transfer.curl);
        curl_easy_getinfo(transfer.curl, CURLINFO_RESPONSE_CODE, &ret->status);
        read_request_id(transfer.curl, ret);
        if (code != CURLE_OK)
            status = explain(&transfer, &target, code, err);
        curl_easy_cleanup(transfer.curl);
    } else {
        status = cli_fail(err, CLI_FAILED, "out of memory");
    }
    curl_slist_free_all(headers);
    return status;
}

enum cli_exit cli_refused(const struct cli *cli, const struct cli_reply *reply, struct err *err)
{
    const char *body = buf_text(&reply->body);
    const char *name = cli->verb->kind != CLI_KIND_TEXT && cli->arg_count ? cli->args[0] : NULL;
    if (reply->status == 401)
        return cli_fail(err, CLI_FAILED,
                        "the daemon wants a token it knows: set PADDOCK_TOKEN to one that "
                        "`paddock token create` printed");
    if (reply->status == 500)
        return cli_fail(err, CLI_FAILED,
                        "%s%sthe daemon could not do it; the reason is in its log, in the newest "
                        "line with request=%s",
                        name ? name : "", name ? ": " : "", reply->request_id);
    char near[256];
    /* 409 too: to the daemon a sandbox that is not there is one without a repository */
    bool is_unknown =
        reply->status == 404 || (reply->status == 409 && cli->verb->kind == CLI_KIND_SANDBOX);
    if (is_unknown && name && cli_suggest(cli, name, near, sizeof(near)))
        return cli_fail(err, CLI_FAILED, "%s", near);
    if (reply->body.len)
        return cli_fail(err, CLI_FAILED, "%s%s%.*s", name ? name : "", name ? ": " : "",
                        (int)(strlen(body) - (body[strlen(body) - 1] == '\n')), body);
    return cli_fail(err, CLI_FAILED, "the daemon answered %ld", reply->status);
}

enum cli_exit cli_act(const struct cli *cli, const char *method, const char *path, struct err *err)
{
    cleanup_reply struct cli_reply reply = {0};
    struct cli_request request = {.method = method, .path = path};
    enum cli_exit status = cli_ask(cli, &request, &reply, err);
    if (status == CLI_OK && cli->values[OPTION_JSON])
        cli_print_json(&reply.body);
    return status;
}

enum cli_exit cli_ask(const struct cli *cli, const struct cli_request *request,
                      struct cli_reply *ret, struct err *err)
{
    enum cli_exit status = cli_call(cli, request, ret, err);
    if (status == CLI_OK && (ret->status < 200 || ret->status > 299))
        status = cli_refused(cli, ret, err);
    return status;
}

enum cli_exit cli_connect(const struct cli *cli, const char *path, char *ret_host, size_t size,
                          int *ret_fd, struct err *err)
{
    struct target target;
    struct cli_request request = {.method = "GET"};
    struct cli_reply reply;
    enum cli_exit status = find_target(cli, path, &target, err);
    if (status != CLI_OK)
        return status;
    const char *host = target.url + strlen("http://");
    snprintf(ret_host, size, "%.*s", (int)strcspn(host, "/"), host);
    struct transfer transfer = {.curl = curl_easy_init(), .request = &request, .reply = &reply};
    if (!transfer.curl)
        return cli_fail(err, CLI_FAILED, "out of memory");
    set_options(&transfer, &target, NULL);
    curl_easy_setopt(transfer.curl, CURLOPT_CONNECT_ONLY, 1L);
    curl_socket_t sock = CURL_SOCKET_BAD;
    CURLcode code = curl_easy_perform(transfer.curl);
    if (code == CURLE_OK)
        code = curl_easy_getinfo(transfer.curl, CURLINFO_ACTIVESOCKET, &sock);
    if (code != CURLE_OK)
        status = explain(&transfer, &target, code, err);
    else if (fd_set_nonblock(sock, false) < 0 || (*ret_fd = fcntl(sock, F_DUPFD_CLOEXEC, 3)) < 0)
        status = cli_fail(err, CLI_FAILED, "cannot duplicate the connection: %s", strerror(errno));
    curl_easy_cleanup(transfer.curl);
    return status;
}
