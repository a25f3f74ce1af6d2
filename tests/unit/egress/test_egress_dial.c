/* Names whose servers are silent: getaddrinfo(3) is ours here, and answers when the test says so.
 */
#include <assert.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "egress/dial.h"
#include "util/cleanup.h"
#include "util/limits.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static char asked[512];    /* the names, a space behind each */
static char answered[512]; /* the same; those that may end */

__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **ret)
{
    (void)service;
    (void)ret;
    char word[64];
    if (hints->ai_flags & AI_NUMERICHOST)
        return EAI_NONAME;
    snprintf(word, sizeof(word), "%s ", name);
    pthread_mutex_lock(&lock);
    strcat(asked, word);
    pthread_cond_broadcast(&changed);
    while (!strstr(answered, word))
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return EAI_AGAIN;
}

static void answer(const char *names)
{
    pthread_mutex_lock(&lock);
    strcat(answered, names);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static uv_loop_t loop;
static struct turn_queue turns;
static char told[512];
static char a[5][4] = {"a0 ", "a1 ", "a2 ", "a3 ", "a4 "}, b[2][4] = {"b0 ", "b1 "};

static bool is_asked(const char *names, const char *or_names)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 10000000; /* the loop runs in between */
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&lock);
    bool is = strcmp(asked, names) == 0 || strcmp(asked, or_names) == 0;
    if (!is)
        pthread_cond_timedwait(&changed, &lock, &until);
    if (is)
        asked[0] = '\0';
    pthread_mutex_unlock(&lock);
    return is;
}

/* Of two that were asked for at once either may be the first. */
static void expect_asked(const char *names, const char *or_names)
{
    const char *patience = getenv("PADDOCK_TEST_PATIENCE");
    long tries = 2000 * (patience ? strtol(patience, NULL, 10) : 1);
    while (!is_asked(names, or_names)) {
        assert(tries-- > 0);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
}

static void done(void *ctx, int fd, enum egress_failure failure, const char *reason)
{
    assert(fd == -1 && failure == EGRESS_FAILED_NAME && strstr(reason, "could not be resolved"));
    strcat(told, ctx);
}

static struct dial *start(uint64_t owner, char *name)
{
    char host[8];
    snprintf(host, sizeof(host), "%.2s", name);
    struct dial_request request = {.owner = owner, .host = host, .port = 443};
    struct dial *dial = dial_start(&loop, &turns, &request, done, name);
    assert(dial);
    return dial;
}

/* In whatever order. */
static void run_until_told(const char *names)
{
    while (strlen(told) < strlen(names))
        uv_run(&loop, UV_RUN_ONCE);
}

/* Four lookups at once are possible: what is too much for one owner would take the other's place.
 */
static void test_silent_names_of_one_hold_up_no_other(void)
{
    static_assert(LIMIT_EGRESS_LOOKUPS == 2, "the names below are made for this");
    struct dial *a0 = start(1, a[0]);
    start(1, a[1]);
    struct dial *a2 = start(1, a[2]);
    start(1, a[3]);
    start(1, a[4]);
    expect_asked("a0 a1 ", "a1 a0 ");
    start(2, b[0]);
    expect_asked("b0 ", "b0 ");

    dial_cancel(a0); /* goes on all the same, and counts */
    dial_cancel(a2); /* is never asked for */
    start(2, b[1]);
    expect_asked("b1 ", "b1 ");

    answer("a0 ");
    expect_asked("a3 ", "a3 ");
    answer("a3 ");
    expect_asked("a4 ", "a4 ");
    answer("a1 a4 b0 b1 ");
    run_until_told("a3 a1 a4 b0 b1 ");
    assert(strstr(told, "a3 ") == told && !strstr(told, "a0") && !strstr(told, "a2"));
    start(1, a[1]); /* nothing is left of its owner's */
    expect_asked("a1 ", "a1 ");
    run_until_told("a3 a1 a4 b0 b1 a1 ");
}

static void on_closed(void *ctx)
{
    (void)ctx;
}

int main(void)
{
    assert(setenv("UV_THREADPOOL_SIZE", "8", 1) == 0);
    assert(uv_loop_init(&loop) == 0);
    turn_queue_open(&turns, &loop);
    test_silent_names_of_one_hold_up_no_other();
    turn_queue_close(&turns, on_closed, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert(uv_loop_close(&loop) == 0);
    return 0;
}
