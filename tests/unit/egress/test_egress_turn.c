/* The queue of turns: what is asked for is run once, and when nothing is due the loop sleeps. */
#include <assert.h>
#include <stddef.h>

#include "egress/turn.h"

static uv_loop_t loop;
static struct turn_queue queue;
static int runs;

static void count(struct turn *turn)
{
    (void)turn;
    runs++;
}

static void ask_again(struct turn *turn)
{
    if (++runs < 5)
        turn_ask(&queue, turn);
}

static void expect_rest(void)
{
    for (int i = 0; i < 2; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    assert(!uv_is_active((uv_handle_t *)&queue.idle));
}

static void test_a_turn_runs_once(void)
{
    struct turn turn = {.run = count};
    runs = 0;
    turn_ask(&queue, &turn);
    turn_ask(&queue, &turn);
    assert(runs == 0 && uv_is_active((uv_handle_t *)&queue.idle));
    expect_rest();
    assert(runs == 1);
}

static void test_one_that_asks_again_has_the_next_round(void)
{
    struct turn turn = {.run = ask_again};
    runs = 0;
    turn_ask(&queue, &turn);
    uv_run(&loop, UV_RUN_NOWAIT);
    assert(runs == 1);
    for (int i = 0; i < 4; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    assert(runs == 5);
    expect_rest();
}

static void test_the_loop_sleeps_when_all_were_cancelled(void)
{
    struct turn turn = {.run = count};
    struct turn other = {.run = count};
    runs = 0;
    turn_ask(&queue, &turn);
    turn_ask(&queue, &other);
    turn_cancel(&turn);
    turn_cancel(&other);
    turn_cancel(&other);
    expect_rest();
    assert(runs == 0);
}

static void closed(void *ctx)
{
    *(int *)ctx = 1;
}

int main(void)
{
    int is_closed = 0;
    assert(uv_loop_init(&loop) == 0);
    turn_queue_open(&queue, &loop);
    test_a_turn_runs_once();
    test_one_that_asks_again_has_the_next_round();
    test_the_loop_sleeps_when_all_were_cancelled();
    turn_queue_close(&queue, closed, &is_closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert(is_closed && uv_loop_close(&loop) == 0);
    return 0;
}
