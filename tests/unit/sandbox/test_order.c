/* The packet that gives an instance its sandbox. */
#include "sandbox/order.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc/ipc.h"

static struct order order;
static struct err err;

static void open_fds(int ret[ORDER_FDS])
{
    for (size_t i = 0; i < ORDER_FDS; i++) {
        ret[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert(ret[i] >= 0);
    }
}

static void close_fds(const int fds[ORDER_FDS])
{
    for (size_t i = 0; i < ORDER_FDS; i++)
        assert(close(fds[i]) == 0);
}

static void test_what_is_sent_arrives(const int pair[2], const int fds[ORDER_FDS])
{
    const char *const environment[] = {"PATH=/bin", "EMPTY=", "TEXT=a b\n", NULL};
    assert(order_send(pair[0], "box", environment, fds, &err) == 0);
    assert(order_receive(pair[1], &order, &err) == 0);
    assert(strcmp(order.name, "box") == 0);
    for (size_t i = 0; i < 3; i++)
        assert(strcmp(order.environment[i], environment[i]) == 0);
    assert(!order.environment[3]);
    for (size_t i = 0; i < ORDER_FDS; i++)
        assert(order.fds[i] != fds[i] && fcntl(order.fds[i], F_GETFD) == FD_CLOEXEC);
    close_fds(order.fds);
}

static void test_the_longest_environment_arrives(const int pair[2], const int fds[ORDER_FDS])
{
    static char value[LIMIT_ENV_VALUE_BYTES];
    const char *environment[ORDER_VARIABLES] = {NULL};
    memset(value, 'x', sizeof(value) - 1);
    size_t fit = (LIMIT_IMAGE_ENV_BYTES + LIMIT_ENV_BYTES) / sizeof(value);
    for (size_t i = 0; i < fit; i++)
        environment[i] = value;
    assert(order_send(pair[0], "box", environment, fds, &err) == 0);
    assert(order_receive(pair[1], &order, &err) == 0);
    for (size_t i = 0; i < fit; i++)
        assert(strcmp(order.environment[i], value) == 0);
    close_fds(order.fds);
    for (size_t i = 0; i < ORDER_VARIABLES - 1; i++)
        environment[i] = i < fit + 1 ? value : "A=";
    assert(order_send(pair[0], "box", environment, fds, &err) == -E2BIG);
}

static void test_too_many_variables_are_refused(const int pair[2], const int fds[ORDER_FDS])
{
    const char *environment[ORDER_VARIABLES + 1] = {NULL};
    for (size_t i = 0; i < ORDER_VARIABLES - 1; i++)
        environment[i] = "A=";
    assert(order_send(pair[0], "box", environment, fds, &err) == 0);
    assert(order_receive(pair[1], &order, &err) == 0);
    close_fds(order.fds);
    environment[ORDER_VARIABLES - 1] = "A=";
    assert(order_send(pair[0], "box", environment, fds, &err) == -E2BIG);
}

static void test_a_packet_of_another_kind_is_refused(const int pair[2])
{
    assert(send(pair[0], "box", sizeof("box"), 0) == sizeof("box"));
    assert(order_receive(pair[1], &order, &err) == -EPROTO);
}

static void test_the_end_of_either_side(const int pair[2], const int fds[ORDER_FDS])
{
    const char *const environment[] = {NULL};
    assert(close(pair[0]) == 0);
    assert(order_receive(pair[1], &order, &err) == -EPIPE);
    int other[2];
    assert(ipc_pair(other, &err) == 0 && close(other[1]) == 0);
    assert(order_send(other[0], "box", environment, fds, &err) == -EPIPE);
    assert(close(other[0]) == 0);
}

int main(void)
{
    int pair[2], fds[ORDER_FDS];
    assert(ipc_pair(pair, &err) == 0);
    open_fds(fds);
    test_what_is_sent_arrives(pair, fds);
    test_the_longest_environment_arrives(pair, fds);
    test_too_many_variables_are_refused(pair, fds);
    test_a_packet_of_another_kind_is_refused(pair);
    test_the_end_of_either_side(pair, fds);
    return 0;
}
