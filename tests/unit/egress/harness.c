/* See harness.h. */
#include "harness.h"
#include "stand_in.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "egress/audit.h"
#include "egress/ca.h"
#include "egress/cert.h"
#include "egress/egress.h"
#include "egress/turn.h"
#include "egress/upstream.h"
#include "util/cleanup.h"
#include "util/fd.h"

atomic_int upstream_requests;
atomic_int upstream_broken;

static SSL_CTX *upstream_context;
static SSL_CTX *client_context;
static char upstream_root[8192];
static int upstream_port;
static int tls_port;
static int plain_port;

static int file(void *ctx, const char *name, struct buf *ret)
{
    (void)ctx;
    return strcmp(name, "u.pem") == 0 ? buf_append_string(ret, upstream_root) : -ENOENT;
}

static void load_policy(void)
{
    char text[4096];
    snprintf(text, sizeof(text),
             "{ \"rules\": ["
             "{ \"name\": \"u\", \"host\": \"u.test\", \"path\": \"/ok\","
             "  \"upstream\": \"127.0.0.1:%d\", \"upstream_ca\": \"u.pem\","
             "  \"headers\": { \"remove\": [\"x-api-key\"],"
             "    \"set\": { \"authorization\": \"Bearer ${secret:TOKEN}\","
             "      \"x-plain\": \"application/vnd.plain+json\" } } },"
             "{ \"name\": \"get\", \"host\": \"get.test\", \"methods\": [\"GET\"],"
             "  \"upstream\": \"127.0.0.1:%d\", \"upstream_ca\": \"u.pem\" },"
             "{ \"name\": \"unset\", \"host\": \"unset.test\","
             "  \"headers\": { \"set\": { \"x\": \"${secret:UNSET}\" } } },"
             "{ \"name\": \"private\", \"host\": \"localhost\" },"
             "{ \"name\": \"untrusted\", \"host\": \"untrusted.test\","
             "  \"upstream\": \"127.0.0.1:%d\" } ] }",
             upstream_port, upstream_port, upstream_port);
    stand_in_load_policy(text, file);
}

/* --- sockets --- */

static int listen_on_loopback(int *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert(fd >= 0 && bind(fd, (struct sockaddr *)&address, len) == 0 && listen(fd, 600) == 0);
    assert(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

int harness_patience(void)
{
    const char *text = getenv("PADDOCK_TEST_PATIENCE");
    return text ? (int)strtol(text, NULL, 10) : 1;
}

static int connect_to(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)port)};
    struct timeval limit = {.tv_sec = 20 * harness_patience()};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    assert(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
    return fd;
}

/* --- the upstream --- */

void upstream_send(struct upstream_call *call, const char *data, size_t len)
{
    size_t written = 0;
    if (SSL_write_ex(call->ssl, data, len, &written) != 1)
        atomic_fetch_add(&upstream_broken, 1);
}

void upstream_say(struct upstream_call *call, const char *text)
{
    upstream_send(call, text, strlen(text));
}

bool upstream_read(struct upstream_call *call, char *ret, size_t len)
{
    for (size_t at = 0; at < len;) {
        int got = SSL_read(call->ssl, ret + at, (int)(len - at));
        if (got <= 0) {
            atomic_fetch_add(&upstream_broken, 1);
            return false;
        }
        at += (size_t)got;
    }
    return true;
}

void upstream_cut(struct upstream_call *call)
{
    shutdown(call->fd, SHUT_RDWR);
    SSL_set_quiet_shutdown(call->ssl, 1);
}

static bool read_head(struct upstream_call *call)
{
    size_t len = 0;
    while (len < sizeof(call->head) - 1) {
        if (SSL_read(call->ssl, call->head + len, 1) != 1)
            return false;
        call->head[++len] = '\0';
        if (len >= 4 && memcmp(call->head + len - 4, "\r\n\r\n", 4) == 0)
            return sscanf(call->head, "%*s %511s", call->path) == 1;
    }
    return false;
}

static void *serve_connection(void *arg)
{
    struct upstream_call *call = calloc(1, sizeof(*call));
    assert(call);
    call->fd = (int)(intptr_t)arg;
    call->ssl = SSL_new(upstream_context);
    SSL_set_fd(call->ssl, call->fd);
    if (SSL_accept(call->ssl) == 1) {
        while (read_head(call)) {
            atomic_fetch_add(&upstream_requests, 1);
            if (!upstream_serve(call))
                break;
        }
        SSL_shutdown(call->ssl);
    }
    SSL_free(call->ssl);
    close(call->fd);
    free(call);
    ERR_clear_error();
    return NULL;
}

static void *accept_upstream(void *arg)
{
    int fd = (int)(intptr_t)arg;
    for (;;) {
        int connection = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        pthread_t thread;
        if (connection >= 0 &&
            pthread_create(&thread, NULL, serve_connection, (void *)(intptr_t)connection) == 0)
            pthread_detach(thread);
    }
    return NULL;
}

/* A root of the upstream's own, and a leaf under it for each host of the policy's rules. */
static int choose_leaf(SSL *ssl, int *alert, void *ctx)
{
    (void)alert;
    const struct cert_request *root = ctx;
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    struct cert_request leaf = {.kind = CERT_LEAF,
                                .key = root->key,
                                .name = name ? name : "none.test",
                                .issuer = root->issuer,
                                .issuer_key = root->key,
                                .now = time(NULL)};
    X509 *cert = NULL;
    if (cert_sign(&leaf, &cert, NULL))
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    SSL_use_certificate(ssl, cert);
    SSL_use_PrivateKey(ssl, root->key);
    X509_free(cert);
    return SSL_TLSEXT_ERR_OK;
}

static void start_upstream(void)
{
    struct err err;
    static struct cert_request root;
    root = (struct cert_request){
        .kind = CERT_ROOT, .key = cert_new_key(&err), .name = "test root", .now = time(NULL)};
    X509 *cert = NULL;
    assert(root.key && cert_sign(&root, &cert, &err) == 0);
    root.issuer = cert;
    BIO *bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, cert);
    assert(BIO_read(bio, upstream_root, sizeof(upstream_root) - 1) > 0);
    BIO_free(bio);
    upstream_context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_tlsext_servername_callback(upstream_context, choose_leaf);
    SSL_CTX_set_tlsext_servername_arg(upstream_context, &root);
    int fd = listen_on_loopback(&upstream_port);
    pthread_t thread;
    assert(pthread_create(&thread, NULL, accept_upstream, (void *)(intptr_t)fd) == 0);
}

/* --- egress --- */

static struct egress egress;

static struct listener {
    uv_poll_t poll;
    int fd;
    bool is_tls;
} listeners[2];

static void on_listener(uv_poll_t *poll, int status, int events)
{
    struct listener *listener = poll->data;
    (void)events;
    assert(status == 0);
    int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        egress_conn_start(&egress, &stand_in_sandbox, fd, listener->is_tls ? 443 : 80,
                          listener->is_tls);
}

static struct egress_ca *make_ca(void)
{
    X509 *root;
    struct egress_ca *ca = stand_in_make_ca(&root);
    client_context = SSL_CTX_new(TLS_client_method());
    X509_STORE_add_cert(SSL_CTX_get_cert_store(client_context), root);
    SSL_CTX_set_verify(client_context, SSL_VERIFY_PEER, NULL);
    X509_free(root);
    return ca;
}

static void *run_egress(void *arg)
{
    uv_run(arg, UV_RUN_DEFAULT);
    return NULL;
}

void harness_start(int idle_ms)
{
    struct err err;
    signal(SIGPIPE, SIG_IGN);
    start_upstream();
    static uv_loop_t loop;
    uv_loop_init(&loop);
    egress.loop = &loop;
    egress.ca = make_ca();
    load_policy();
    egress.idle_ms = idle_ms;
    assert(egress_audit_open(open("/dev/null", O_WRONLY | O_APPEND | O_CLOEXEC), &egress.audit,
                             &err) == 0);
    static struct turn_queue turns;
    turn_queue_open(&turns, &loop);
    egress.turns = &turns;
    assert(egress_upstreams_open(&loop, &turns, "", &egress.upstreams, &err) == 0);
    for (int i = 0; i < 2; i++) {
        struct listener *listener = &listeners[i];
        listener->is_tls = i == 0;
        listener->fd = listen_on_loopback(i == 0 ? &tls_port : &plain_port);
        fd_set_nonblock(listener->fd, true);
        uv_poll_init(&loop, &listener->poll, listener->fd);
        listener->poll.data = listener;
        uv_poll_start(&listener->poll, UV_READABLE, on_listener);
    }
    pthread_t thread;
    assert(pthread_create(&thread, NULL, run_egress, &loop) == 0);
}

/* --- the client --- */

bool client_open(struct client *client, const char *sni)
{
    client->fd = connect_to(tls_port);
    client->ssl = SSL_new(client_context);
    SSL_set_fd(client->ssl, client->fd);
    if (sni) {
        SSL_set_tlsext_host_name(client->ssl, sni);
        SSL_set1_host(client->ssl, sni);
    }
    ERR_clear_error();
    if (SSL_connect(client->ssl) == 1)
        return true;
    client_close(client);
    return false;
}

void client_open_plain(struct client *client)
{
    client->fd = connect_to(plain_port);
    client->ssl = NULL;
}

void client_close(struct client *client)
{
    SSL_free(client->ssl);
    close(client->fd);
}

void client_send(struct client *client, const char *data, size_t len)
{
    size_t written = 0;
    if (!client->ssl)
        assert(send(client->fd, data, len, MSG_NOSIGNAL) == (ssize_t)len);
    else
        assert(SSL_write_ex(client->ssl, data, len, &written) == 1 && written == len);
}

void client_say(struct client *client, const char *text)
{
    client_send(client, text, strlen(text));
}

size_t client_read(struct client *client, char *ret, size_t len, enum client_end *end)
{
    ERR_clear_error();
    errno = 0;
    ssize_t got =
        client->ssl ? SSL_read(client->ssl, ret, (int)len) : recv(client->fd, ret, len, 0);
    if (got > 0)
        return (size_t)got;
    assert(errno != EAGAIN); /* nothing came for too long */
    if (client->ssl)
        *end = SSL_get_error(client->ssl, (int)got) == SSL_ERROR_ZERO_RETURN ? CLIENT_CLEAN
                                                                             : CLIENT_CUT;
    else
        *end = got == 0 ? CLIENT_CLEAN : CLIENT_CUT;
    return 0;
}

enum client_end client_read_all(struct client *client, char *ret, size_t size)
{
    enum client_end end = CLIENT_CLEAN;
    size_t len = 0;
    size_t got;
    while ((got = client_read(client, ret + len, size - 1 - len, &end))) {
        len += got;
        assert(len < size - 1);
    }
    ret[len] = '\0';
    return end;
}

void client_read_until(struct client *client, const char *text, char *ret, size_t size)
{
    enum client_end end;
    size_t len = 0;
    ret[0] = '\0';
    while (!strstr(ret, text)) {
        size_t got = client_read(client, ret + len, size - 1 - len, &end);
        if (got == 0) {
            fprintf(stderr, "ended without \"%s\": %s\n", text, ret);
            abort();
        }
        len += got;
        ret[len] = '\0';
    }
}

enum client_end ask(const char *sni, const char *request, char *ret, size_t size)
{
    struct client client;
    if (sni)
        assert(client_open(&client, sni));
    else
        client_open_plain(&client);
    client_say(&client, request);
    enum client_end end = client_read_all(&client, ret, size);
    client_close(&client);
    return end;
}

long harness_rss_kib(void)
{
#ifdef __SANITIZE_ADDRESS__
    return 0; /* ASan keeps what is freed */
#endif
    char line[256];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "re");
    assert(status);
    while (fgets(line, sizeof(line), status))
        sscanf(line, "VmRSS: %ld kB", &kib);
    fclose(status);
    return kib;
}
