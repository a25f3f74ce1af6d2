/* SHA-256; see sha256.h. Names of variables are those of FIPS 180-4, section 6.2. */
#include "util/sha256.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_BYTES 64

struct sha256 {
    uint32_t h[8];
    unsigned char block[BLOCK_BYTES];
    size_t used;
    uint64_t total;
};

static const uint32_t sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate_right(uint32_t value, unsigned bits)
{
    return value >> bits | value << (32 - bits);
}

static void sha256_schedule(const unsigned char *block, uint32_t w[64])
{
    for (size_t t = 0; t < 16; t++)
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 |
               (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    for (size_t t = 16; t < 64; t++) {
        uint32_t s0 = rotate_right(w[t - 15], 7) ^ rotate_right(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t s1 = rotate_right(w[t - 2], 17) ^ rotate_right(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
}

static void sha256_block(struct sha256 *sha)
{
    uint32_t w[64], v[8]; /* v: a to h */
    sha256_schedule(sha->block, w);
    memcpy(v, sha->h, sizeof(v));
    for (size_t t = 0; t < 64; t++) {
        uint32_t s1 = rotate_right(v[4], 6) ^ rotate_right(v[4], 11) ^ rotate_right(v[4], 25);
        uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t t1 = v[7] + s1 + choice + sha256_k[t] + w[t];
        uint32_t s0 = rotate_right(v[0], 2) ^ rotate_right(v[0], 13) ^ rotate_right(v[0], 22);
        uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        memmove(v + 1, v, 7 * sizeof(v[0]));
        v[4] += t1;
        v[0] = t1 + s0 + majority;
    }
    for (size_t i = 0; i < 8; i++)
        sha->h[i] += v[i];
    sha->used = 0;
}

static void sha256_update(struct sha256 *sha, const void *data, size_t len)
{
    const unsigned char *from = data;
    for (size_t i = 0; i < len; i++) {
        sha->block[sha->used++] = from[i];
        if (sha->used == BLOCK_BYTES)
            sha256_block(sha);
    }
    sha->total += len;
}

static void sha256_end(struct sha256 *sha)
{
    static const unsigned char one = 0x80, zero = 0;
    uint64_t bits = sha->total * 8;
    sha256_update(sha, &one, 1);
    while (sha->used != BLOCK_BYTES - 8)
        sha256_update(sha, &zero, 1);
    for (int shift = 56; shift >= 0; shift -= 8) {
        unsigned char byte = (unsigned char)(bits >> shift);
        sha256_update(sha, &byte, 1);
    }
}

void sha256_hex(const struct sha256_part *parts, size_t count, char ret[SHA256_HEX_SIZE])
{
    struct sha256 sha = {.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                               0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
    for (size_t i = 0; i < count; i++)
        sha256_update(&sha, parts[i].data, parts[i].len);
    sha256_end(&sha);
    for (size_t i = 0; i < 8; i++)
        snprintf(ret + 8 * i, 9, "%08x", sha.h[i]);
}
