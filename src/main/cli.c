/* paddock: the command line. Runs as the user, holds the user's API token and nothing else. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    return cli_main(argc, argv);
}
