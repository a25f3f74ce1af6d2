/* `paddock-egress --make-ca`; see ca.h. A process of its own, the only one that ever holds the
 * root's key; it is given four descriptors, opens nothing, and ends. The root is made when there
 * is none yet: an empty certificate file says so, since the key is written before the certificate.
 */
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "egress/ca.h"
#include "egress/ca_java.h"
#include "egress/cert.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"

struct ca_pair {
    EVP_PKEY *key;
    X509 *cert;
};

static void ca_pair_free(struct ca_pair *pair)
{
    EVP_PKEY_free(pair->key);
    X509_free(pair->cert);
}

static void ca_bio_free(BIO **bio)
{
    BIO_free(*bio);
}
#define cleanup_bio __attribute__((cleanup(ca_bio_free)))
#define cleanup_pair __attribute__((cleanup(ca_pair_free)))

/* Wiped before it is freed: it may hold a private key. */
static void ca_text_wipe(struct buf *text)
{
    if (text->data)
        explicit_bzero(text->data, text->capacity);
    buf_free(text);
}
#define cleanup_text __attribute__((cleanup(ca_text_wipe)))

static int ca_read_pem(int fd, const char *what, struct buf *ret, struct err *err)
{
    if (lseek(fd, 0, SEEK_SET) < 0)
        return err_errno(err, errno, "cannot read %s", what);
    int result = fd_read_all(fd, ret);
    return result < 0 ? err_errno(err, -result, "cannot read %s", what) : 0;
}

/* Replaces what the file holds, and waits until it is on disk. */
static int ca_write(int fd, const char *data, size_t len, const char *what, struct err *err)
{
    if (lseek(fd, 0, SEEK_SET) < 0 || ftruncate(fd, 0) < 0)
        return err_errno(err, errno, "cannot write %s", what);
    int result = fd_write_all(fd, data, len);
    if (result < 0)
        return err_errno(err, -result, "cannot write %s", what);
    return fsync(fd) < 0 ? err_errno(err, errno, "cannot write %s", what) : 0;
}

static int ca_write_pem(int fd, BIO *bio, const char *what, struct err *err)
{
    char *data = NULL;
    long len = BIO_get_mem_data(bio, &data);
    return len <= 0 ? cert_error(err, what) : ca_write(fd, data, (size_t)len, what, err);
}

/* No name of ours is used twice, so that two roots in one trust store are told apart. */
static int ca_name(const char *role, char *ret, size_t size, struct err *err)
{
    unsigned char tag[4];
    if (RAND_bytes(tag, sizeof(tag)) != 1)
        return cert_error(err, "cannot get random bytes");
    snprintf(ret, size, "Paddock %s %02x%02x%02x%02x", role, tag[0], tag[1], tag[2], tag[3]);
    return 0;
}

/* A key and its certificate, signed by `issuer` (NULL: by itself). */
static int ca_make_pair(enum cert_kind kind, const char *role, const struct ca_pair *issuer,
                        struct ca_pair *ret, struct err *err)
{
    char name[64];
    int result = ca_name(role, name, sizeof(name), err);
    cleanup_key EVP_PKEY *key = result < 0 ? NULL : cert_new_key(err);
    if (!key)
        return -EIO;
    struct cert_request request = {.kind = kind,
                                   .key = key,
                                   .name = name,
                                   .issuer = issuer ? issuer->cert : NULL,
                                   .issuer_key = issuer ? issuer->key : NULL,
                                   .now = time(NULL)};
    result = cert_sign(&request, &ret->cert, err);
    if (result == 0)
        ret->key = TAKE_PTR(key);
    return result;
}

static int ca_make_root(int key_fd, int crt_fd, struct ca_pair *ret, struct err *err)
{
    int result = ca_make_pair(CERT_ROOT, "root", NULL, ret, err);
    if (result < 0)
        return result;
    cleanup_bio BIO *key = BIO_new(BIO_s_secmem());
    cleanup_bio BIO *crt = BIO_new(BIO_s_mem());
    if (!key || !crt || !PEM_write_bio_PrivateKey(key, ret->key, NULL, NULL, 0, NULL, NULL) ||
        !PEM_write_bio_X509(crt, ret->cert))
        return cert_error(err, "cannot write the root as PEM");
    result = ca_write_pem(key_fd, key, "ca.key", err);
    return result < 0 ? result : ca_write_pem(crt_fd, crt, "ca.crt", err);
}

/* For a callback that must never ask on a terminal. */
static char no_password[] = "";

static int ca_parse_root(const struct buf *key, const struct buf *crt, struct ca_pair *ret,
                         struct err *err)
{
    cleanup_bio BIO *key_bio = BIO_new_mem_buf(buf_text(key), (int)key->len);
    cleanup_bio BIO *crt_bio = BIO_new_mem_buf(buf_text(crt), (int)crt->len);
    if (!key_bio || !crt_bio)
        return cert_error(err, "cannot read the root");
    ret->key = PEM_read_bio_PrivateKey(key_bio, NULL, NULL, no_password);
    if (!ret->key)
        return cert_error(err, "ca.key is not a private key in PEM");
    ret->cert = PEM_read_bio_X509(crt_bio, NULL, NULL, NULL);
    if (!ret->cert)
        return cert_error(err, "ca.crt is not a certificate in PEM");
    return cert_check_ca(ret->cert, ret->key, "the root (ca.crt)", err);
}

static int ca_read_root(int key_fd, int crt_fd, struct ca_pair *ret, struct err *err)
{
    cleanup_text struct buf key = BUF_INIT(LIMIT_CA_PEM_BYTES);
    cleanup_text struct buf crt = BUF_INIT(LIMIT_CA_PEM_BYTES);
    int result = ca_read_pem(key_fd, "ca.key", &key, err);
    if (result == 0)
        result = ca_read_pem(crt_fd, "ca.crt", &crt, err);
    if (result < 0)
        return result;
    if (!crt.len)
        return ca_make_root(key_fd, crt_fd, ret, err);
    if (!key.len)
        return err_set(err, EINVAL, "ca.key is empty but ca.crt is not");
    return ca_parse_root(&key, &crt, ret, err);
}

/* Key, certificate and root in one text: what egress_ca_open reads. */
static int ca_write_intermediate(int out_fd, const struct ca_pair *root, struct err *err)
{
    cleanup_pair struct ca_pair made = {0};
    int result = ca_make_pair(CERT_INTERMEDIATE, "intermediate", root, &made, err);
    if (result < 0)
        return result;
    cleanup_bio BIO *bio = BIO_new(BIO_s_secmem());
    if (!bio || !PEM_write_bio_PrivateKey(bio, made.key, NULL, NULL, 0, NULL, NULL) ||
        !PEM_write_bio_X509(bio, made.cert) || !PEM_write_bio_X509(bio, root->cert))
        return cert_error(err, "cannot write the intermediate as PEM");
    return ca_write_pem(out_fd, bio, "the intermediate", err);
}

/* One-shot only; blocks for the disk. */
int egress_ca_make(int key_fd, int crt_fd, int out_fd, int java_fd, struct err *err)
{
    cleanup_pair struct ca_pair root = {0};
    int result = ca_read_root(key_fd, crt_fd, &root, err);
    if (result < 0)
        return err_context(err, result,
                           "the CA cannot be used; restore ca.key and ca.crt in the state folder, "
                           "or remove both to have a new CA made");
    cleanup_buf struct buf java = BUF_INIT(LIMIT_CA_PEM_BYTES);
    result = ca_java_store(root.cert, &java, err);
    if (result == 0)
        result = ca_write(java_fd, java.data, java.len, "Java's trust store", err);
    return result < 0 ? result : ca_write_intermediate(out_fd, &root, err);
}

int egress_ca_dates(int crt_fd, int64_t *ret_begin, int64_t *ret_end, struct err *err)
{
    cleanup_text struct buf crt = BUF_INIT(LIMIT_CA_PEM_BYTES);
    int result = ca_read_pem(crt_fd, "ca.crt", &crt, err);
    if (result < 0)
        return result;
    cleanup_bio BIO *bio = BIO_new_mem_buf(buf_text(&crt), (int)crt.len);
    cleanup_x509 X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    struct tm begin = {0};
    if (!cert || !ASN1_TIME_to_tm(X509_get0_notBefore(cert), &begin))
        return cert_error(err, "ca.crt is not a certificate in PEM");
    *ret_begin = timegm(&begin);
    *ret_end = cert_end(cert);
    return 0;
}
