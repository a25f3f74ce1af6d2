/* Finds the name that was probably meant by a mistyped one: "did you mean ...?". */
#pragma once

/* Start with {.word = ...}, offer every name, then read `best`: NULL when none is near enough. */
struct near {
    const char *word;
    const char *best;
    unsigned distance; /* of best: inserted, deleted, changed and swapped letters */
};

/* Keeps `name` as best when it is nearer than what there was. At most one mistake in words of up to
 * four letters, two in longer ones; words over 32 letters are never near. `name` is not copied. */
void near_consider(struct near *near, const char *name);
