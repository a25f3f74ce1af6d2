/*
 * X.509 certificates of the CA: what a root, an intermediate and a leaf hold. Shared by the
 * one-shot (ca_make.c) and the serving process (ca.c); everything is ECDSA P-256 with SHA-256.
 */
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>
#include <time.h>

#include "util/err.h"

#define CERT_DAY_S ((time_t)24 * 60 * 60)
#define CERT_ROOT_DAYS 3650
#define CERT_INTERMEDIATE_DAYS 30
#define CERT_LEAF_DAYS 7

enum cert_kind { CERT_ROOT, CERT_INTERMEDIATE, CERT_LEAF };

struct cert_request {
    enum cert_kind kind;
    EVP_PKEY *key;    /* the subject's */
    const char *name; /* common name; of a leaf: the canonical host, its only dNSName */
    X509 *issuer;     /* NULL: self-signed */
    EVP_PKEY *issuer_key;
    time_t now;
};

/* A fresh P-256 key; the caller frees. NULL with the reason in err. */
EVP_PKEY *cert_new_key(struct err *err);

/* Signs a certificate, backdated a day against clocks that differ, never valid beyond its issuer.
 * The caller frees *ret. */
int cert_sign(const struct cert_request *request, X509 **ret, struct err *err);

/* cert_sign in two: what does not hang on the name and the time (with OpenSSL 3.0 most of the work,
 * as the key is encoded and decoded), and the rest. The caller frees *ret of the first, and is left
 * with nothing of use in `cert` when the second fails. */
int cert_begin(const struct cert_request *request, X509 **ret, struct err *err);
int cert_finish(X509 *cert, const struct cert_request *request, struct err *err);

/* The end of the certificate's validity, Unix seconds; 0 when it cannot be read. */
time_t cert_end(const X509 *cert);

/* 0 when the key belongs to the certificate, which is a CA's and valid now. `what` names it. */
int cert_check_ca(X509 *cert, EVP_PKEY *key, const char *what, struct err *err);

/* err_set with the last reason of OpenSSL's queue, which is emptied. Returns -EIO. */
int cert_error(struct err *err, const char *what);

static inline void cert_free_key_at(EVP_PKEY **key)
{
    EVP_PKEY_free(*key);
}
static inline void cert_free_x509_at(X509 **cert)
{
    X509_free(*cert);
}
#define cleanup_key __attribute__((cleanup(cert_free_key_at)))
#define cleanup_x509 __attribute__((cleanup(cert_free_x509_at)))
