/*
 * The certificate authority. The root (ECDSA P-256, ten years) is made and used only by
 * `paddock-egress --make-ca`; the serving process has a short-lived intermediate and signs leaf
 * certificates with it, kept in an LRU cache by host name.
 */
#pragma once

#include <openssl/ssl.h>
#include <stddef.h>
#include <stdint.h>

#include "util/err.h"

struct egress_ca;

/* The one-shot: reads or makes the root in key_fd and crt_fd (PEM), writes to out_fd an
 * intermediate's private key, its certificate, and the root's certificate (PEM, in this order), and
 * to java_fd the root's certificate as a trust store of Java (the same bytes each time). */
int egress_ca_make(int key_fd, int crt_fd, int out_fd, int java_fd, struct err *err);

/* When the root's certificate in crt_fd (PEM) begins and ends, Unix seconds. -EIO: it is none. */
int egress_ca_dates(int crt_fd, int64_t *ret_begin, int64_t *ret_end, struct err *err);

/* From what egress_ca_make wrote. */
int egress_ca_open(const char *pem, size_t len, struct egress_ca **ret, struct err *err);
void egress_ca_free(struct egress_ca *ca);

/* The context for the sandbox's side: TLS 1.2 and 1.3, ALPN h2 and http/1.1, leaf chosen by SNI in
 * the handshake (canonical host; a bad name gets a fatal alert; no SNI too). The CA's; shared. */
SSL_CTX *egress_ca_server_context(struct egress_ca *ca);

/* Makes what the next leaf needs before its name is known. To be called where nobody waits: while
 * the client reads what the server said. A failure is met again, and told, at the next leaf. */
void egress_ca_prepare(struct egress_ca *ca);

/* After the handshake: the canonical SNI host, or NULL. */
const char *egress_ca_sni(const SSL *ssl);

/* When the intermediate ends, Unix seconds: before that the process must be started anew. */
int64_t egress_ca_end(const struct egress_ca *ca);

/* Leaves in the cache, at most LIMIT_CA_LEAVES. */
size_t egress_ca_leaf_count(const struct egress_ca *ca);
