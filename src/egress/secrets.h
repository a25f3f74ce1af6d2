/* The secrets that one policy names, by name. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "util/err.h"
#include "util/secret.h"

struct egress_secret {
    char name[128];
    struct secret value; /* no data: it is not there */
    char reason[256];    /* why not, when the supervisor had more to say than that */
};

struct egress_secrets {
    struct egress_secret *items;
    size_t count;
};

/* Adds a name once. -EMSGSIZE: there are too many, or the name is too long. */
int egress_secrets_add(struct egress_secrets *secrets, const char *name);
struct egress_secret *egress_secrets_find(const struct egress_secrets *secrets, const char *name);
/* Reads a secret's file to its end; one newline at the end is not part of the secret. Nothing of it
 * comes into err. -ENODATA: it is empty. */
int egress_secrets_read(struct egress_secret *secret, int fd, struct err *err);
void egress_secrets_free(struct egress_secrets *secrets); /* wipes */
