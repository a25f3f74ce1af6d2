/*
 * The server of the egress bench for long transfers and events: HTTP/1.1 over TLS 1.3, a thread a
 * connection, no more than its clients ask for.
 *
 *   bench_origin PORT LEAF          listens on 127.0.0.1; LEAF: PEM of certificate and key
 *   GET /bytes/N                    N bytes
 *   GET /events/COUNT/MICROSECONDS  so many server-sent events "data: CLOCK_MONOTONIC in ns", that
 * far apart PUT /...                        reads the body (Content-Length), then tells its length
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PART_BYTES (128 * 1024)

struct client {
    SSL *ssl;
    char *part; /* PART_BYTES */
};

static void die(const char *what) __attribute__((noreturn));
static void die(const char *what)
{
    fprintf(stderr, "bench_origin: %s\n", what);
    exit(1);
}

static int send_all(struct client *client, const char *data, size_t len)
{
    size_t written;
    return SSL_write_ex(client->ssl, data, len, &written) == 1 ? 0 : -1;
}

/* A request's head; what came behind it is its body's beginning. -1: the client is gone. */
static int read_head(struct client *client, char head[8192], size_t *ret_behind)
{
    size_t len = 0;
    while (len < 8191) {
        size_t n;
        if (SSL_read_ex(client->ssl, head + len, 8191 - len, &n) != 1)
            return -1;
        len += n;
        head[len] = '\0';
        char *end = strstr(head, "\r\n\r\n");
        if (end) {
            *ret_behind = len - (size_t)(end + 4 - head);
            return 0;
        }
    }
    return -1;
}

static int send_bytes(struct client *client, long long count)
{
    char head[128];
    int len =
        snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\ncontent-length: %lld\r\n\r\n", count);
    int result = send_all(client, head, (size_t)len);
    while (!result && count > 0) {
        size_t part = count < PART_BYTES ? (size_t)count : PART_BYTES;
        result = send_all(client, client->part, part);
        count -= (long long)part;
    }
    return result;
}

static int send_events(struct client *client, const char *what)
{
    static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                               "transfer-encoding: chunked\r\n\r\n";
    char *end;
    long count = strtol(what, &end, 10);
    long apart_us = *end == '/' ? strtol(end + 1, NULL, 10) : 1000;
    struct timespec at;
    int result = send_all(client, head, sizeof(head) - 1);
    clock_gettime(CLOCK_MONOTONIC, &at);
    for (long i = 0; i < count && !result; i++) {
        char event[64];
        char chunk[96];
        struct timespec now;
        at.tv_nsec += apart_us * 1000;
        at.tv_sec += at.tv_nsec / 1000000000;
        at.tv_nsec %= 1000000000;
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL))
            continue;
        clock_gettime(CLOCK_MONOTONIC, &now);
        int len = snprintf(event, sizeof(event), "data: %lld\n\n",
                           (long long)now.tv_sec * 1000000000 + now.tv_nsec);
        len = snprintf(chunk, sizeof(chunk), "%x\r\n%s\r\n", (unsigned)len, event);
        result = send_all(client, chunk, (size_t)len);
    }
    return result ? result : send_all(client, "0\r\n\r\n", 5);
}

static int take_body(struct client *client, const char *head, size_t behind)
{
    const char *field = strcasestr(head, "\r\ncontent-length:");
    long long length = field ? strtoll(field + 17, NULL, 10) : 0;
    long long left = length - (long long)behind;
    while (left > 0) {
        size_t n;
        size_t most = left < PART_BYTES ? (size_t)left : PART_BYTES;
        if (SSL_read_ex(client->ssl, client->part, most, &n) != 1)
            return -1;
        left -= (long long)n;
    }
    char answer[160];
    char text[32];
    int len = snprintf(text, sizeof(text), "%lld\n", length);
    len = snprintf(answer, sizeof(answer), "HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s", len,
                   text);
    return send_all(client, answer, (size_t)len);
}

static int answer_one(struct client *client)
{
    char head[8192];
    size_t behind;
    if (read_head(client, head, &behind))
        return -1;
    if (strncmp(head, "GET /bytes/", 11) == 0)
        return send_bytes(client, strtoll(head + 11, NULL, 10));
    if (strncmp(head, "GET /events/", 12) == 0)
        return send_events(client, head + 12);
    if (strncmp(head, "PUT /", 5) == 0)
        return take_body(client, head, behind);
    return -1;
}

static void *serve(void *ctx)
{
    struct client client = {.ssl = ctx, .part = calloc(1, PART_BYTES)};
    if (client.part && SSL_accept(client.ssl) == 1)
        while (!answer_one(&client))
            continue;
    int fd = SSL_get_fd(client.ssl);
    SSL_shutdown(client.ssl);
    SSL_free(client.ssl);
    close(fd);
    free(client.part);
    return NULL;
}

static SSL_CTX *make_context(const char *leaf)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (!context || SSL_CTX_use_certificate_chain_file(context, leaf) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, leaf, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") != 1)
        die("the certificate cannot be used");
    return context;
}

static int listen_on(const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
        bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 128))
        die("cannot listen");
    return fd;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        die("usage: bench_origin PORT LEAF");
    signal(SIGPIPE, SIG_IGN);
    SSL_CTX *context = make_context(argv[2]);
    int listener = listen_on(argv[1]);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int one = 1;
        pthread_t thread;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            die("cannot accept");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        SSL *ssl = SSL_new(context);
        if (!ssl || SSL_set_fd(ssl, fd) != 1 || pthread_create(&thread, NULL, serve, ssl))
            die("no memory for a connection");
        pthread_detach(thread);
    }
}
