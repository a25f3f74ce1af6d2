/* The promises of jail/: wrong arguments are refused before anything is touched. */
#include <assert.h>

#include "jail/jail.h"
#include "util/cleanup.h"

static void test_wrong_arguments_are_refused(void)
{
    static const char *const wrong[][6] = {
        {"jail", NULL},
        {"jail", "nothing", NULL},
        {"jail", "remove", "a", "../b", NULL},
        {"jail", "remove", "", NULL},
        {"jail", "remove", "..", NULL},
        {"jail", "base", "x", NULL},
        {"jail", "weigh", "x", NULL},
        {"jail", "import", NULL},
        {"jail", "import", "-1", NULL},
        {"jail", "import", "", NULL},
        {"jail", "diff", NULL},
        {"jail", "diff", "clone", NULL},
        {"jail", "diff", "clones", "0", NULL},
        {"jail", "diff", "clone", "2", NULL},
        {"jail", "diff", "clone", "0", "HEAD", NULL},
        {"jail", "diff", "revision", "0", NULL},
        {"jail", "diff", "revision", "0", "", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        int argc = 0;
        while (wrong[i][argc])
            argc++;
        struct err err = {0};
        assert(jail_run(argc, wrong[i], &err) == -EINVAL && err.message[0] != '\0');
    }
}

int main(void)
{
    test_wrong_arguments_are_refused();
    return 0;
}
