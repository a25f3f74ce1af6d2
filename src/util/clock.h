/* The two clocks, in milliseconds. clock_gettime(2). */
#pragma once

#include <stdint.h>

/* Since some moment before the boot: for spans of time, whatever is done to the clock. */
int64_t clock_monotonic_ms(void);
/* Since 1970: for what is recorded or told. It may jump. */
int64_t clock_unix_ms(void);
/* When the program that runs was made, since 1970: it was before now. 0: not known. */
int64_t clock_program_ms(void);
