/* The CA: what --make-ca makes and refuses, and handshakes of real TLS clients against its context,
 * which verify the chain up to the root. */
#include <assert.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "egress/ca.h"
#include "egress/cert.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"

static int key_fd, crt_fd, java_fd;
static X509 *root;
static struct egress_ca *ca;

static void contents(int fd, struct buf *ret)
{
    assert(lseek(fd, 0, SEEK_SET) == 0 && fd_read_all(fd, ret) == 0);
}

static X509 *read_cert(const char *pem, size_t len)
{
    BIO *bio = BIO_new_mem_buf(pem, (int)len);
    X509 *cert = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    BIO_free(bio);
    assert(cert);
    return cert;
}

static void make(struct buf *ret)
{
    struct err err = {0};
    cleanup_fd int out = memfd_create("out", MFD_CLOEXEC);
    int result = egress_ca_make(key_fd, crt_fd, out, java_fd, &err);
    assert(result == 0);
    contents(out, ret);
}

static void test_the_root_is_made_once(void)
{
    cleanup_buf struct buf first = BUF_INIT(LIMIT_CA_PEM_BYTES);
    cleanup_buf struct buf second = BUF_INIT(LIMIT_CA_PEM_BYTES);
    cleanup_buf struct buf crt = BUF_INIT(LIMIT_CA_PEM_BYTES);
    cleanup_buf struct buf again = BUF_INIT(LIMIT_CA_PEM_BYTES);
    struct err err = {0};
    make(&first);
    contents(crt_fd, &crt);
    make(&second);
    contents(crt_fd, &again);
    assert(crt.len == again.len && memcmp(crt.data, again.data, crt.len) == 0);
    assert(strstr(second.data, crt.data));        /* the root ends the text */
    assert(strcmp(first.data, second.data) != 0); /* the intermediate is new */
    assert(!strstr(crt.data, "PRIVATE"));         /* sandboxes get this file */
    cleanup_buf struct buf key = BUF_INIT(LIMIT_CA_PEM_BYTES);
    contents(key_fd, &key);
    assert(key.len && !strstr(second.data, key.data)); /* the root's key stays there */
    root = read_cert(crt.data, crt.len);
    assert(X509_check_ca(root) == 1);
    assert(cert_end(root) - time(NULL) > 3640 * CERT_DAY_S);
    assert(egress_ca_open(second.data, second.len, &ca, &err) == 0);
    assert(egress_ca_end(ca) - time(NULL) <= CERT_INTERMEDIATE_DAYS * CERT_DAY_S);
}

/* As `keytool -importcert` writes it: in front of the certificate numbers and two names, behind it
 * a SHA-1 of password, phrase and all the rest. */
static void test_c5_java_is_given_the_root_in_its_own_form(void)
{
    static const char head[] = "\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1\0\0\0\2\0\7paddock";
    static const char phrase[] = "\0c\0h\0a\0n\0g\0e\0i\0t"
                                 "Mighty Aphrodite";
    enum { HEAD = sizeof(head) - 1, DATE = 8, KIND = 7, SHA = 20 };
    cleanup_buf struct buf first = BUF_INIT(LIMIT_CA_PEM_BYTES);
    cleanup_buf struct buf pem = BUF_INIT(LIMIT_CA_PEM_BYTES);
    cleanup_buf struct buf store = BUF_INIT(LIMIT_CA_PEM_BYTES);
    contents(java_fd, &first);
    make(&pem);
    contents(java_fd, &store);
    assert(first.len == store.len && memcmp(first.data, store.data, store.len) == 0);
    unsigned char *der = NULL;
    int len = i2d_X509(root, &der);
    assert(len > 0 && store.len == HEAD + DATE + KIND + 4 + (size_t)len + SHA);
    const char *at = store.data + HEAD + DATE;
    assert(memcmp(store.data, head, HEAD) == 0 && memcmp(at, "\0\5X.509", KIND) == 0);
    assert(memcmp(at + KIND + 4, der, (size_t)len) == 0);
    OPENSSL_free(der);
    cleanup_buf struct buf hashed = BUF_INIT(LIMIT_CA_PEM_BYTES);
    assert(buf_append(&hashed, phrase, sizeof(phrase) - 1) == 0);
    assert(buf_append(&hashed, store.data, store.len - SHA) == 0);
    unsigned char digest[SHA];
    assert(EVP_Digest(hashed.data, hashed.len, digest, NULL, EVP_sha1(), NULL));
    assert(memcmp(store.data + store.len - SHA, digest, SHA) == 0);
}

static int make_from(const char *key, const char *crt, struct err *err)
{
    cleanup_fd int other_key = memfd_create("key", MFD_CLOEXEC);
    cleanup_fd int other_crt = memfd_create("crt", MFD_CLOEXEC);
    cleanup_fd int out = memfd_create("out", MFD_CLOEXEC);
    assert(fd_write_all(other_key, key, strlen(key)) == 0);
    assert(fd_write_all(other_crt, crt, strlen(crt)) == 0);
    cleanup_fd int java = memfd_create("java", MFD_CLOEXEC);
    int result = egress_ca_make(other_key, other_crt, out, java, err);
    if (result < 0) {
        /* what was there is left as it was, and nothing given out */
        assert(lseek(out, 0, SEEK_END) == 0);
        assert(lseek(other_key, 0, SEEK_END) == (off_t)strlen(key));
        assert(lseek(other_crt, 0, SEEK_END) == (off_t)strlen(crt));
    }
    return result;
}

static void expired_root(struct buf *key_text, struct buf *crt_text)
{
    struct err err;
    EVP_PKEY *key = cert_new_key(&err);
    X509 *cert = NULL;
    char *data;
    struct cert_request request = {.kind = CERT_ROOT,
                                   .key = key,
                                   .name = "old",
                                   .now = time(NULL) - (CERT_ROOT_DAYS + 1) * CERT_DAY_S};
    assert(key && cert_sign(&request, &cert, &err) == 0);
    BIO *bio = BIO_new(BIO_s_mem());
    assert(PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL));
    long len = BIO_get_mem_data(bio, &data);
    assert(buf_append(key_text, data, (size_t)len) == 0 && BIO_reset(bio) == 1);
    assert(PEM_write_bio_X509(bio, cert));
    len = BIO_get_mem_data(bio, &data);
    assert(buf_append(crt_text, data, (size_t)len) == 0);
    BIO_free(bio);
    X509_free(cert);
    EVP_PKEY_free(key);
}

static void test_a_root_that_does_not_hold_is_refused(void)
{
    struct err err = {0};
    cleanup_buf struct buf key = BUF_INIT(LIMIT_CA_PEM_BYTES);
    cleanup_buf struct buf crt = BUF_INIT(LIMIT_CA_PEM_BYTES);
    cleanup_buf struct buf old_key = BUF_INIT(LIMIT_CA_PEM_BYTES);
    cleanup_buf struct buf old_crt = BUF_INIT(LIMIT_CA_PEM_BYTES);
    contents(key_fd, &key);
    contents(crt_fd, &crt);
    expired_root(&old_key, &old_crt);
    assert(make_from(key.data, crt.data, &err) == 0);
    assert(make_from(old_key.data, crt.data, &err) < 0 && strstr(err.message, "does not belong"));
    assert(make_from(old_key.data, old_crt.data, &err) < 0 && strstr(err.message, "expired"));
    assert(make_from("", crt.data, &err) < 0 && strstr(err.message, "ca.key is empty"));
    assert(make_from("rubbish", crt.data, &err) < 0 && strstr(err.message, "ca.key is not"));
    assert(make_from(key.data, "rubbish", &err) < 0 && strstr(err.message, "ca.crt is not"));
    assert(strstr(err.message, "remove both")); /* what to do */
    assert(make_from(key.data, "", &err) == 0); /* died between the two: made anew */
}

static void test_an_intermediate_of_another_root_is_refused(void)
{
    struct err err = {0};
    struct egress_ca *none = NULL;
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CA_PEM_BYTES);
    cleanup_buf struct buf key = BUF_INIT(LIMIT_CA_PEM_BYTES);
    cleanup_buf struct buf old_crt = BUF_INIT(LIMIT_CA_PEM_BYTES);
    make(&text);
    expired_root(&key, &old_crt);
    *(strstr(strstr(text.data, "END CERT"), "-----BEGIN")) = '\0';
    text.len = strlen(text.data);
    assert(egress_ca_open(text.data, text.len, &none, &err) < 0);
    assert(buf_append(&text, old_crt.data, old_crt.len) == 0);
    assert(egress_ca_open(text.data, text.len, &none, &err) < 0);
    assert(strstr(err.message, "not signed by the root") && !none);
    assert(egress_ca_open("", 0, &none, &err) < 0);
}

/* ------------------------------------------------------------------------------ handshakes */

struct client {
    const char *sni;    /* NULL: none */
    const char *verify; /* the name that the certificate must be for */
    const char *alpn;   /* length-prefixed; NULL: none */
    const char *groups; /* NULL: the library's */
    int version;        /* 0: any */
};

struct outcome {
    bool is_ok;
    int alert; /* that the client got, when not ok */
    char sni[300];
    char alpn[32];
    X509 *leaf;
    int chain_len;
};

static SSL *make_client(SSL_CTX *context, const struct client *client)
{
    assert(X509_STORE_add_cert(SSL_CTX_get_cert_store(context), root) == 1);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (client->version) {
        SSL_CTX_set_min_proto_version(context, client->version);
        SSL_CTX_set_max_proto_version(context, client->version);
    }
    SSL *ssl = SSL_new(context);
    if (client->sni)
        assert(SSL_set_tlsext_host_name(ssl, client->sni) == 1);
    if (client->verify)
        assert(SSL_set1_host(ssl, client->verify) == 1);
    if (client->groups)
        assert(SSL_set1_groups_list(ssl, client->groups) == 1);
    if (client->alpn)
        assert(SSL_set_alpn_protos(ssl, (const unsigned char *)client->alpn,
                                   (unsigned)strlen(client->alpn)) == 0);
    return ssl;
}

static void note_outcome(SSL *client, SSL *server, struct outcome *ret)
{
    const unsigned char *alpn;
    unsigned len;
    ret->is_ok = SSL_get_verify_result(client) == X509_V_OK;
    snprintf(ret->sni, sizeof(ret->sni), "%s", egress_ca_sni(server));
    SSL_get0_alpn_selected(client, &alpn, &len);
    if (len)
        memcpy(ret->alpn, alpn, len);
    ret->leaf = SSL_get1_peer_certificate(client);
    ret->chain_len = sk_X509_num(SSL_get_peer_cert_chain(client));
}

/* Both ends in this process, over a pair of memory BIOs. */
static void handshake(const struct client *wanted, struct outcome *ret)
{
    memset(ret, 0, sizeof(*ret));
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *client = make_client(context, wanted);
    SSL *server = SSL_new(egress_ca_server_context(ca));
    BIO *left, *right;
    assert(BIO_new_bio_pair(&left, 65536, &right, 65536) == 1);
    SSL_set_bio(client, left, left);
    SSL_set_bio(server, right, right);
    SSL_set_connect_state(client);
    SSL_set_accept_state(server);
    int done = 0;
    for (int i = 0; i < 20 && done != 2; i++)
        done = (SSL_do_handshake(client) == 1) + (SSL_do_handshake(server) == 1);
    if (done == 2)
        note_outcome(client, server, ret);
    for (unsigned long code; (code = ERR_get_error());)
        if (!ret->alert && ERR_GET_REASON(code) > SSL_AD_REASON_OFFSET)
            ret->alert = ERR_GET_REASON(code) - SSL_AD_REASON_OFFSET;
    SSL_free(client);
    SSL_free(server);
    SSL_CTX_free(context);
}

static void test_clients_verify_the_leaf(void)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    static const char *const offers[] = {"\x08http/1.1\x02h2", "\x06spdy/3\x08http/1.1"};
    static const char *const taken[] = {"h2", "http/1.1"};
    for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
        struct client client = {"GitHub.COM", "github.com", offers[i], NULL, versions[i]};
        struct outcome got;
        handshake(&client, &got);
        assert(got.is_ok && strcmp(got.sni, "github.com") == 0);
        assert(strcmp(got.alpn, taken[i]) == 0 && got.chain_len == 2);
        X509_free(got.leaf);
    }
    /* a client whose first key share is not ours: the callback runs twice */
    struct client retried = {"example.com", "example.com", NULL, "X448:P-521:P-384", 0};
    struct outcome got;
    handshake(&retried, &got);
    assert(got.is_ok && strcmp(got.sni, "example.com") == 0 && got.alpn[0] == '\0');
    X509_free(got.leaf);
    struct client tls11 = {"github.com", NULL, NULL, NULL, TLS1_1_VERSION};
    handshake(&tls11, &got);
    assert(!got.is_ok);
}

/* The subject, when there is room for one, is the host; the alternative name is it always. */
static void check_leaf(const char *host, bool has_subject)
{
    struct client client = {host, host, NULL, NULL, 0};
    struct outcome got;
    handshake(&client, &got);
    assert(got.is_ok && got.chain_len == 2 && !X509_check_ca(got.leaf));
    assert(X509_get_key_usage(got.leaf) == KU_DIGITAL_SIGNATURE);
    assert(X509_get_extended_key_usage(got.leaf) == XKU_SSL_SERVER);
    assert(X509_get0_subject_key_id(got.leaf) && X509_get0_authority_key_id(got.leaf));
    assert(X509_check_host(got.leaf, host, 0, 0, NULL) == 1);
    assert(X509_check_host(got.leaf, "example.com", 0, 0, NULL) == 0);
    assert(X509_NAME_entry_count(X509_get_subject_name(got.leaf)) == has_subject);
    int at = X509_get_ext_by_NID(got.leaf, NID_subject_alt_name, -1);
    assert(at >= 0 && X509_EXTENSION_get_critical(X509_get_ext(got.leaf, at)) == !has_subject);
    const ASN1_INTEGER *serial = X509_get0_serialNumber(got.leaf);
    assert(ASN1_STRING_type(serial) == V_ASN1_INTEGER); /* positive */
    assert(ASN1_STRING_length(serial) > 8 && ASN1_STRING_length(serial) <= 20);
    time_t before = time(NULL) - CERT_DAY_S / 2;
    assert(X509_cmp_time(X509_get0_notBefore(got.leaf), &before) < 0);
    assert(cert_end(got.leaf) > time(NULL) && cert_end(got.leaf) <= egress_ca_end(ca));
    X509_free(got.leaf);
}

static void test_c7_a_leaf_is_what_clients_want(void)
{
    char host[201];
    memset(host, 'a', 200);
    host[50] = host[100] = host[150] = '.';
    host[200] = '\0';
    check_leaf("api.example.com", true);
    check_leaf("xn--bcher-kva.example", true);
    check_leaf(host, false);
}

static void test_what_cannot_be_judged_is_refused(void)
{
    static const char *const bad[] = {NULL,
                                      "192.0.2.1",
                                      "2001:db8::1",
                                      "a_b.example",
                                      "a b",
                                      "github.com:444",
                                      "*.example",
                                      "..",
                                      "b\xc3\xbc"
                                      "cher.example"};
    struct outcome got;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct client client = {bad[i], NULL, NULL, NULL, 0};
        handshake(&client, &got);
        assert(!got.is_ok && got.alert == SSL_AD_UNRECOGNIZED_NAME);
    }
    struct client only_h2 = {"github.com", "github.com", "\x06spdy/3", NULL, 0};
    handshake(&only_h2, &got);
    assert(!got.is_ok && got.alert == SSL_AD_NO_APPLICATION_PROTOCOL);
}

static ASN1_INTEGER *serial_of(const char *host)
{
    struct client client = {host, host, NULL, NULL, 0};
    struct outcome got;
    handshake(&client, &got);
    assert(got.is_ok);
    ASN1_INTEGER *serial = ASN1_INTEGER_dup(X509_get0_serialNumber(got.leaf));
    X509_free(got.leaf);
    return serial;
}

static void test_leaves_are_cached_and_bounded(void)
{
    ASN1_INTEGER *first = serial_of("cached.example");
    ASN1_INTEGER *second = serial_of("Cached.Example");
    ASN1_INTEGER *other = serial_of("other.example");
    assert(ASN1_INTEGER_cmp(first, second) == 0 && ASN1_INTEGER_cmp(first, other) != 0);
    for (int i = 0; i < LIMIT_CA_LEAVES + 10; i++) {
        char host[32];
        snprintf(host, sizeof(host), "h%d.example", i);
        ASN1_INTEGER_free(serial_of(host));
        if (i == LIMIT_CA_LEAVES / 2) /* used: it stays */
            ASN1_INTEGER_free(serial_of("cached.example"));
    }
    assert(egress_ca_leaf_count(ca) == LIMIT_CA_LEAVES);
    ASN1_INTEGER *kept = serial_of("cached.example");
    ASN1_INTEGER *forgotten = serial_of("other.example");
    assert(ASN1_INTEGER_cmp(first, kept) == 0 && ASN1_INTEGER_cmp(other, forgotten) != 0);
    ASN1_INTEGER_free(first);
    ASN1_INTEGER_free(second);
    ASN1_INTEGER_free(other);
    ASN1_INTEGER_free(kept);
    ASN1_INTEGER_free(forgotten);
}

int main(void)
{
    key_fd = memfd_create("ca.key", MFD_CLOEXEC);
    crt_fd = memfd_create("ca.crt", MFD_CLOEXEC);
    java_fd = memfd_create("java", MFD_CLOEXEC);
    test_the_root_is_made_once();
    test_c5_java_is_given_the_root_in_its_own_form();
    test_a_root_that_does_not_hold_is_refused();
    test_an_intermediate_of_another_root_is_refused();
    test_clients_verify_the_leaf();
    test_c7_a_leaf_is_what_clients_want();
    test_what_cannot_be_judged_is_refused();
    test_leaves_are_cached_and_bounded();
    egress_ca_free(ca);
    X509_free(root);
    return 0;
}
