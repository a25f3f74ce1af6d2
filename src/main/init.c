/* paddock-init: PID 1 of a sandbox. Started by the set-up child (sandbox/child.c) with the
 * descriptors of sandbox/init_fds.h, the instance's boot id and perhaps INIT_NESTS as its
 * arguments, and the base of every program's environment as its own. */
#include <string.h>

#include "init/init.h"

int main(int argc, char **argv)
{
    bool nests = argc == 3 && strcmp(argv[2], INIT_NESTS) == 0;
    return argc == 2 || nests ? init_run(argv[1], nests) : 2;
}
