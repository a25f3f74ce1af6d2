/* How a fuzzer cuts what a peer sends into reads: by a generator that the input seeds. */
#pragma once

#include <stddef.h>

/* The length of the next piece of the `left` bytes, at least one of them; of few bytes, often one
 * to three. *cuts is the generator's state (POSIX's example of rand); 0: all at once. */
static inline size_t next_piece(unsigned *cuts, size_t left)
{
    if (*cuts == 0)
        return left;
    *cuts = *cuts * 1103515245U + 12345U;
    size_t piece = 1 + (*cuts >> 16) % (*cuts & 0x100 && left < 4096 ? 3 : 40 + left / 16);
    return piece < left ? piece : left;
}
