/* The nearest name; see near.h. The distance is that of Damerau and Levenshtein (optimal string
 * alignment), over a table of fixed size. */
#include "util/near.h"

#include <string.h>

#define NEAR_WORD_MAX 32

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static unsigned near_distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    unsigned table[NEAR_WORD_MAX + 1][NEAR_WORD_MAX + 1];
    for (size_t i = 0; i <= a_len; i++)
        table[i][0] = (unsigned)i;
    for (size_t j = 0; j <= b_len; j++)
        table[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a_len; i++) {
        for (size_t j = 1; j <= b_len; j++) {
            unsigned changed = table[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            unsigned value = least(changed, least(table[i - 1][j], table[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                value = least(value, table[i - 2][j - 2] + 1);
            table[i][j] = value;
        }
    }
    return table[a_len][b_len];
}

void near_consider(struct near *near, const char *name)
{
    size_t word_len = strnlen(near->word, NEAR_WORD_MAX + 1);
    size_t name_len = strnlen(name, NEAR_WORD_MAX + 1);
    if (word_len > NEAR_WORD_MAX || name_len > NEAR_WORD_MAX)
        return;
    unsigned distance = near_distance(near->word, word_len, name, name_len);
    unsigned allowed = name_len <= 4 ? 1 : 2;
    if (distance > allowed || distance >= name_len)
        return;
    if (near->best && distance >= near->distance)
        return;
    near->best = name;
    near->distance = distance;
}
