/* The handshake's keys; see websocket.h. Runs in api and in the command line. The digest that RFC
 * 6455 asks for is SHA-1 (RFC 3174): it shows that the peer speaks WebSocket and keeps no secret.
 * It is made here, of a text of fixed length, since neither program links libcrypto. */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

#include "http/websocket.h"

#define KEY_BYTES 16
#define KEY_LEN (WEBSOCKET_KEY_SIZE - 1)
#define BLOCK 64
#define DIGEST 20

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* With its padding and a NUL. */
static void base64(const unsigned char *data, size_t len, char *ret)
{
    for (size_t i = 0; i < len; i += 3) {
        uint32_t bits = (uint32_t)data[i] << 16;
        bits |= i + 1 < len ? (uint32_t)data[i + 1] << 8 : 0;
        bits |= i + 2 < len ? data[i + 2] : 0;
        for (size_t j = 0; j < 4; j++)
            ret[j] = digits[bits >> (18 - 6 * j) & 63];
        for (size_t j = len - i + 1; j < 4; j++)
            ret[j] = '=';
        ret += 4;
    }
    *ret = '\0';
}

static uint32_t rotate(uint32_t value, int by)
{
    return value << by | value >> (32 - by);
}

static void sha1_round(int i, const uint32_t v[5], uint32_t *ret_mix, uint32_t *ret_key)
{
    static const uint32_t keys[] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    *ret_key = keys[i / 20];
    if (i < 20)
        *ret_mix = (v[1] & v[2]) | (~v[1] & v[3]);
    else if (i >= 40 && i < 60)
        *ret_mix = (v[1] & v[2]) | (v[1] & v[3]) | (v[2] & v[3]);
    else
        *ret_mix = v[1] ^ v[2] ^ v[3];
}

static void sha1_block(uint32_t state[5], const unsigned char block[BLOCK])
{
    uint32_t words[80];
    uint32_t v[5];
    for (int i = 0; i < 16; i++)
        words[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
                   (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 80; i++)
        words[i] = rotate(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
    memcpy(v, state, sizeof(v));
    for (int i = 0; i < 80; i++) {
        uint32_t mix;
        uint32_t key;
        sha1_round(i, v, &mix, &key);
        uint32_t next = rotate(v[0], 5) + mix + v[4] + key + words[i];
        v[4] = v[3];
        v[3] = v[2];
        v[2] = rotate(v[1], 30);
        v[1] = v[0];
        v[0] = next;
    }
    for (int i = 0; i < 5; i++)
        state[i] += v[i];
}

bool websocket_key_is_valid(const char *key, size_t len)
{
    if (len != KEY_LEN || key[len - 1] != '=' || key[len - 2] != '=')
        return false;
    for (size_t i = 0; i < len - 2; i++)
        if (!key[i] || !strchr(digits, key[i]))
            return false;
    return true;
}

int websocket_make_key(char ret[WEBSOCKET_KEY_SIZE])
{
    unsigned char bytes[KEY_BYTES];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return -errno;
    base64(bytes, sizeof(bytes), ret);
    return 0;
}

void websocket_accept(const char *key, char ret[WEBSOCKET_ACCEPT_SIZE])
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    unsigned char text[2 * BLOCK] = {0};
    unsigned char digest[DIGEST];
    uint32_t state[] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    size_t len = KEY_LEN + sizeof(guid) - 1;
    memcpy(text, key, KEY_LEN);
    memcpy(text + KEY_LEN, guid, sizeof(guid) - 1);
    text[len] = 0x80;
    text[sizeof(text) - 2] = (unsigned char)(8 * len >> 8); /* its bits, at the end */
    text[sizeof(text) - 1] = (unsigned char)(8 * len);
    sha1_block(state, text);
    sha1_block(state, text + BLOCK);
    for (int i = 0; i < DIGEST; i++)
        digest[i] = (unsigned char)(state[i / 4] >> (24 - 8 * (i % 4)));
    base64(digest, sizeof(digest), ret);
}
