/* Whom an upstream's certificate must be signed by: the system's CAs, or those of a rule's
 * upstream_ca. Verification cannot be switched off (RFC 9110, section 4.3.4). And what is shown to
 * an upstream that asks for a certificate. */
#pragma once

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>

#include "util/err.h"
#include "util/secret.h"

struct trust;

/* All in PEM. */
struct trust_spec {
    const char *ca; /* NULL: the system's */
    size_t ca_len;
    const char *cert; /* our own, and its chain; NULL: none */
    size_t cert_len;
    const struct secret *key; /* of `cert` */
};

/* -EINVAL: no certificate in it, or a broken one, or a key that is not the certificate's. Nothing
 * of the spec is needed afterwards; of the key only OpenSSL has a copy. */
int trust_open(const struct trust_spec *spec, struct trust **ret, struct err *err);
struct trust *trust_ref(struct trust *trust);
void trust_unref(struct trust *trust);
bool trust_is_of(const struct trust *trust, const struct trust_spec *spec);

/* Called with each session ticket that comes; `ctx` is the one given to trust_connect. Takes over
 * the reference when it returns true. */
typedef bool (*trust_on_session)(void *ctx, SSL_SESSION *session);

/* A connection to be made on fd, for a server that calls itself `host`; `session` (or NULL) is
 * tried to be gone on with. HTTP/2 is offered unless only_http1. The caller frees. NULL: no memory.
 */
SSL *trust_connect(struct trust *trust, int fd, const char *host, bool only_http1,
                   SSL_SESSION *session, trust_on_session on_session, void *ctx);
/* No session is told any more. */
void trust_forget(SSL *ssl);
/* After a handshake that failed: the certificate was the cause, and in which way ("" otherwise).
 * Parts of the certificate are in it: foreign bytes. */
const char *trust_refusal(const SSL *ssl);
