/*
 * Any bytes to the sockets of a sandbox's DNS: a datagram has the answer of egress_dns_answer, or
 * none; a stream, however it is cut, has those of its messages in their order, and is closed at the
 * first that is none. The first byte chooses, the second is where the stream is cut.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cuts.h"
#include "egress/dns.h"
#include "util/cleanup.h"
#include "util/limits.h"

#define INPUT_MAX ((size_t)32 * 1024)
#define ANSWERS_MAX ((size_t)8 * 1024 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static uv_loop_t loop;
static int udp = -1; /* the client's end */
static struct sockaddr_un address;
static socklen_t address_len;

static void set_up(void)
{
    int pair[2];
    struct egress_dns *dns;
    struct err err;
    signal(SIGPIPE, SIG_IGN);
    assert(uv_loop_init(&loop) == 0);
    assert(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    int tcp = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    address.sun_family = AF_UNIX;
    address_len = sizeof(sa_family_t); /* unix(7): a name is found for it */
    assert(tcp >= 0 && bind(tcp, (struct sockaddr *)&address, address_len) == 0);
    assert(listen(tcp, 4) == 0);
    address_len = sizeof(address);
    assert(getsockname(tcp, (struct sockaddr *)&address, &address_len) == 0);
    assert(egress_dns_start(&loop, pair[0], tcp, &dns, &err) == 0);
    udp = pair[1];
}

static void settle(void)
{
    uv_run(&loop, UV_RUN_NOWAIT);
    uv_run(&loop, UV_RUN_NOWAIT);
}

static void try_datagram(const uint8_t *data, size_t len)
{
    uint8_t expected[EGRESS_DNS_ANSWER_MAX], got[EGRESS_DNS_ANSWER_MAX + 1];
    size_t expected_len = len <= LIMIT_DNS_QUERY_BYTES ? egress_dns_answer(data, len, expected) : 0;
    assert(send(udp, data, len, 0) == (ssize_t)len);
    settle();
    ssize_t got_len = recv(udp, got, sizeof(got), 0);
    if (!expected_len)
        assert(got_len < 0 && errno == EAGAIN);
    else
        assert(got_len == (ssize_t)expected_len && memcmp(got, expected, expected_len) == 0);
    assert(recv(udp, got, sizeof(got), 0) < 0 && errno == EAGAIN);
}

static uint8_t expected[ANSWERS_MAX], got[ANSWERS_MAX];

/* The answers to a stream's messages; *ret_is_bad: one of them ends it. */
static size_t expect(const uint8_t *data, size_t len, bool *ret_is_bad)
{
    size_t made = 0;
    *ret_is_bad = false;
    while (len >= 2) {
        size_t message = (size_t)data[0] << 8 | data[1];
        *ret_is_bad = message > LIMIT_DNS_QUERY_BYTES;
        if (*ret_is_bad || len - 2 < message)
            break;
        size_t answer = egress_dns_answer(data + 2, message, expected + made + 2);
        *ret_is_bad = answer == 0;
        if (*ret_is_bad)
            break;
        expected[made] = (uint8_t)(answer >> 8);
        expected[made + 1] = (uint8_t)answer;
        made += 2 + answer;
        data += 2 + message;
        len -= 2 + message;
    }
    return made;
}

/* Reads what there is; false: the stream is closed. */
static bool read_all(int fd, size_t *got_len)
{
    for (;;) {
        ssize_t now = recv(fd, got + *got_len, sizeof(got) - *got_len, 0);
        if (now <= 0)
            return now < 0 && errno == EAGAIN;
        *got_len += (size_t)now;
        settle();
    }
}

static void try_stream(const uint8_t *data, size_t len, unsigned cuts)
{
    bool is_bad;
    size_t expected_len = expect(data, len, &is_bad);
    size_t got_len = 0;
    bool is_open = true;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert(fd >= 0 && connect(fd, (struct sockaddr *)&address, address_len) == 0);
    settle();
    for (size_t used = 0; used < len && is_open;) {
        ssize_t sent = send(fd, data + used, next_piece(&cuts, len - used), MSG_NOSIGNAL);
        used += sent > 0 ? (size_t)sent : 0;
        is_open = sent > 0 || errno == EAGAIN;
        /* a connection is read no more than once a turn */
        for (int i = 0; i < 64; i++)
            settle();
        is_open = read_all(fd, &got_len) && is_open;
    }
    assert(got_len == expected_len && memcmp(got, expected, got_len) == 0);
    assert(is_open == !is_bad);
    close(fd);
    settle();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 2 || len > INPUT_MAX)
        return 0;
    if (udp < 0)
        set_up();
    if (data[0] & 1) {
        try_datagram(data + 2, len - 2);
        return 0;
    }
    try_stream(data + 2, len - 2, 0);
    try_stream(data + 2, len - 2, data[1] + 1U);
    return 0;
}
