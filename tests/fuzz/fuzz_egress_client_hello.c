/*
 * What a client says before there is TLS, to the CA's context: any bytes, or a real client with any
 * name and protocols. No certificate is made but for a canonical name, which is the one that was
 * asked for; a certificate is for that name alone, signed by the intermediate; a handshake ends
 * well exactly when the name is one and a protocol of ours was offered. The first byte chooses, the
 * second is where the bytes are cut.
 */
#include <assert.h>
#include <ctype.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>

#include "../unit/egress/stand_in.h"
#include "cuts.h"
#include "policy/policy.h"
#include "util/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static struct egress_ca *ca;
static SSL_CTX *client_context;

static void set_up(void)
{
    X509 *root;
    ca = stand_in_make_ca(&root);
    client_context = SSL_CTX_new(TLS_client_method());
    assert(client_context);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(client_context), root);
    SSL_CTX_set_verify(client_context, SSL_VERIFY_PEER, NULL);
    X509_free(root);
}

/* Read for itself, and not by policy_canonical_host: letters, digits and hyphens in labels, the
 * last of which is no number. */
static void expect_name(const char *host)
{
    size_t label = 0;
    bool has_letter = false;
    assert(strlen(host) <= 253);
    for (const char *c = host;; c++) {
        if (*c == '.' || !*c) {
            assert(label >= 1 && label <= 63 && c[-1] != '-');
            assert(*c || has_letter);
            if (!*c)
                return;
            label = 0;
            has_letter = false;
            continue;
        }
        assert(islower((unsigned char)*c) || isdigit((unsigned char)*c) || (*c == '-' && label));
        has_letter |= !isdigit((unsigned char)*c);
        label++;
    }
}

static void expect_leaf(SSL *ssl, X509 *cert, const char *host)
{
    int critical = -1;
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, &critical, NULL);
    assert(names && sk_GENERAL_NAME_num(names) == 1);
    int type = 0;
    const ASN1_STRING *name = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, 0), &type);
    assert(type == GEN_DNS && (size_t)ASN1_STRING_length(name) == strlen(host));
    assert(memcmp(ASN1_STRING_get0_data(name), host, strlen(host)) == 0);
    GENERAL_NAMES_free(names);
    assert(X509_check_ca(cert) == 0);
    STACK_OF(X509) *chain = NULL;
    assert(SSL_get0_chain_certs(ssl, &chain) == 1 && sk_X509_num(chain) == 1);
    assert(X509_verify(cert, X509_get0_pubkey(sk_X509_value(chain, 0))) == 1);
}

static void expect_sound(SSL *ssl, size_t leaves_before)
{
    const unsigned char *protocol = NULL;
    unsigned protocol_len = 0;
    X509 *cert = SSL_get_certificate(ssl);
    const char *host = egress_ca_sni(ssl);
    size_t leaves = egress_ca_leaf_count(ca);
    assert(leaves <= LIMIT_CA_LEAVES && !cert == !host && (host || leaves == leaves_before));
    SSL_get0_alpn_selected(ssl, &protocol, &protocol_len);
    assert(protocol_len == 0 || (protocol_len == 2 && memcmp(protocol, "h2", 2) == 0) ||
           (protocol_len == 8 && memcmp(protocol, "http/1.1", 8) == 0));
    assert(!SSL_session_reused(ssl));
    if (!host)
        return;
    expect_name(host);
    expect_leaf(ssl, cert, host);
    const char *asked = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    size_t len = strlen(host);
    assert(asked && strncasecmp(asked, host, len) == 0);
    assert(!asked[len] || strcmp(asked + len, ".") == 0);
}

/* The server's side, its bytes in memory. */
static SSL *serve(void)
{
    SSL *ssl = SSL_new(egress_ca_server_context(ca));
    assert(ssl);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_accept_state(ssl);
    return ssl;
}

/* True: more bytes may help. */
static bool step(SSL *ssl)
{
    ERR_clear_error();
    int result = SSL_do_handshake(ssl);
    return result != 1 && SSL_get_error(ssl, result) == SSL_ERROR_WANT_READ;
}

static void try_bytes(const uint8_t *data, size_t len, unsigned cuts)
{
    SSL *ssl = serve();
    size_t leaves = egress_ca_leaf_count(ca);
    bool goes_on = true;
    for (size_t used = 0; used < len && goes_on;) {
        size_t piece = next_piece(&cuts, len - used);
        assert(BIO_write(SSL_get_rbio(ssl), data + used, (int)piece) == (int)piece);
        used += piece;
        goes_on = step(ssl);
        expect_sound(ssl, leaves);
    }
    assert(!SSL_is_init_finished(ssl)); /* who only talks has no key */
    SSL_free(ssl);
}

/* --- a real client --- */

/* True: something was there; all of it is with the other side now. */
static bool move(SSL *from, SSL *to)
{
    char data[4096];
    bool moves = false;
    for (int len; (len = BIO_read(SSL_get_wbio(from), data, sizeof(data))) > 0; moves = true)
        assert(BIO_write(SSL_get_rbio(to), data, len) == len);
    return moves;
}

static bool offers(const uint8_t *protocols, size_t len, const char *name)
{
    for (size_t at = 0; at < len; at += 1U + protocols[at])
        if (protocols[at] == strlen(name) && memcmp(protocols + at + 1, name, protocols[at]) == 0)
            return true;
    return false;
}

static void try_client(const char *name, const uint8_t *protocols, size_t len, bool is_12)
{
    char host[POLICY_HOST_MAX];
    uint16_t port;
    SSL *client = SSL_new(client_context);
    assert(client);
    SSL_set_bio(client, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(client);
    SSL_set_max_proto_version(client, is_12 ? TLS1_2_VERSION : TLS1_3_VERSION);
    bool has_name = *name && SSL_set_tlsext_host_name(client, name) == 1;
    bool has_protocols = len && SSL_set_alpn_protos(client, protocols, (unsigned)len) == 0;
    bool is_name = has_name && !strchr(name, ':') &&
                   policy_canonical_host(name, strlen(name), 443, host, &port, NULL) == 0;
    bool is_h2 = has_protocols && offers(protocols, len, "h2");
    bool is_spoken = !has_protocols || is_h2 || offers(protocols, len, "http/1.1");
    if (is_name)
        assert(SSL_set1_host(client, host) == 1);
    SSL *server = serve();
    size_t leaves = egress_ca_leaf_count(ca);
    do {
        step(client);
        move(client, server);
        step(server);
        expect_sound(server, leaves);
    } while (move(server, client));
    bool is_done = SSL_is_init_finished(server) && SSL_is_init_finished(client);
    assert(is_done == (is_name && is_spoken));
    const unsigned char *chosen = NULL;
    unsigned chosen_len = 0;
    SSL_get0_alpn_selected(client, &chosen, &chosen_len);
    if (is_done)
        assert(chosen_len == (is_h2 ? 2U : has_protocols ? 8U : 0U));
    SSL_free(client);
    SSL_free(server);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 4 || len > 32 * 1024)
        return 0;
    if (!ca)
        set_up();
    if (data[0] & 1) {
        try_bytes(data + 2, len - 2, data[1]);
        return 0;
    }
    char name[256];
    size_t name_len = data[1] < len - 2 ? data[1] : len - 2;
    memcpy(name, data + 2, name_len);
    name[name_len] = '\0';
    try_client(name, data + 2 + name_len, len - 2 - name_len, data[0] & 2);
    ERR_clear_error();
    return 0;
}
