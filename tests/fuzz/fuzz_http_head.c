/* http_head_length and http_head_check on any bytes: what passes has a request line, a Host when it
 * is 1.1, and at most one way to tell where its body ends. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "http/head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct http_head head;
    struct err err;
    const char *bytes = (const char *)data;
    size_t scanned = 0;
    ssize_t length = http_head_length(bytes, len, &scanned);
    assert(length <= (ssize_t)len);
    if (length <= 0)
        return 0;
    assert(memcmp(bytes + length - 4, "\r\n\r\n", 4) == 0);
    if (http_head_check(bytes, (size_t)length, &head, &err) != 0) {
        assert(err.message[0]);
        return 0;
    }
    assert(head.method_len && head.target_len);
    assert(!(head.is_chunked && head.content_length >= 0));
    assert(head.minor == 0 || http_head_field(&head, "HOST"));
    return 0;
}
