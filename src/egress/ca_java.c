/* A trust store of Java; see ca_java.h. The format is that of sun.security.provider.JavaKeyStore:
 * big-endian numbers, one entry, and a SHA-1 of the password, a fixed phrase and all before. */
#include "egress/ca_java.h"

#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "egress/cert.h"
#include "util/limits.h"

#define JAVA_MAGIC 0xfeedfeedU
#define JAVA_VERSION 2
#define JAVA_TRUSTED_CERTIFICATE 2
#define JAVA_SALT                                                                                  \
    "c\0h\0a\0n\0g\0e\0i\0t"                                                                       \
    "Mighty Aphrodite" /* behind a NUL: UTF-16, big-endian */

static int java_number(struct buf *ret, uint64_t value, int bytes)
{
    char text[8];
    for (int i = 0; i < bytes; i++)
        text[i] = (char)(value >> 8 * (bytes - 1 - i));
    return buf_append(ret, text, (size_t)bytes);
}

static int java_text(struct buf *ret, const char *text)
{
    int result = java_number(ret, strlen(text), 2);
    return result < 0 ? result : buf_append_string(ret, text);
}

static int java_entry(struct buf *ret, int64_t made_ms, const unsigned char *der, int len)
{
    int result = java_number(ret, JAVA_MAGIC, 4);
    if (result == 0)
        result = java_number(ret, JAVA_VERSION, 4);
    if (result == 0)
        result = java_number(ret, 1, 4);
    if (result == 0)
        result = java_number(ret, JAVA_TRUSTED_CERTIFICATE, 4);
    if (result == 0)
        result = java_text(ret, "paddock");
    if (result == 0)
        result = java_number(ret, (uint64_t)made_ms, 8);
    if (result == 0)
        result = java_text(ret, "X.509");
    if (result == 0)
        result = java_number(ret, (uint64_t)len, 4);
    return result < 0 ? result : buf_append(ret, der, (size_t)len);
}

static int java_seal(struct buf *ret, struct err *err)
{
    static const char salt[] = "\0" JAVA_SALT;
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int len = 0;
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    bool is_done = hash && EVP_DigestInit_ex(hash, EVP_sha1(), NULL) &&
                   EVP_DigestUpdate(hash, salt, sizeof(salt) - 1) &&
                   EVP_DigestUpdate(hash, ret->data, ret->len) &&
                   EVP_DigestFinal_ex(hash, digest, &len);
    EVP_MD_CTX_free(hash);
    if (!is_done)
        return cert_error(err, "cannot seal Java's trust store");
    int result = buf_append(ret, digest, len);
    return result < 0 ? err_errno(err, -result, "cannot make Java's trust store") : 0;
}

int ca_java_store(X509 *cert, struct buf *ret, struct err *err)
{
    unsigned char *der = NULL;
    int len = i2d_X509(cert, &der);
    if (len <= 0)
        return cert_error(err, "cannot encode the root");
    int result = java_entry(ret, (int64_t)cert_end(cert) * 1000, der, len);
    OPENSSL_free(der);
    return result < 0 ? err_errno(err, -result, "cannot make Java's trust store")
                      : java_seal(ret, err);
}
