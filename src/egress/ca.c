/* The serving side of the CA; see ca.h. Runs in paddock-egress. Holds the intermediate and one key
 * for every leaf; leaves are signed in the handshake, for the canonical name the client asked for,
 * and kept in a cache that forgets the least recently used. */
#include "egress/ca.h"

#include <openssl/pem.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "egress/cert.h"
#include "policy/policy.h"
#include "util/cleanup.h"
#include "util/limits.h"

#define HTTPS_PORT 443

/* A power of two, so that a bucket is a mask of the hash. */
#define LEAF_BUCKETS 1024

struct leaf {
    char host[POLICY_HOST_MAX];
    X509 *cert;
    time_t renew_at; /* half of its life is over: it is signed anew */
    LIST_ENTRY(leaf) in_bucket;
    TAILQ_ENTRY(leaf) by_use;
};

LIST_HEAD(leaf_bucket, leaf);
TAILQ_HEAD(leaf_order, leaf);

struct egress_ca {
    SSL_CTX *context;
    EVP_PKEY *key;
    X509 *cert;
    EVP_PKEY *leaf_key;
    X509 *blank;            /* of cert_begin, for the next leaf; NULL: none is ready */
    STACK_OF(X509) * chain; /* the intermediate alone: clients have the root */
    struct leaf_bucket buckets[LEAF_BUCKETS];
    struct leaf_order order; /* most recently used first */
    size_t leaf_count;
};

/* Where an SSL keeps its canonical host. */
static int ca_host_index = -1;

static struct leaf_bucket *ca_bucket(struct egress_ca *ca, const char *host)
{
    uint32_t hash = 2166136261U; /* FNV-1a */
    for (const char *at = host; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619U;
    return &ca->buckets[(hash ^ (hash >> 16)) & (LEAF_BUCKETS - 1)];
}

static void leaf_remove(struct egress_ca *ca, struct leaf *leaf)
{
    LIST_REMOVE(leaf, in_bucket);
    TAILQ_REMOVE(&ca->order, leaf, by_use);
    ca->leaf_count--;
    X509_free(leaf->cert);
    free(leaf);
}

/* The cached leaf of the host, now the most recently used; NULL: none that is young enough. */
static struct leaf *leaf_find(struct egress_ca *ca, const char *host, time_t now)
{
    struct leaf *leaf;
    LIST_FOREACH(leaf, ca_bucket(ca, host), in_bucket)
    if (strcmp(leaf->host, host) == 0)
        break;
    if (!leaf)
        return NULL;
    if (now >= leaf->renew_at) {
        leaf_remove(ca, leaf);
        return NULL;
    }
    TAILQ_REMOVE(&ca->order, leaf, by_use);
    TAILQ_INSERT_HEAD(&ca->order, leaf, by_use);
    return leaf;
}

static struct cert_request leaf_request(const struct egress_ca *ca, const char *host, time_t now)
{
    return (struct cert_request){.kind = CERT_LEAF,
                                 .key = ca->leaf_key,
                                 .name = host,
                                 .issuer = ca->cert,
                                 .issuer_key = ca->key,
                                 .now = now};
}

void egress_ca_prepare(struct egress_ca *ca)
{
    struct cert_request request = leaf_request(ca, NULL, 0);
    if (!ca->blank)
        cert_begin(&request, &ca->blank, NULL);
}

static struct leaf *leaf_make(struct egress_ca *ca, const char *host, time_t now)
{
    egress_ca_prepare(ca);
    struct cert_request request = leaf_request(ca, host, now);
    cleanup_x509 X509 *cert = TAKE_PTR(ca->blank);
    struct leaf *leaf = calloc(1, sizeof(*leaf));
    if (!leaf || !cert || cert_finish(cert, &request, NULL) < 0) {
        free(leaf);
        return NULL;
    }
    leaf->cert = TAKE_PTR(cert);
    snprintf(leaf->host, sizeof(leaf->host), "%s", host);
    leaf->renew_at = now + (cert_end(leaf->cert) - now) / 2;
    if (ca->leaf_count >= LIMIT_CA_LEAVES)
        leaf_remove(ca, TAILQ_LAST(&ca->order, leaf_order));
    LIST_INSERT_HEAD(ca_bucket(ca, host), leaf, in_bucket);
    TAILQ_INSERT_HEAD(&ca->order, leaf, by_use);
    ca->leaf_count++;
    return leaf;
}

/* Puts the host's certificate into the handshake and remembers the host. May be called twice for
 * one handshake (HelloRetryRequest); the later call replaces all of the earlier. */
static bool ca_use_leaf(struct egress_ca *ca, SSL *ssl, const char *host)
{
    time_t now = time(NULL);
    struct leaf *leaf = leaf_find(ca, host, now);
    if (!leaf)
        leaf = leaf_make(ca, host, now);
    cleanup_free char *copy = strdup(host);
    if (!leaf || !copy || SSL_use_certificate(ssl, leaf->cert) != 1 ||
        SSL_use_PrivateKey(ssl, ca->leaf_key) != 1 || SSL_set1_chain(ssl, ca->chain) != 1)
        return false;
    free(SSL_get_ex_data(ssl, ca_host_index));
    return SSL_set_ex_data(ssl, ca_host_index, TAKE_PTR(copy)) == 1;
}

/* OpenSSL calls this with and without SNI. */
static int ca_on_server_name(SSL *ssl, int *alert, void *arg)
{
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    char host[POLICY_HOST_MAX];
    uint16_t port;
    *alert = SSL_AD_UNRECOGNIZED_NAME;
    if (!name || strchr(name, ':') ||
        policy_canonical_host(name, strlen(name), HTTPS_PORT, host, &port, NULL) < 0)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *alert = SSL_AD_INTERNAL_ERROR;
    return ca_use_leaf(arg, ssl, host) ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* `offered` is length-prefixed names, whose framing OpenSSL has checked. */
static bool ca_select(const char *name, const unsigned char **ret, unsigned char *ret_len,
                      const unsigned char *offered, unsigned int len)
{
    for (unsigned int at = 0; at < len && len - at > offered[at]; at += 1U + offered[at]) {
        if (offered[at] != strlen(name) || memcmp(offered + at + 1, name, offered[at]) != 0)
            continue;
        *ret = offered + at + 1;
        *ret_len = offered[at];
        return true;
    }
    return false;
}

static int ca_on_alpn(SSL *ssl, const unsigned char **ret, unsigned char *ret_len,
                      const unsigned char *offered, unsigned int len, void *arg)
{
    (void)ssl;
    (void)arg;
    if (ca_select("h2", ret, ret_len, offered, len) ||
        ca_select("http/1.1", ret, ret_len, offered, len))
        return SSL_TLSEXT_ERR_OK;
    return SSL_TLSEXT_ERR_ALERT_FATAL; /* no_application_protocol (RFC 7301) */
}

static void ca_free_host(void *parent, void *pointer, CRYPTO_EX_DATA *ad, int index, long argl,
                         void *argp)
{
    (void)parent, (void)ad, (void)index, (void)argl, (void)argp;
    free(pointer);
}

/* No session is kept and no ticket given: a handshake costs a fraction of a millisecond, and so
 * nothing of one sandbox is ever known to another. */
static int ca_make_context(struct egress_ca *ca, struct err *err)
{
    if (ca_host_index < 0)
        ca_host_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, ca_free_host);
    ca->context = SSL_CTX_new(TLS_server_method());
    if (ca_host_index < 0 || !ca->context ||
        SSL_CTX_set_min_proto_version(ca->context, TLS1_2_VERSION) != 1)
        return cert_error(err, "cannot make a TLS context");
    SSL_CTX_set_options(ca->context,
                        SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_num_tickets(ca->context, 0);
    SSL_CTX_set_read_ahead(ca->context, 1); /* a record's header and body by one read(2) */
    SSL_CTX_set_session_cache_mode(ca->context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(ca->context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_tlsext_servername_callback(ca->context, ca_on_server_name);
    SSL_CTX_set_tlsext_servername_arg(ca->context, ca);
    SSL_CTX_set_alpn_select_cb(ca->context, ca_on_alpn, NULL);
    return 0;
}

/* For a callback that must never ask on a terminal. */
static char no_password[] = "";

static int ca_parse(struct egress_ca *ca, BIO *bio, struct err *err)
{
    ca->key = PEM_read_bio_PrivateKey(bio, NULL, NULL, no_password);
    ca->cert = ca->key ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    cleanup_x509 X509 *root = ca->cert ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    if (!root)
        return cert_error(err, "the intermediate is not a key and two certificates in PEM");
    int result = cert_check_ca(ca->cert, ca->key, "the intermediate", err);
    if (result < 0)
        return result;
    if (X509_verify(ca->cert, X509_get0_pubkey(root)) != 1)
        return cert_error(err, "the intermediate is not signed by the root");
    ca->leaf_key = cert_new_key(err);
    ca->chain = sk_X509_new_null();
    if (!ca->leaf_key || !ca->chain || !X509_add_cert(ca->chain, ca->cert, X509_ADD_FLAG_UP_REF))
        return err_errno(err, ENOMEM, "cannot open the CA");
    return 0;
}

/* Serving process only. The caller frees *ret with egress_ca_free and wipes the PEM. */
int egress_ca_open(const char *pem, size_t len, struct egress_ca **ret, struct err *err)
{
    if (len > LIMIT_CA_PEM_BYTES)
        return err_set(err, EMSGSIZE, "the intermediate is too long");
    struct egress_ca *ca = calloc(1, sizeof(*ca));
    if (!ca)
        return err_errno(err, ENOMEM, "cannot open the CA");
    TAILQ_INIT(&ca->order);
    BIO *bio = BIO_new_mem_buf(pem, (int)len);
    int result = bio ? ca_parse(ca, bio, err) : cert_error(err, "cannot open the CA");
    if (result == 0)
        result = ca_make_context(ca, err);
    BIO_free(bio);
    if (result < 0) {
        egress_ca_free(ca);
        return result;
    }
    *ret = ca;
    return 0;
}

void egress_ca_free(struct egress_ca *ca)
{
    if (!ca)
        return;
    while (!TAILQ_EMPTY(&ca->order))
        leaf_remove(ca, TAILQ_FIRST(&ca->order));
    SSL_CTX_free(ca->context);
    sk_X509_pop_free(ca->chain, X509_free);
    EVP_PKEY_free(ca->leaf_key);
    X509_free(ca->blank);
    X509_free(ca->cert);
    EVP_PKEY_free(ca->key);
    free(ca);
}

SSL_CTX *egress_ca_server_context(struct egress_ca *ca)
{
    return ca->context;
}

const char *egress_ca_sni(const SSL *ssl)
{
    return ca_host_index < 0 ? NULL : SSL_get_ex_data(ssl, ca_host_index);
}

int64_t egress_ca_end(const struct egress_ca *ca)
{
    return cert_end(ca->cert);
}

size_t egress_ca_leaf_count(const struct egress_ca *ca)
{
    return ca->leaf_count;
}
