/* Egress between a client and an upstream, all on loopback: the real connections, policy, CA and
 * upstreams; only the sandbox table is a stand-in. */
#pragma once

#include <openssl/ssl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* How many times slower than a usual one the machine is: PADDOCK_TEST_PATIENCE, or 1. Limits of
 * time are multiplied by it. */
int harness_patience(void);

/* Starts the upstream (one thread a connection) and egress (one thread). */
void harness_start(int idle_ms);

/* What the upstream does with a request; `head` is its raw head. Returns false to close. */
struct upstream_call {
    SSL *ssl;
    int fd;
    char head[32768];
    char path[512];
};
bool upstream_serve(struct upstream_call *call);
void upstream_send(struct upstream_call *call, const char *data, size_t len);
void upstream_say(struct upstream_call *call, const char *text);
/* Reads len bytes of the request's body (false: it ended before). */
bool upstream_read(struct upstream_call *call, char *ret, size_t len);
void upstream_cut(struct upstream_call *call); /* closes TCP without close_notify */

extern atomic_int upstream_requests; /* heads seen */
extern atomic_int upstream_broken;   /* connections that egress ended in mid request */

/* A client in the sandbox. */
struct client {
    int fd;
    SSL *ssl;
};
enum client_end { CLIENT_CLEAN, CLIENT_CUT };
bool client_open(struct client *client, const char *sni); /* false: no handshake */
void client_open_plain(struct client *client);
void client_close(struct client *client);
void client_send(struct client *client, const char *data, size_t len);
void client_say(struct client *client, const char *text);
/* Up to `len` bytes; 0: the end, told by *end. Fails the test after 10 s. */
size_t client_read(struct client *client, char *ret, size_t len, enum client_end *end);
/* Everything until the end, NUL-terminated. */
enum client_end client_read_all(struct client *client, char *ret, size_t size);
/* Until `text` is in what was read. */
void client_read_until(struct client *client, const char *text, char *ret, size_t size);

/* One request on one connection, its whole answer in ret. */
enum client_end ask(const char *sni, const char *request, char *ret, size_t size);
long harness_rss_kib(void);
