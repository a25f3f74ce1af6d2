/* Certificates; see cert.h. Runs in paddock-egress, both as the one-shot and as the server. The
 * only foreign text here is a leaf's host, which policy_canonical_host made LDH labels. */
#include "egress/cert.h"

#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <string.h>

#include "util/cleanup.h"

#define SERIAL_BITS 159    /* at most 20 octets, positive (RFC 5280, 4.1.2.2) */
#define COMMON_NAME_MAX 64 /* ub-common-name */

struct cert_extension {
    int nid;
    const char *value;
};

/* AKI comes last: it copies the issuer's SKI, which a root has only by then. */
static const struct cert_extension cert_extensions[][5] = {
    [CERT_ROOT] = {{NID_basic_constraints, "critical,CA:TRUE"},
                   {NID_key_usage, "critical,keyCertSign,cRLSign"},
                   {NID_subject_key_identifier, "hash"}},
    [CERT_INTERMEDIATE] = {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                           {NID_key_usage, "critical,keyCertSign,cRLSign"},
                           {NID_subject_key_identifier, "hash"},
                           {NID_authority_key_identifier, "keyid:always"}},
    [CERT_LEAF] = {{NID_basic_constraints, "critical,CA:FALSE"},
                   {NID_key_usage, "critical,digitalSignature"},
                   {NID_ext_key_usage, "serverAuth"},
                   {NID_subject_key_identifier, "hash"},
                   {NID_authority_key_identifier, "keyid:always"}},
};

static const int cert_days[] = {
    [CERT_ROOT] = CERT_ROOT_DAYS,
    [CERT_INTERMEDIATE] = CERT_INTERMEDIATE_DAYS,
    [CERT_LEAF] = CERT_LEAF_DAYS,
};

int cert_error(struct err *err, const char *what)
{
    unsigned long code = ERR_peek_last_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return err_set(err, EIO, "%s: %s", what, reason ? reason : "OpenSSL gave no reason");
}

EVP_PKEY *cert_new_key(struct err *err)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    if (!key)
        cert_error(err, "cannot make a P-256 key");
    return key;
}

time_t cert_end(const X509 *cert)
{
    struct tm tm = {0};
    if (!ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm))
        return 0;
    return timegm(&tm);
}

int cert_check_ca(X509 *cert, EVP_PKEY *key, const char *what, struct err *err)
{
    if (X509_check_private_key(cert, key) != 1) {
        ERR_clear_error();
        return err_set(err, EINVAL, "the private key does not belong to the certificate of %s",
                       what);
    }
    if (X509_check_ca(cert) != 1)
        return err_set(err, EINVAL, "the certificate of %s is not a CA's", what);
    if (X509_cmp_current_time(X509_get0_notAfter(cert)) <= 0)
        return err_set(err, EINVAL, "the certificate of %s has expired", what);
    if (X509_cmp_current_time(X509_get0_notBefore(cert)) > 0)
        return err_set(err, EINVAL,
                       "the certificate of %s is not valid yet: is the clock of this host right?",
                       what);
    return 0;
}

static bool cert_set_serial(X509 *cert)
{
    BIGNUM *serial = BN_new();
    bool ok = serial && BN_rand(serial, SERIAL_BITS, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) &&
              BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(cert));
    BN_free(serial);
    return ok;
}

/* A name too long for a common name is left out: the subject stays empty and the alternative name
 * is critical (RFC 5280, 4.1.2.6). */
static bool cert_set_subject(X509 *cert, const struct cert_request *request)
{
    X509_NAME *name = X509_get_subject_name(cert);
    if (request->kind != CERT_LEAF &&
        !X509_NAME_add_entry_by_NID(name, NID_organizationName, MBSTRING_UTF8,
                                    (const unsigned char *)"Paddock", -1, -1, 0))
        return false;
    if (strlen(request->name) > COMMON_NAME_MAX)
        return true;
    return X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8,
                                      (const unsigned char *)request->name, -1, -1, 0);
}

static bool cert_set_times(X509 *cert, const struct cert_request *request)
{
    time_t end = request->now + cert_days[request->kind] * CERT_DAY_S;
    time_t issuer_end = request->issuer ? cert_end(request->issuer) : end;
    return ASN1_TIME_set(X509_getm_notBefore(cert), request->now - CERT_DAY_S) &&
           ASN1_TIME_set(X509_getm_notAfter(cert), issuer_end < end ? issuer_end : end);
}

static bool cert_add_host(X509 *cert, const char *host)
{
    GENERAL_NAMES *names = GENERAL_NAMES_new();
    GENERAL_NAME *name = GENERAL_NAME_new();
    ASN1_IA5STRING *text = ASN1_IA5STRING_new();
    bool ok = names && name && text && ASN1_STRING_set(text, host, -1);
    if (ok) {
        GENERAL_NAME_set0_value(name, GEN_DNS, TAKE_PTR(text));
        ok = sk_GENERAL_NAME_push(names, name) > 0;
        if (ok)
            name = NULL;
    }
    int critical = strlen(host) > COMMON_NAME_MAX;
    ok = ok && X509_add1_ext_i2d(cert, NID_subject_alt_name, names, critical, 0) == 1;
    ASN1_IA5STRING_free(text);
    GENERAL_NAME_free(name);
    GENERAL_NAMES_free(names);
    return ok;
}

static bool cert_add_extensions(X509 *cert, X509 *issuer, enum cert_kind kind)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    for (size_t i = 0; i < ARRAY_LEN(cert_extensions[kind]); i++) {
        const struct cert_extension *wanted = &cert_extensions[kind][i];
        if (!wanted->value)
            break;
        X509_EXTENSION *extension =
            X509V3_EXT_nconf_nid(NULL, &context, wanted->nid, wanted->value);
        bool ok = extension && X509_add_ext(cert, extension, -1);
        X509_EXTENSION_free(extension);
        if (!ok)
            return false;
    }
    return true;
}

int cert_begin(const struct cert_request *request, X509 **ret, struct err *err)
{
    cleanup_x509 X509 *cert = X509_new();
    if (!cert || !X509_set_version(cert, X509_VERSION_3) || !X509_set_pubkey(cert, request->key))
        return cert_error(err, "cannot make a certificate");
    if (!cert_add_extensions(cert, request->issuer ? request->issuer : cert, request->kind))
        return cert_error(err, "cannot add the extensions of a certificate");
    *ret = TAKE_PTR(cert);
    return 0;
}

int cert_finish(X509 *cert, const struct cert_request *request, struct err *err)
{
    X509 *issuer = request->issuer ? request->issuer : cert;
    if (!cert_set_serial(cert) || !cert_set_subject(cert, request) ||
        !X509_set_issuer_name(cert, X509_get_subject_name(issuer)) ||
        !cert_set_times(cert, request))
        return cert_error(err, "cannot make a certificate");
    if (request->kind == CERT_LEAF && !cert_add_host(cert, request->name))
        return cert_error(err, "cannot add the name of a certificate");
    if (!X509_sign(cert, request->issuer_key ? request->issuer_key : request->key, EVP_sha256()))
        return cert_error(err, "cannot sign a certificate");
    return 0;
}

int cert_sign(const struct cert_request *request, X509 **ret, struct err *err)
{
    cleanup_x509 X509 *cert = NULL;
    int result = cert_begin(request, &cert, err);
    if (result == 0)
        result = cert_finish(cert, request, err);
    if (result == 0)
        *ret = TAKE_PTR(cert);
    return result;
}
