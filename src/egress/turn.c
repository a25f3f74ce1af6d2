/* See turn.h. Neither uv_check_start(3) nor uv_idle_start(3) costs a system call. */
#include "egress/turn.h"

#include <stddef.h>

static void ring_init(struct turn *ring)
{
    ring->previous = ring->next = ring;
}

static void ring_append(struct turn *ring, struct turn *turn)
{
    turn->previous = ring->previous;
    turn->next = ring;
    ring->previous->next = turn;
    ring->previous = turn;
}

void turn_cancel(struct turn *turn)
{
    if (!turn->next)
        return;
    turn->previous->next = turn->next;
    turn->next->previous = turn->previous;
    turn->previous = turn->next = NULL;
}

/* Those that are there now: what asks again while it runs must not hold up the sockets. */
static void run_all(uv_check_t *check)
{
    struct turn_queue *queue = check->data;
    struct turn now;
    if (queue->ring.next == &queue->ring) { /* all were cancelled, or there was none */
        uv_idle_stop(&queue->idle);
        return;
    }
    now = queue->ring;
    now.next->previous = now.previous->next = &now;
    ring_init(&queue->ring);
    while (now.next != &now) {
        struct turn *turn = now.next;
        turn_cancel(turn);
        turn->run(turn);
    }
    if (queue->ring.next == &queue->ring)
        uv_idle_stop(&queue->idle);
}

static void on_idle(uv_idle_t *idle)
{
    (void)idle; /* being active is all that it is for */
}

void turn_queue_open(struct turn_queue *queue, uv_loop_t *loop)
{
    ring_init(&queue->ring);
    uv_check_init(loop, &queue->check);
    uv_idle_init(loop, &queue->idle);
    queue->check.data = queue->idle.data = queue;
    queue->open_handles = 2;
    uv_check_start(&queue->check, run_all);
    uv_unref((uv_handle_t *)&queue->check); /* alone it is no reason for the loop to go on */
}

void turn_ask(struct turn_queue *queue, struct turn *turn)
{
    if (turn->next)
        return;
    ring_append(&queue->ring, turn);
    uv_idle_start(&queue->idle, on_idle);
}

static void on_closed(uv_handle_t *handle)
{
    struct turn_queue *queue = handle->data;
    if (--queue->open_handles == 0)
        queue->closed(queue->ctx);
}

void turn_queue_close(struct turn_queue *queue, void (*closed)(void *ctx), void *ctx)
{
    queue->closed = closed;
    queue->ctx = ctx;
    uv_close((uv_handle_t *)&queue->check, on_closed);
    uv_close((uv_handle_t *)&queue->idle, on_closed);
}
