/*
 * paddock-jail: one job over files that an agent wrote, `paddock-jail NAME ARGS...`; see
 * jail/jail.h. Hears nobody: its input is argv and the folders of its jail, its output stdout, its
 * exit code (0, or enum jail_exit with the reason as one line on stderr), and the folder /out.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

#include "jail/jail.h"

int main(int argc, char **argv)
{
    struct err err = {0};
    signal(SIGPIPE, SIG_IGN);
    if (prctl(PR_SET_DUMPABLE, 0) < 0) {
        fprintf(stderr, "cannot turn dumping off\n");
        return 1;
    }
    int result = jail_run(argc, (const char *const *)argv, &err);
    if (result == 0)
        return 0;
    fprintf(stderr, "%s\n", err.message);
    return (int)jail_exit_of(result);
}
