/* What surrounds the connections of a sandbox, without the process: a table of one sandbox, one
 * secret (TOKEN), a policy, a CA. */
#pragma once

#include <openssl/x509.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "egress/ca.h"
#include "egress/egress.h"

#define STAND_IN_SECRET "s3cr3t-token-of-the-test"

struct egress_sandbox {
    size_t buffer_bytes;
    size_t streams;
    struct egress_conn *conn; /* the last that came, while it is there */
};
extern struct egress_sandbox stand_in_sandbox;
extern atomic_bool stand_in_is_full; /* as if its connections held all they may */
extern struct policy *stand_in_policy;

/* `file` is struct policy_env's. A text that is none ends the program. */
void stand_in_load_policy(const char *text,
                          int (*file)(void *ctx, const char *name, struct buf *ret));
/* A new CA; its root is the caller's. */
struct egress_ca *stand_in_make_ca(X509 **ret_root);
