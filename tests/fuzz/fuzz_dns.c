/* egress_dns_answer on any bytes: it ends, stays in its buffer, and what it says is an answer to
 * the query that is itself no query. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "egress/dns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    /* of exactly its size, so that a sanitizer sees a byte too many */
    uint8_t *answer = malloc(EGRESS_DNS_ANSWER_MAX);
    uint8_t again[EGRESS_DNS_ANSWER_MAX];
    assert(answer);
    size_t size = egress_dns_answer(data, len, answer);
    assert(size <= EGRESS_DNS_ANSWER_MAX);
    if (size) {
        assert(size >= 12 && memcmp(answer, data, 2) == 0 && (answer[2] & 0x80));
        assert(egress_dns_answer(answer, size, again) == 0); /* two of us never talk for ever */
        assert(egress_dns_answer(data, len, again) == size && memcmp(answer, again, size) == 0);
    } else {
        assert(len < 12 || (data[2] & 0x80));
    }
    free(answer);
    return 0;
}
