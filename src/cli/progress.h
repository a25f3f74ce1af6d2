/* How far long work has come, for people who wait at a terminal. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cli_progress {
    bool is_wanted; /* standard error is a terminal */
    bool is_shown;
    int64_t began_ms, told_ms; /* clock_monotonic_ms */
};

/* From now on time is counted. */
void cli_progress_begin(struct cli_progress *progress);
double cli_progress_seconds(const struct cli_progress *progress);
/* Whether it is time to tell something again. */
bool cli_progress_is_due(const struct cli_progress *progress);
/* Shows the text, which may be foreign, in place of the last one; cut to the terminal's width. */
void cli_progress_tell(struct cli_progress *progress, const char *text);
/* Takes it away; before anything else is printed, and at the end. */
void cli_progress_clear(struct cli_progress *progress);

/* ", 12 s left" when a share (0 to 1) of it took so long; "" when that tells nothing. */
void cli_progress_left(double done, double seconds, char *ret, size_t size);
/* The share in "Receiving objects:  45% (9/20)"; negative: there is none. */
double cli_progress_share(const char *text);
