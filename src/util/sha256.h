/*
 * SHA-256 (FIPS 180-4) of a text, in hex. Neither supervisor nor api links libcrypto: they need a
 * digest only to see whether a recipe changed and to know a token again, so this one is plain and
 * small. Its time depends on the length alone.
 */
#pragma once

#include <stddef.h>

#define SHA256_HEX_SIZE 65

struct sha256_part {
    const void *data;
    size_t len;
};

/* Hex digest of the parts, one after the other, with a NUL at its end. */
void sha256_hex(const struct sha256_part *parts, size_t count, char ret[SHA256_HEX_SIZE]);
