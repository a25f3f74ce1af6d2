/* What is reckoned for progress; src/cli/progress.h. That nothing goes to what is no terminal is
 * tested with the program itself. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "cli/progress.h"

static void test_the_share_is_read_of_what_git_tells(void)
{
    assert(cli_progress_share("Receiving objects:  45% (9/20), 1.20 MiB | 600 KiB/s") == 0.45);
    assert(cli_progress_share("remote: Counting objects: 100% (20/20)        ") == 1);
    assert(cli_progress_share("Receiving objects:   0% (1/2000)") == 0);
    static const char *const none[] = {"",     "%",       "Enumerating objects: 20, done.",
                                       "a: %", "a: 101%", "a: 99999999999999999999%"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        assert(cli_progress_share(none[i]) < 0);
}

static void test_the_time_left_follows_from_share_and_time(void)
{
    char text[40];
    cli_progress_left(0.25, 10, text, sizeof(text));
    assert(strcmp(text, ", 30 s left") == 0);
    cli_progress_left(0.5, 1200, text, sizeof(text));
    assert(strcmp(text, ", 20 min left") == 0);
    const double no_share[] = {0, -1, 1.5};
    for (size_t i = 0; i < sizeof(no_share) / sizeof(no_share[0]); i++) {
        cli_progress_left(no_share[i], 10, text, sizeof(text));
        assert(strcmp(text, "") == 0);
    }
}

int main(void)
{
    test_the_share_is_read_of_what_git_tells();
    test_the_time_left_follows_from_share_and_time();
    return 0;
}
