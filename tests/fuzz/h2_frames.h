/*
 * Frames of HTTP/2 (RFC 9113, section 4.1) from a fuzzer's bytes, so that most of what it tries is
 * framed: each as kind, flags, stream, length, payload, of a byte each but the last. A kind with
 * its top bit set is followed by how often it comes again; HEADERS then open the next stream each.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define H2_FRAME_HEAD 9

static inline size_t h2_frame(uint8_t *out, unsigned kind, unsigned flags, unsigned stream,
                              const uint8_t *payload, size_t len)
{
    const uint8_t head[H2_FRAME_HEAD] = {
        (uint8_t)(len >> 16),    (uint8_t)(len >> 8),    (uint8_t)len,
        (uint8_t)kind,           (uint8_t)flags,         0,
        (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream};
    memcpy(out, head, sizeof(head));
    if (len)
        memcpy(out + sizeof(head), payload, len);
    return sizeof(head) + len;
}

/* Returns how many bytes it made, at most `most`. */
static inline size_t h2_frames(const uint8_t *data, size_t len, uint8_t *out, size_t most)
{
    size_t made = 0;
    while (len >= 4) {
        unsigned kind = data[0] & 0x7f, flags = data[1], stream = data[2];
        unsigned times = data[0] & 0x80 ? 1U + data[3] : 1;
        size_t head_len = data[0] & 0x80 ? 5 : 4;
        if (len < head_len)
            break;
        size_t payload = data[head_len - 1];
        data += head_len;
        len -= head_len;
        payload = payload < len ? payload : len;
        while (times-- && made + H2_FRAME_HEAD + payload <= most) {
            made += h2_frame(out + made, kind, flags, stream, data, payload);
            stream += kind == 1 ? 2 : 0;
        }
        data += payload;
        len -= payload;
    }
    return made;
}
