/* How many digits git shows of an object's name (core.abbrev "auto"). Pure, but for the counting.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "util/err.h"

/* The beginning of a pack's index that holds the count: both versions fit. */
#define REPO_PACK_INDEX_HEAD_BYTES (8 + 256 * 4)

/* The number of objects that a pack's index (gitformat-pack(5)) tells in its first `len` bytes; 0
 * when it is none. */
uint32_t repo_pack_index_count(const unsigned char *head, size_t len);

/* The digits for a repository with so many objects in packs. */
int repo_abbrev_digits(uint64_t packed_objects);

/* The digits for the packs in the folder `git_dir`/objects/pack beneath root_fd. */
int repo_abbrev_of(int root_fd, const char *git_dir);
