/* paddock-init: PID 1 of a sandbox. Started by the set-up child (sandbox/child.c) with the
 * descriptors of sandbox/init_fds.h, the instance's boot id as its one argument, and the base of
 * every program's environment as its own. */
#include "init/init.h"

int main(int argc, char **argv)
{
    return argc == 2 ? init_run(argv[1]) : 2;
}
