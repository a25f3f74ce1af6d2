/*
 * Work that is due on the loop, but not inside of whoever found it: a connection's bytes are moved,
 * and an upstream's are sent, after the callbacks of the sockets. One queue for a loop.
 * Process: paddock-egress.
 */
#pragma once

#include <stdbool.h>
#include <uv.h>

/* A link of a ring; zeroed: in none. */
struct turn {
    struct turn *previous, *next;
    void (*run)(struct turn *turn);
};

/* The uv_check_t runs after the sockets' callbacks; the uv_idle_t keeps the loop from sleeping. */
struct turn_queue {
    uv_check_t check;
    uv_idle_t idle;
    struct turn ring; /* its ends */
    int open_handles;
    void (*closed)(void *ctx);
    void *ctx;
};

void turn_queue_open(struct turn_queue *queue, uv_loop_t *loop);
/* `closed` is called, from the loop, when the queue's memory may go. */
void turn_queue_close(struct turn_queue *queue, void (*closed)(void *ctx), void *ctx);

/* Runs turn->run once, soon, from the loop; asked again before that changes nothing. What is asked
 * for while turns run has its turn in the next round, behind the sockets' callbacks. */
void turn_ask(struct turn_queue *queue, struct turn *turn);
void turn_cancel(struct turn *turn); /* also of one that is not due */
