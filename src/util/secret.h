/*
 * A secret: bytes that must never be printed, logged or put in an error. There is on purpose no
 * function that formats one. The memory is wiped with explicit_bzero(3) when freed.
 */
#pragma once

#include <stddef.h>

struct secret {
    char *data; /* followed by a NUL that is not counted */
    size_t len;
};

/* Copies the bytes. Returns 0 or -ENOMEM. */
int secret_set(struct secret *secret, const void *data, size_t len);
/* Appends the bytes; what was there is wiped where it lay. 0 or -ENOMEM. */
int secret_append(struct secret *secret, const void *data, size_t len);
void secret_free(struct secret *secret);
