/*
 * DNS of a sandbox. Every question is answered here, from a hash of the name: no query ever leaves
 * the host, so a name is no way out. The address means nothing (SNI and Host tell egress where to
 * go); it only has to be the same each time and to lie where nobody's real address is.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "util/err.h"

/* The longest answer: header, question, one AAAA, OPT. Below the 512 bytes that every client of UDP
 * takes (RFC 1035), so nothing is ever truncated. */
#define EGRESS_DNS_ANSWER_MAX 512

/* Seconds; an answer never changes, but a cache should not outlive a sandbox by much. */
#define EGRESS_DNS_TTL_S 300

/* Answers one query: bytes in, bytes out, nothing else. A: 198.18.0.0/15, AAAA: a ULA /96,
 * localhost (RFC 6761): the loopback addresses, all other types: NOERROR and empty. Returns the
 * length of the answer, or 0: to be dropped (too short to have an id, or itself an answer). */
size_t egress_dns_answer(const uint8_t *query, size_t len, uint8_t ret[EGRESS_DNS_ANSWER_MAX]);

/* Serves the two sockets of one sandbox, which become its own, until it is closed. UDP answers come
 * from the address that was asked. */
struct egress_dns;
int egress_dns_start(uv_loop_t *loop, int udp_fd, int tcp_fd, struct egress_dns **ret,
                     struct err *err);
void egress_dns_close(struct egress_dns *dns); /* frees it by itself, when the loop has run */
