/* See dial.h. Process: paddock-egress. getaddrinfo(3) runs in libuv's pool of threads; nothing of
 * what a sandbox sent is read there but the name, which is canonical. A name whose servers are
 * silent holds a thread for as long as the resolver tries, given up or not: each owner has a few
 * lookups at once, and its next ones wait here, so that no other's wait behind them. */
#include "egress/dial.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "egress/address.h"
#include "util/cleanup.h"
#include "util/limits.h"

/* Of a name with more addresses the first are tried, as the resolver ordered them (RFC 6724). */
#define ADDRESSES_MAX 8
#define NEXT_ADDRESS_MS 250 /* RFC 8305, section 5 */

struct attempt {
    struct dial *dial;
    int fd; /* -1: over */
    uv_poll_t poll;
};

/* Whose lookups they are; there is one as long as there are any. */
struct owner {
    LIST_ENTRY(owner) link;
    uint64_t id;
    size_t running; /* those of dials that were cancelled too */
    TAILQ_HEAD(, dial) waiting;
};
static LIST_HEAD(, owner) owners = LIST_HEAD_INITIALIZER(owners);

struct dial {
    uv_loop_t *loop;
    struct turn_queue *turns;
    struct turn turn;    /* tells the failure */
    struct owner *owner; /* while it waits for a lookup, or has one */
    TAILQ_ENTRY(dial) waiting;
    uv_getaddrinfo_t lookup;
    bool is_looking_up;
    bool is_over; /* told or cancelled; freed when nothing of libuv's holds it */
    uv_timer_t timer;
    int open_handles;
    char host[POLICY_HOST_MAX + 64];
    uint16_t port;
    bool may_be_private;
    struct sockaddr_storage addresses[ADDRESSES_MAX];
    size_t address_count;
    struct attempt attempts[ADDRESSES_MAX];
    size_t started;
    size_t failed;
    int last_errno;
    enum egress_failure failure;
    char reason[POLICY_HOST_MAX + 192];
    void (*done)(void *ctx, int fd, enum egress_failure failure, const char *reason);
    void *ctx;
};

static void free_when_unused(struct dial *dial)
{
    if (dial->is_over && !dial->is_looking_up && dial->open_handles == 0)
        free(dial);
}

static void on_closed(uv_handle_t *handle)
{
    struct dial *dial = handle->data;
    dial->open_handles--;
    free_when_unused(dial);
}

static void on_attempt_closed(uv_handle_t *handle)
{
    struct attempt *attempt = handle->data;
    struct dial *dial = attempt->dial;
    dial->open_handles--;
    free_when_unused(dial);
}

/* Stops watching; returns the socket. */
static int attempt_end(struct attempt *attempt)
{
    int fd = attempt->fd;
    if (fd < 0)
        return -1;
    attempt->fd = -1;
    uv_poll_stop(&attempt->poll);
    uv_close((uv_handle_t *)&attempt->poll, on_attempt_closed);
    return fd;
}

static void dial_end(struct dial *dial)
{
    dial->is_over = true;
    turn_cancel(&dial->turn);
    for (size_t i = 0; i < dial->started; i++) {
        int fd = attempt_end(&dial->attempts[i]);
        if (fd >= 0)
            close(fd);
    }
    uv_close((uv_handle_t *)&dial->timer, on_closed);
}

static void tell_failure(struct turn *turn)
{
    struct dial *dial = (struct dial *)((char *)turn - offsetof(struct dial, turn));
    dial_end(dial);
    dial->done(dial->ctx, -1, dial->failure, dial->reason);
}

static void fail(struct dial *dial, enum egress_failure failure, const char *why)
{
    dial->failure = failure;
    if (failure == EGRESS_FAILED_CONNECT || failure == EGRESS_FAILED_TIMEOUT)
        snprintf(dial->reason, sizeof(dial->reason), "cannot connect to %s port %u: %s", dial->host,
                 dial->port, why);
    else
        snprintf(dial->reason, sizeof(dial->reason), "%s", why);
    turn_ask(dial->turns, &dial->turn);
}

static void try_next(struct dial *dial);

static void attempt_failed(struct dial *dial, int code)
{
    dial->last_errno = code;
    if (++dial->failed == dial->address_count)
        fail(dial, code == ETIMEDOUT ? EGRESS_FAILED_TIMEOUT : EGRESS_FAILED_CONNECT,
             strerror(code));
    else if (dial->started < dial->address_count)
        try_next(dial);
}

static void on_connected(uv_poll_t *poll, int status, int events)
{
    (void)events;
    struct attempt *attempt = poll->data;
    struct dial *dial = attempt->dial;
    int code = 0;
    socklen_t len = sizeof(code);
    /* first, since libuv says EBADF of a socket with an error of its own */
    if (getsockopt(attempt->fd, SOL_SOCKET, SO_ERROR, &code, &len) < 0)
        code = errno;
    if (!code && status < 0)
        code = -status;
    int fd = attempt_end(attempt);
    if (code) {
        close(fd);
        attempt_failed(dial, code);
        return;
    }
    dial_end(dial);
    dial->done(dial->ctx, fd, EGRESS_COMPLETE, NULL);
}

static int attempt_start(struct dial *dial, struct attempt *attempt,
                         const struct sockaddr_storage *address)
{
    bool is_ipv6 = address->ss_family == AF_INET6;
    socklen_t len = is_ipv6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    attempt->dial = dial;
    attempt->fd = -1;
    cleanup_fd int fd =
        socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)address, len) < 0 && errno != EINPROGRESS)
        return -errno;
    if (uv_poll_init_socket(dial->loop, &attempt->poll, fd))
        return -ENOMEM;
    attempt->poll.data = attempt;
    attempt->fd = TAKE_FD(fd);
    dial->open_handles++;
    uv_poll_start(&attempt->poll, UV_WRITABLE, on_connected);
    return 0;
}

static void on_timer(uv_timer_t *timer)
{
    try_next(timer->data);
}

static void try_next(struct dial *dial)
{
    size_t index = dial->started++;
    int result = attempt_start(dial, &dial->attempts[index], &dial->addresses[index]);
    if (dial->started < dial->address_count)
        uv_timer_start(&dial->timer, on_timer, NEXT_ADDRESS_MS, 0);
    else
        uv_timer_stop(&dial->timer);
    if (result < 0)
        attempt_failed(dial, -result);
}

static void set_port(struct sockaddr_storage *address, uint16_t port)
{
    if (address->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)address)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)address)->sin_port = htons(port);
}

static void take_addresses(struct dial *dial, const struct addrinfo *list)
{
    bool was_private = false;
    for (; list && dial->address_count < ADDRESSES_MAX; list = list->ai_next) {
        if (list->ai_family != AF_INET && list->ai_family != AF_INET6)
            continue;
        if (!dial->may_be_private && !egress_address_is_public(list->ai_addr)) {
            was_private = true;
            continue;
        }
        struct sockaddr_storage *address = &dial->addresses[dial->address_count++];
        memcpy(address, list->ai_addr, list->ai_addrlen);
        set_port(address, dial->port);
    }
    if (dial->address_count)
        try_next(dial);
    else if (was_private)
        fail(dial, EGRESS_FAILED_PRIVATE,
             "the name leads to an address that is not public; the policy would have to name it as "
             "the rule's upstream");
    else
        fail(dial, EGRESS_FAILED_NAME, "the name has no address");
}

/* ------------------------------------------------------------------------------ names */

static struct owner *owner_of(uint64_t id)
{
    struct owner *owner;
    LIST_FOREACH(owner, &owners, link)
    if (owner->id == id)
        return owner;
    owner = calloc(1, sizeof(*owner));
    if (!owner)
        return NULL;
    owner->id = id;
    TAILQ_INIT(&owner->waiting);
    LIST_INSERT_HEAD(&owners, owner, link);
    return owner;
}

static void stop_waiting(struct dial *dial)
{
    TAILQ_REMOVE(&dial->owner->waiting, dial, waiting);
    dial->owner = NULL;
}

static void on_lookup(uv_getaddrinfo_t *lookup, int status, struct addrinfo *list);

/* Those that may run now; the owner goes with its last one. */
static void owner_go_on(struct owner *owner)
{
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct dial *dial;
    while (owner->running < LIMIT_EGRESS_LOOKUPS && (dial = TAILQ_FIRST(&owner->waiting))) {
        int result = uv_getaddrinfo(dial->loop, &dial->lookup, on_lookup, dial->host, NULL, &hints);
        stop_waiting(dial);
        dial->is_looking_up = result == 0;
        if (result) {
            fail(dial, EGRESS_FAILED_SELF, uv_strerror(result));
            continue;
        }
        dial->owner = owner;
        owner->running++;
    }
    if (owner->running)
        return;
    LIST_REMOVE(owner, link);
    free(owner);
}

static void take_lookup(struct dial *dial, int status, const struct addrinfo *list)
{
    char why[256];
    if (dial->is_over) {
        free_when_unused(dial);
        return;
    }
    if (status == 0) {
        take_addresses(dial, list);
        return;
    }
    snprintf(why, sizeof(why), "the name %.200s could not be resolved: %s", dial->host,
             uv_strerror(status));
    fail(dial, EGRESS_FAILED_NAME, why);
}

static void on_lookup(uv_getaddrinfo_t *lookup, int status, struct addrinfo *list)
{
    struct dial *dial = lookup->data;
    struct owner *owner = dial->owner;
    dial->owner = NULL;
    dial->is_looking_up = false;
    owner->running--;
    owner_go_on(owner);
    take_lookup(dial, status, list);
    uv_freeaddrinfo(list);
}

static void look_up(struct dial *dial, uint64_t owner)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *list = NULL;
    if (getaddrinfo(dial->host, NULL, &hints, &list) == 0) { /* an address: nothing is asked */
        take_addresses(dial, list);
        freeaddrinfo(list);
        return;
    }
    dial->lookup.data = dial;
    dial->owner = owner_of(owner);
    if (!dial->owner) {
        fail(dial, EGRESS_FAILED_SELF, "out of memory for a name");
        return;
    }
    TAILQ_INSERT_TAIL(&dial->owner->waiting, dial, waiting);
    owner_go_on(dial->owner);
}

struct dial *
dial_start(uv_loop_t *loop, struct turn_queue *turns, const struct dial_request *request,
           void (*done)(void *ctx, int fd, enum egress_failure failure, const char *reason),
           void *ctx)
{
    struct dial *dial = calloc(1, sizeof(*dial));
    if (!dial)
        return NULL;
    dial->loop = loop;
    dial->turns = turns;
    dial->turn.run = tell_failure;
    dial->port = request->port;
    dial->may_be_private = request->may_be_private;
    dial->done = done;
    dial->ctx = ctx;
    snprintf(dial->host, sizeof(dial->host), "%s", request->host);
    uv_timer_init(loop, &dial->timer);
    dial->timer.data = dial;
    dial->open_handles = 1;
    look_up(dial, request->owner);
    return dial;
}

void dial_cancel(struct dial *dial)
{
    dial_end(dial);
    if (dial->is_looking_up)
        uv_cancel((uv_req_t *)&dial->lookup);
    else if (dial->owner)
        stop_waiting(dial);
}
