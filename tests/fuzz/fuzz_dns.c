/* egress_dns_answer on any bytes: it ends, stays in its buffer, and what it says is an answer to
 * the query that is itself no query, well-formed for glibc's reader, and names no address of
 * anybody. */
#include <arpa/nameser.h>
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "egress/dns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void expect_address(const ns_rr *record)
{
    const uint8_t *data = ns_rr_rdata(*record);
    static const uint8_t local[16] = {[15] = 1};
    if (ns_rr_type(*record) == ns_t_a) {
        assert(ns_rr_rdlen(*record) == 4);
        assert(memcmp(data, "\x7f\0\0\1", 4) == 0 || (data[0] == 198 && (data[1] & 0xfe) == 18));
    } else {
        assert(ns_rr_type(*record) == ns_t_aaaa && ns_rr_rdlen(*record) == 16);
        assert(memcmp(data, local, 16) == 0 || memcmp(data, "\xfdpaddock\0\0\0", 12) == 0);
    }
}

static void expect_well_formed(const uint8_t *answer, size_t size)
{
    ns_msg message;
    ns_rr record;
    assert(ns_initparse(answer, (int)size, &message) == 0);
    assert(ns_msg_getflag(message, ns_f_qr) && !ns_msg_getflag(message, ns_f_tc));
    assert(ns_msg_count(message, ns_s_qd) <= 1 && ns_msg_count(message, ns_s_an) <= 1);
    for (int section = 0; section < ns_s_max; section++)
        for (int i = 0; i < ns_msg_count(message, section); i++) {
            assert(ns_parserr(&message, (ns_sect)section, i, &record) == 0);
            if (section == ns_s_an)
                expect_address(&record);
        }
}

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
        expect_well_formed(answer, size);
        assert(egress_dns_answer(answer, size, again) == 0); /* two of us never talk for ever */
        assert(egress_dns_answer(data, len, again) == size && memcmp(answer, again, size) == 0);
    } else {
        assert(len < 12 || (data[2] & 0x80));
    }
    free(answer);
    return 0;
}
