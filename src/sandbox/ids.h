/*
 * Ranges of user and group ids. The configuration's `ids` are cut into blocks of 65,536. Block 0
 * gives api (base + 1) and egress (base + 2) their ids; every instance and every jail leases one of
 * the others while it runs, so that no two ever share a kernel id. Supervisor only; never blocks.
 */
#pragma once

#include <stdint.h>

#include "util/err.h"

#define IDS_PER_BLOCK 65536
#define IDS_API_OFFSET 1
#define IDS_EGRESS_OFFSET 2

struct ids;

/* base and count are multiples of 65,536, at least 4 blocks. An overlap with a range of /etc/subuid
 * or /etc/subgid is -EINVAL and names it. */
int ids_new(uint32_t base, uint32_t count, struct ids **ret, struct err *err);
/* Where all sandboxes have the same ids (rows SUBORDINATE and SINGLE): a lease is always to be had,
 * and is block 1. */
int ids_new_shared(struct ids **ret, struct err *err);
void ids_free(struct ids *ids);

uint32_t ids_base(const struct ids *ids, uint32_t block); /* first kernel id of the block */

/* The id of api or egress (IDS_*_OFFSET): our own where ids are shared. */
uint32_t ids_daemon(const struct ids *ids, uint32_t offset);

/* A free block: one with a user namespace first, then the least recently used. -EAGAIN: all are
 * leased. */
int ids_lease(struct ids *ids, uint32_t *ret_block, struct err *err);
/* The block of an instance found at start-up. -EBUSY: somebody has it. */
int ids_claim(struct ids *ids, uint32_t block, struct err *err);
void ids_release(struct ids *ids, uint32_t block);

/* A user namespace that maps 0..65535 to the block (user_namespaces(7)), made at first use and
 * kept; for idmapped mounts. The descriptor stays the pool's. Negative errno on failure. */
int ids_userns(struct ids *ids, uint32_t block, struct err *err);
