/* See trust.h. Process: paddock-egress. SSL_CTX_set_default_verify_paths(3): the system's folder of
 * hashed certificates is looked into when a chain is judged, so that a CA that is added there
 * counts at once; the bundle of Debian's ca-certificates is read once. */
#include "egress/trust.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util/cleanup.h"

#define SYSTEM_BUNDLE "/etc/ssl/certs/ca-certificates.crt"

struct trust {
    size_t references;
    SSL_CTX *context;
    char *pem; /* NULL: the system's */
    size_t pem_len;
    bool has_cert;
    unsigned char cert[SHA256_DIGEST_LENGTH], key[SHA256_DIGEST_LENGTH]; /* what they were */
};

/* What is kept with an SSL. */
struct client {
    const struct trust *trust;
    trust_on_session on_session;
    void *ctx;
    char refusal[512];
};

static void on_ssl_free(void *parent, void *pointer, CRYPTO_EX_DATA *data, int index, long argl,
                        void *argp)
{
    (void)parent;
    (void)data;
    (void)index;
    (void)argl;
    (void)argp;
    free(pointer);
}

static int client_index(void)
{
    static int index = -1;
    if (index < 0)
        index = SSL_get_ex_new_index(0, NULL, NULL, NULL, on_ssl_free);
    return index;
}

static int on_new_session(SSL *ssl, SSL_SESSION *session)
{
    const struct client *client = SSL_get_ex_data(ssl, client_index());
    return client && client->on_session && client->on_session(client->ctx, session);
}

static int add_certificates(SSL_CTX *context, const char *pem, size_t pem_len, struct err *err)
{
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    BIO *bio = BIO_new_mem_buf(pem, (int)pem_len);
    if (!bio)
        return err_set(err, ENOMEM, "out of memory for the upstream's CA");
    int count = 0;
    X509 *cert;
    while ((cert = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
        count += X509_STORE_add_cert(store, cert) == 1;
        X509_free(cert);
    }
    unsigned long why = ERR_peek_last_error();
    bool is_broken = ERR_GET_REASON(why) != PEM_R_NO_START_LINE;
    ERR_clear_error();
    BIO_free(bio);
    if (count == 0 || is_broken)
        return err_set(err, EINVAL, "the rule's upstream_ca holds %s",
                       is_broken ? "a certificate that cannot be read" : "no certificate");
    return 0;
}

static void use_system(SSL_CTX *context)
{
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    SSL_CTX_set_default_verify_paths(context);
    X509_STORE_load_file(store, SYSTEM_BUNDLE);
    ERR_clear_error(); /* a system without either trusts nobody, and says so at each request */
}

/* ------------------------------------------------------------------------------ judging */

/* The names that a certificate is for, as many as there is room for. */
static void describe_names(X509 *cert, char *ret, size_t size)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    size_t len = 0;
    ret[0] = '\0';
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        int type = 0;
        const ASN1_STRING *name = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, i), &type);
        if (type != GEN_DNS)
            continue;
        int added = snprintf(ret + len, size - len, "%s%.*s", len ? ", " : "",
                             ASN1_STRING_length(name), (const char *)ASN1_STRING_get0_data(name));
        if (added < 0 || len + (size_t)added >= size) {
            ret[len] = '\0'; /* whole names only */
            break;
        }
        len += (size_t)added;
    }
    GENERAL_NAMES_free(names);
    if (len == 0)
        snprintf(ret, size, "no name");
}

static void describe_time(const ASN1_TIME *time, char *ret, size_t size)
{
    struct tm tm;
    if (!time || ASN1_TIME_to_tm(time, &tm) != 1 || strftime(ret, size, "%F %T UTC", &tm) == 0)
        snprintf(ret, size, "an unknown time");
}

static void describe_issuer(X509 *cert, char *ret, size_t size)
{
    ret[0] = '\0';
    X509_NAME_get_text_by_NID(X509_get_issuer_name(cert), NID_commonName, ret, (int)size);
}

static bool is_empty(const struct trust *trust)
{
    X509_STORE *store = SSL_CTX_get_cert_store(trust->context);
    return sk_X509_OBJECT_num(X509_STORE_get0_objects(store)) == 0;
}

/* What is wrong with the certificate, as its reader can act on it. */
static void describe_refusal(struct client *client, int code, X509 *cert)
{
    char text[200] = "";
    char *ret = client->refusal;
    const size_t size = sizeof(client->refusal);
    switch (code) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
        describe_names(cert, text, sizeof(text));
        snprintf(ret, size, "its certificate is not accepted: it is for another host (%s)", text);
        return;
    case X509_V_ERR_CERT_HAS_EXPIRED:
        describe_time(X509_get0_notAfter(cert), text, sizeof(text));
        snprintf(ret, size, "its certificate is not accepted: it expired on %s", text);
        return;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        describe_time(X509_get0_notBefore(cert), text, sizeof(text));
        snprintf(ret, size, "its certificate is not accepted: it is valid only from %s on", text);
        return;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
        describe_issuer(cert, text, sizeof(text));
        snprintf(ret, size, "its certificate is not accepted: it is signed by an unknown CA (%s)%s",
                 text,
                 !client->trust->pem && is_empty(client->trust)
                     ? "; this machine's own CAs could not be read (" SYSTEM_BUNDLE ")"
                     : "");
        return;
    default:
        snprintf(ret, size, "its certificate is not accepted: %s",
                 X509_verify_cert_error_string(code));
    }
}

/* SSL_CTX_set_verify(3). Only listens: what OpenSSL found stands. */
static int on_verify(int is_good, X509_STORE_CTX *context)
{
    const SSL *ssl = X509_STORE_CTX_get_ex_data(context, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct client *client = SSL_get_ex_data(ssl, client_index());
    X509 *cert = X509_STORE_CTX_get_current_cert(context);
    if (!is_good && client && cert && !client->refusal[0])
        describe_refusal(client, X509_STORE_CTX_get_error(context), cert);
    return is_good;
}

static void set_up(SSL_CTX *context)
{
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, on_verify);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(context, 1); /* a record's header and body by one read(2) */
    SSL_CTX_set_session_cache_mode(context,
                                   SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL_STORE);
    SSL_CTX_sess_set_new_cb(context, on_new_session);
}

/* No key is asked for a passphrase. */
static int no_passphrase(char *ret, int size, int is_writing, void *ctx)
{
    (void)ret;
    (void)size;
    (void)is_writing;
    (void)ctx;
    return 0;
}

static int use_chain(SSL_CTX *context, const struct trust_spec *spec, struct err *err)
{
    BIO *bio = BIO_new_mem_buf(spec->cert, (int)spec->cert_len);
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, no_passphrase, NULL) : NULL;
    bool is_used = cert && SSL_CTX_use_certificate(context, cert) == 1;
    X509_free(cert);
    while (is_used && (cert = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL))) {
        is_used = SSL_CTX_add1_chain_cert(context, cert) == 1;
        X509_free(cert);
    }
    BIO_free(bio);
    ERR_clear_error();
    return is_used ? 0 : err_set(err, EINVAL, "its upstream_cert holds no certificate");
}

static int use_key(SSL_CTX *context, const struct secret *secret, struct err *err)
{
    BIO *bio = BIO_new_mem_buf(secret->data, (int)secret->len);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL) : NULL;
    int result = 0;
    if (!key)
        result =
            err_set(err, EINVAL, "its upstream_key is no private key in PEM without a passphrase");
    else if (SSL_CTX_use_PrivateKey(context, key) != 1 || SSL_CTX_check_private_key(context) != 1)
        result = err_set(err, EINVAL, "its upstream_key is not the key of its upstream_cert");
    EVP_PKEY_free(key);
    BIO_free(bio);
    ERR_clear_error();
    return result;
}

static void digest(const char *data, size_t len, unsigned char ret[SHA256_DIGEST_LENGTH])
{
    SHA256((const unsigned char *)data, len, ret);
}

static int set_identity(struct trust *trust, const struct trust_spec *spec, struct err *err)
{
    trust->has_cert = true;
    digest(spec->cert, spec->cert_len, trust->cert);
    digest(spec->key->data, spec->key->len, trust->key);
    int result = use_chain(trust->context, spec, err);
    return result < 0 ? result : use_key(trust->context, spec->key, err);
}

static int set_authorities(struct trust *trust, const struct trust_spec *spec, struct err *err)
{
    if (!spec->ca) {
        use_system(trust->context);
        return 0;
    }
    trust->pem = malloc(spec->ca_len + 1);
    trust->pem_len = spec->ca_len;
    if (!trust->pem)
        return err_set(err, ENOMEM, "out of memory for the upstream's CA");
    memcpy(trust->pem, spec->ca, spec->ca_len);
    return add_certificates(trust->context, spec->ca, spec->ca_len, err);
}

int trust_open(const struct trust_spec *spec, struct trust **ret, struct err *err)
{
    struct trust *trust = calloc(1, sizeof(*trust));
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (!trust || !context) {
        free(trust);
        SSL_CTX_free(context);
        return err_set(err, ENOMEM, "out of memory for an upstream's CA");
    }
    trust->references = 1;
    trust->context = context;
    set_up(context);
    int result = set_authorities(trust, spec, err);
    if (result == 0 && spec->cert)
        result = set_identity(trust, spec, err);
    if (result < 0) {
        trust_unref(trust);
        return result;
    }
    *ret = trust;
    return 0;
}

struct trust *trust_ref(struct trust *trust)
{
    trust->references++;
    return trust;
}

void trust_unref(struct trust *trust)
{
    if (!trust || --trust->references > 0)
        return;
    SSL_CTX_free(trust->context);
    free(trust->pem);
    free(trust);
}

bool trust_is_of(const struct trust *trust, const struct trust_spec *spec)
{
    unsigned char cert[SHA256_DIGEST_LENGTH], key[SHA256_DIGEST_LENGTH];
    if ((spec->ca != NULL) != (trust->pem != NULL) || (spec->cert != NULL) != trust->has_cert)
        return false;
    if (spec->ca &&
        (trust->pem_len != spec->ca_len || memcmp(trust->pem, spec->ca, spec->ca_len) != 0))
        return false;
    if (!spec->cert)
        return true;
    digest(spec->cert, spec->cert_len, cert);
    digest(spec->key->data, spec->key->len, key);
    return memcmp(cert, trust->cert, sizeof(cert)) == 0 &&
           memcmp(key, trust->key, sizeof(key)) == 0;
}

static bool set_name(SSL *ssl, const char *host)
{
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set_tlsext_host_name(ssl, host) == 1 && SSL_set1_host(ssl, host) == 1;
}

SSL *trust_connect(struct trust *trust, int fd, const char *host, bool only_http1,
                   SSL_SESSION *session, trust_on_session on_session, void *ctx)
{
    static const unsigned char both[] = "\x02h2\x08http/1.1";
    const unsigned char *offer = only_http1 ? both + 3 : both;
    unsigned offer_len = (unsigned)sizeof(both) - 1 - (only_http1 ? 3 : 0);
    struct client *client = calloc(1, sizeof(*client));
    SSL *ssl = SSL_new(trust->context);
    if (!client || !ssl || SSL_set_ex_data(ssl, client_index(), client) != 1) {
        free(client);
        SSL_free(ssl);
        return NULL;
    }
    *client = (struct client){.trust = trust, .on_session = on_session, .ctx = ctx};
    if (!set_name(ssl, host) || SSL_set_alpn_protos(ssl, offer, offer_len) != 0 ||
        SSL_set_fd(ssl, fd) != 1) {
        SSL_free(ssl);
        return NULL;
    }
    if (session)
        SSL_set_session(ssl, session);
    SSL_set_connect_state(ssl);
    return ssl;
}

void trust_forget(SSL *ssl)
{
    struct client *client = SSL_get_ex_data(ssl, client_index());
    client->on_session = NULL;
}

const char *trust_refusal(const SSL *ssl)
{
    const struct client *client = SSL_get_ex_data(ssl, client_index());
    long result = SSL_get_verify_result(ssl);
    if (result == X509_V_OK)
        return "";
    return client->refusal[0] ? client->refusal : X509_verify_cert_error_string(result);
}
