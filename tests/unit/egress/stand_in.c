/* See stand_in.h. */
#include "stand_in.h"

#include <assert.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fd.h"
#include "util/secret.h"

struct egress_sandbox stand_in_sandbox;
atomic_bool stand_in_is_full;
struct policy *stand_in_policy;

struct egress_sandbox *egress_sandbox_ref(struct egress_sandbox *one)
{
    return one;
}
void egress_sandbox_unref(struct egress_sandbox *one)
{
    (void)one;
}
const char *egress_sandbox_name(const struct egress_sandbox *one)
{
    (void)one;
    return "agent-1";
}
const char *egress_sandbox_boot_id(const struct egress_sandbox *one)
{
    (void)one;
    return "00000000-0000-0000-0000-000000000000";
}
const char *egress_sandbox_repository(const struct egress_sandbox *one)
{
    (void)one;
    return "";
}
struct egress_meter *egress_sandbox_meter(struct egress_sandbox *one)
{
    static struct egress_meter meter;
    (void)one;
    return &meter;
}
void egress_sandbox_add_conn(struct egress_sandbox *one, struct egress_conn *conn)
{
    one->conn = conn;
}
void egress_sandbox_remove_conn(struct egress_sandbox *one, struct egress_conn *conn)
{
    one->conn = one->conn == conn ? NULL : one->conn;
}
void egress_sandbox_each_conn(struct egress_sandbox *one, void (*found)(struct egress_conn *))
{
    if (one->conn)
        found(one->conn);
}
void egress_sandbox_count_bytes(struct egress_sandbox *one, size_t before, size_t now)
{
    assert(one->buffer_bytes >= before);
    one->buffer_bytes += now - before;
}
size_t egress_sandbox_conn_count(const struct egress_sandbox *one)
{
    (void)one;
    return 1;
}

bool egress_sandbox_is_full(const struct egress_sandbox *one)
{
    (void)one;
    return atomic_load(&stand_in_is_full);
}
bool egress_sandbox_add_stream(struct egress_sandbox *one)
{
    one->streams++;
    return true;
}
void egress_sandbox_remove_stream(struct egress_sandbox *one)
{
    assert(one->streams--);
}

struct policy *egress_policy_of(const struct egress_sandbox *one)
{
    (void)one;
    return stand_in_policy;
}
void egress_policy_lack(const struct egress_sandbox *one, char *ret, size_t size)
{
    (void)one;
    snprintf(ret, size, "none");
}

const struct secret *egress_secret(void *egress, const char *name)
{
    (void)egress;
    static struct secret secret;
    if (!secret.data)
        assert(secret_set(&secret, STAND_IN_SECRET, strlen(STAND_IN_SECRET)) == 0);
    return strcmp(name, "TOKEN") == 0 ? &secret : NULL;
}

static const char *secret_lack(void *ctx, const char *name)
{
    return egress_secret(ctx, name) ? NULL : "";
}

static const char *variable(void *ctx, const char *name)
{
    (void)ctx;
    (void)name;
    return NULL;
}

void stand_in_load_policy(const char *text,
                          int (*file)(void *ctx, const char *name, struct buf *ret))
{
    struct policy_env env = {.variable = variable, .secret_lack = secret_lack, .file = file};
    struct err err;
    if (policy_parse("test.json", text, strlen(text), &env, &stand_in_policy, &err)) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
}

struct egress_ca *stand_in_make_ca(X509 **ret_root)
{
    struct err err;
    struct egress_ca *ca = NULL;
    cleanup_fd int key_fd = memfd_create("key", MFD_CLOEXEC);
    cleanup_fd int crt_fd = memfd_create("crt", MFD_CLOEXEC);
    cleanup_fd int out_fd = memfd_create("out", MFD_CLOEXEC);
    cleanup_fd int java_fd = memfd_create("java", MFD_CLOEXEC);
    assert(egress_ca_make(key_fd, crt_fd, out_fd, java_fd, &err) == 0);
    cleanup_buf struct buf pem = BUF_INIT(65536);
    assert(lseek(out_fd, 0, SEEK_SET) == 0 && fd_read_all(out_fd, &pem) == 0);
    assert(egress_ca_open(pem.data, pem.len, &ca, &err) == 0);
    cleanup_buf struct buf root = BUF_INIT(65536);
    assert(lseek(crt_fd, 0, SEEK_SET) == 0 && fd_read_all(crt_fd, &root) == 0);
    BIO *bio = BIO_new_mem_buf(root.data, (int)root.len);
    *ret_root = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    assert(*ret_root);
    BIO_free(bio);
    return ca;
}
