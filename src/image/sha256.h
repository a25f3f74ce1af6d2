/*
 * SHA-256 (FIPS 180-4) of a text, in hex. The supervisor links no libcrypto and needs a digest only
 * to see whether a recipe changed, so this one is plain and small; nothing secret goes through it.
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
