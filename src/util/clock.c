/* The two clocks; see clock.h. */
#include "util/clock.h"

#include <sys/stat.h>
#include <time.h>

static int64_t clock_ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t clock_monotonic_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

int64_t clock_unix_ms(void)
{
    return clock_ms(CLOCK_REALTIME);
}

int64_t clock_program_ms(void)
{
    struct stat st;
    return stat("/proc/self/exe", &st) == 0 ? (int64_t)st.st_mtim.tv_sec * 1000 : 0;
}
