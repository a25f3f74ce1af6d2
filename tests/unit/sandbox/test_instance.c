/* The promises of a running sandbox, asked of a real one. Needs root; skipped (77) without. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

#undef NDEBUG
#include <assert.h>

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
    if (geteuid() != 0 || argc < 3)
        return 77;
    struct rig rig;
    rig_open(&rig, argv[1], argv[2]);
    for (int i = 0; i < 10; i++) {
        double begin = now_ms();
        rig_start(&rig, "agent-1");
        printf("start %.2f ms\n", now_ms() - begin);
        if (i < 9)
            rig_stop(&rig);
    }
    static struct rig_result result;
    rig_exec(&rig, EXEC_AS_AGENT, (const char *[]){"facts", NULL}, &result);
    printf("%s%s", result.out, result.err);
    rig_exec(&rig, EXEC_AS_ROOT, (const char *[]){"facts", NULL}, &result);
    printf("%s%s", result.out, result.err);
    rig_stop(&rig);
    rig_close(&rig);
    return 0;
}
