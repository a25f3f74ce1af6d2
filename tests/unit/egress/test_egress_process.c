/*
 * The serving process against a supervisor played here: a child runs egress_process_run, the parent
 * sends it messages. The request's half (conn.c, upstream) is a double: a connection is greeted and
 * kept until its client closes it.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "egress/ca.h"
#include "egress/process.h"
#include "egress/upstream.h"
#include "ipc/ipc.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define WAIT_MS 10000

/* ------------------------------------------------------------------------ double of conn.c */

struct egress_conn {
    uv_poll_t poll;
    struct egress_sandbox *sandbox;
    int fd;
};

static void conn_closed(uv_handle_t *handle)
{
    struct egress_conn *conn = handle->data;
    close(conn->fd);
    egress_sandbox_unref(conn->sandbox);
    free(conn);
}

static void conn_close(struct egress_conn *conn)
{
    egress_sandbox_remove_conn(conn->sandbox, conn);
    uv_close((uv_handle_t *)&conn->poll, conn_closed);
}

static void conn_readable(uv_poll_t *poll, int status, int events)
{
    char byte;
    (void)status, (void)events;
    struct egress_conn *conn = poll->data;
    if (recv(conn->fd, &byte, 1, 0) <= 0)
        conn_close(conn);
}

void egress_conn_start(struct egress *egress, struct egress_sandbox *sandbox, int fd, uint16_t port,
                       bool is_tls)
{
    assert(port == (is_tls ? 443 : 80));
    assert(egress->idle_ms == 1234);
    struct egress_conn *conn = calloc(1, sizeof(*conn));
    assert(conn && uv_poll_init(egress->loop, &conn->poll, fd) == 0);
    conn->poll.data = conn;
    conn->fd = fd;
    conn->sandbox = egress_sandbox_ref(sandbox);
    egress_sandbox_add_conn(sandbox, conn);
    char text[256];
    const struct secret *secret = egress_secret(egress, "TOKEN");
    const struct policy *policy = egress_policy_of(sandbox);
    snprintf(text, sizeof(text), "%s %d %s %s\n", egress_sandbox_name(sandbox), is_tls,
             policy ? policy_rule_name(policy_rule_at(policy, 0)) : "none",
             secret ? secret->data : "none");
    assert(send(fd, text, strlen(text), MSG_NOSIGNAL) > 0);
    uv_poll_start(&conn->poll, UV_READABLE, conn_readable);
}

void egress_conn_close_all(struct egress_sandbox *sandbox)
{
    egress_sandbox_each_conn(sandbox, conn_close);
}

void egress_conn_judge_all(struct egress_sandbox *sandbox)
{
    (void)sandbox;
}

int egress_upstreams_open(uv_loop_t *loop, struct turn_queue *turns, const char *proxy,
                          struct egress_upstreams **ret, struct err *err)
{
    (void)loop, (void)turns, (void)err;
    assert(strcmp(proxy, "") == 0);
    *ret = NULL;
    return 0;
}

void egress_upstreams_leave(struct egress_upstreams *upstreams, uint64_t owner)
{
    (void)owner;
    assert(!upstreams);
}

/* ------------------------------------------------------------------------ the supervisor */

static int sock;
static pid_t child;
static int ports[2]; /* of the listeners for 80 and 443 */
static int dns_port;

static void run_child(int fd, rlim_t descriptors)
{
    struct err err = {0};
    if (descriptors) {
        struct rlimit limit = {descriptors, descriptors};
        assert(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    }
    int result = egress_process_run(fd, &err);
    _exit(result == 0 ? 0 : result == -EPROTO ? 2 : 1);
}

static void expect(enum ipc_type type, struct ipc_message *ret)
{
    struct err err = {0};
    struct pollfd wait = {.fd = sock, .events = POLLIN};
    assert(poll(&wait, 1, WAIT_MS) == 1);
    assert(ipc_recv(sock, IPC_SUPERVISOR, IPC_EGRESS, ret, &err) == 1);
    assert(type == IPC_NONE || ret->header.type == type);
}

static void send_start(void)
{
    struct err err = {0};
    cleanup_fd int key = memfd_create("key", MFD_CLOEXEC);
    cleanup_fd int crt = memfd_create("crt", MFD_CLOEXEC);
    cleanup_fd int java = memfd_create("java", MFD_CLOEXEC);
    int fds[3] = {memfd_create("out", MFD_CLOEXEC), open("/dev/null", O_WRONLY | O_CLOEXEC), -1};
    static const char vars[] = "{\"ACCOUNT\": \"acct\"}";
    fds[2] = fd_sealed("vars", vars, strlen(vars), &err);
    assert(egress_ca_make(key, crt, fds[0], java, &err) == 0);
    struct msg_egress_start start = {.idle_ms = 1234};
    assert(ipc_send(sock, IPC_EGRESS_START, 0, &start, fds, 3, &err) == 0);
    for (size_t i = 0; i < 3; i++)
        close(fds[i]);
}

static void spawn(rlim_t descriptors)
{
    struct err err;
    int pair[2];
    assert(ipc_pair(pair, &err) == 0);
    child = fork();
    assert(child >= 0);
    if (child == 0) {
        close(pair[0]);
        run_child(pair[1], descriptors);
    }
    close(pair[1]);
    sock = pair[0];
}

static int child_status(void)
{
    int status;
    assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int bind_one(int type)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    assert(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    assert(type != SOCK_STREAM || listen(fd, 512) == 0);
    return fd;
}

static int port_of(int fd)
{
    struct sockaddr_in address;
    socklen_t len = sizeof(address);
    assert(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
    return ntohs(address.sin_port);
}

static void attach(const char *name, const char *boot_id)
{
    struct err err;
    struct msg_sandbox_attach body = {0};
    IPC_SET_TEXT(body.name, name);
    IPC_SET_TEXT(body.boot_id, boot_id);
    int fds[4] = {bind_one(SOCK_STREAM), bind_one(SOCK_STREAM), bind_one(SOCK_STREAM),
                  bind_one(SOCK_DGRAM)};
    ports[0] = port_of(fds[0]);
    ports[1] = port_of(fds[1]);
    dns_port = port_of(fds[3]);
    assert(ipc_send(sock, IPC_SANDBOX_ATTACH, 0, &body, fds, 4, &err) == 0);
    for (size_t i = 0; i < 4; i++)
        close(fds[i]);
}

static void detach(const char *name, const char *boot_id)
{
    struct err err;
    struct msg_sandbox_attach body = {0};
    IPC_SET_TEXT(body.name, name);
    IPC_SET_TEXT(body.boot_id, boot_id);
    assert(ipc_send(sock, IPC_SANDBOX_DETACH, 0, &body, NULL, 0, &err) == 0);
}

static int dial(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {htonl(INADDR_LOOPBACK)},
                                  .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert(fd >= 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* The greeting of the double, "" when the connection ended, NULL when nothing comes in time. */
static const char *greeting(int fd, int wait_ms)
{
    static char text[256];
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (poll(&wait, 1, wait_ms) != 1)
        return NULL;
    ssize_t n = recv(fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void expect_greeting(int port, const char *wanted)
{
    cleanup_fd int fd = dial(port);
    const char *text = fd >= 0 ? greeting(fd, WAIT_MS) : NULL;
    assert(text && strcmp(text, wanted) == 0);
}

/* ------------------------------------------------------------------------ policies */

static void send_file(const char *name, const char *text)
{
    struct err err;
    struct msg_policy_file file = {0};
    IPC_SET_TEXT(file.name, name);
    cleanup_fd int fd = fd_sealed("policy", text, strlen(text), &err);
    assert(ipc_send(sock, IPC_POLICY_FILE, 0, &file, &fd, 1, &err) == 0);
}

static void send_policy(const char *text, uint64_t id)
{
    struct err err;
    struct msg_policy_load load = {0};
    IPC_SET_TEXT(load.name, "test.json");
    send_file("test.json", text);
    assert(ipc_send(sock, IPC_POLICY_LOAD, id, &load, NULL, 0, &err) == 0);
}

/* Answers one SECRET_GET: with the text, or (NULL) that there is none. */
static void give_secret(const char *name, const char *text)
{
    struct err err;
    cleanup_ipc_message struct ipc_message message = {0};
    expect(IPC_SECRET_GET, &message);
    assert(strcmp(IPC_BODY(&message, msg_secret_get)->name, name) == 0);
    if (!text) {
        assert(ipc_send_status(sock, message.header.id, IPC_STATUS_NOT_FOUND, "none") == 0);
        return;
    }
    cleanup_fd int fd = fd_sealed("secret", text, strlen(text), &err);
    assert(ipc_send(sock, IPC_SECRET, message.header.id, NULL, &fd, 1, &err) == 0);
}

static struct msg_policy_state states[4]; /* those that the last load told */
static size_t state_count;

/* A load that is taken tells of each policy first. */
static struct msg_policy_loaded loaded(uint64_t id)
{
    cleanup_ipc_message struct ipc_message message = {0};
    for (state_count = 0;; state_count++) {
        expect(IPC_NONE, &message);
        if (message.header.type != IPC_POLICY_STATE)
            break;
        assert(state_count < 4);
        states[state_count] = *IPC_BODY(&message, msg_policy_state);
    }
    if (message.header.type == IPC_POLICY_PORTS)
        expect(IPC_POLICY_LOADED, &message);
    assert(message.header.type == IPC_POLICY_LOADED);
    assert(message.header.id == id);
    return *IPC_BODY(&message, msg_policy_loaded);
}

static const char with_token[] =
    "{\"rules\": [{\"name\": \"first\", \"host\": \"a.example\", \"path\": \"/${ACCOUNT}\","
    " \"headers\": {\"set\": {\"x-token\": \"${secret:TOKEN}\", \"x-again\": "
    "\"${secret:TOKEN}\"}}}]}";

static void test_a_policy_comes_into_force_with_its_secrets(void)
{
    expect_greeting(ports[0], "agent-1 0 none none\n");
    send_policy(with_token, 7);
    give_secret("TOKEN", "t0ken\n");
    struct msg_policy_loaded answer = loaded(7);
    assert(answer.ok && answer.inactive == 0 && answer.text[0] == '\0');
    expect_greeting(ports[1], "agent-1 1 first t0ken\n");
}

static void test_a_bad_policy_leaves_the_one_in_force(void)
{
    send_policy("{\"rules\": [\n  {\"hots\": 1}]}", 8);
    struct msg_policy_loaded answer = loaded(8);
    assert(!answer.ok && strncmp(answer.text, "test.json:2:", 12) == 0);
    struct err err;
    struct msg_policy_load load = {0};
    IPC_SET_TEXT(load.name, "absent.json");
    assert(ipc_send(sock, IPC_POLICY_LOAD, 9, &load, NULL, 0, &err) == 0);
    answer = loaded(9);
    assert(!answer.ok && strstr(answer.text, "absent.json"));
    expect_greeting(ports[0], "agent-1 0 first t0ken\n");
}

static void test_a_missing_secret_makes_a_rule_inactive(void)
{
    send_policy(with_token, 10);
    give_secret("TOKEN", NULL);
    struct msg_policy_loaded answer = loaded(10);
    assert(answer.ok && answer.inactive == 1 && strstr(answer.text, "TOKEN"));
    expect_greeting(ports[0], "agent-1 0 first none\n");
    send_policy(with_token, 11);
    give_secret("TOKEN", "\n"); /* a file that is there, but empty */
    answer = loaded(11);
    assert(answer.inactive == 1 && strstr(answer.text, "is empty"));
}

static void test_a_newer_load_replaces_one_that_waits(void)
{
    cleanup_ipc_message struct ipc_message first = {0};
    send_policy(with_token, 20);
    expect(IPC_SECRET_GET, &first);
    send_policy(with_token, 21);
    struct msg_policy_loaded answer = loaded(20);
    assert(!answer.ok && strstr(answer.text, "newer"));
    assert(ipc_send_status(sock, first.header.id, IPC_STATUS_NOT_FOUND, "late") == 0);
    give_secret("TOKEN", "new");
    answer = loaded(21);
    assert(answer.ok && answer.inactive == 0);
    expect_greeting(ports[0], "agent-1 0 first new\n");
}

static const struct msg_policy_state *state_of(const char *name)
{
    for (size_t i = 0; i < state_count; i++)
        if (strcmp(states[i].name, name) == 0)
            return &states[i];
    return NULL;
}

/* Puts it under the policy; nothing answers that, so new connections tell when it is so. */
static void put_under(const char *policy, const char *wanted)
{
    struct err err;
    struct msg_sandbox_attach body = {0};
    IPC_SET_TEXT(body.name, "agent-1");
    IPC_SET_TEXT(body.policy, policy);
    assert(ipc_send(sock, IPC_SANDBOX_POLICY, 0, &body, NULL, 0, &err) == 0);
    for (const char *text = ""; strcmp(text, wanted) != 0;) {
        cleanup_fd int fd = dial(ports[0]);
        text = fd >= 0 ? greeting(fd, WAIT_MS) : NULL;
        assert(text);
    }
}

#define MAIN_POLICY "{\"rules\": [{\"name\": \"main\", \"host\": \"a.test\"}]}"
#define OTHER_POLICY "{\"rules\": [{\"name\": \"other\", \"host\": \"b.test\"}]}"

/* Another policy of the folder: taken, refused, gone. What is not there is never replaced by the
 * main one. */
static void test_a_sandbox_may_be_under_another_policy_of_the_folder(void)
{
    send_file("other.json", OTHER_POLICY);
    send_file("No_Name.json", OTHER_POLICY);
    send_policy(MAIN_POLICY, 30);
    assert(loaded(30).ok && state_count == 2);
    assert(state_of("other")->is_in_force && state_of("test")->rules == 1);
    put_under("other", "agent-1 0 other none\n");

    send_file("other.json", "{\"rules\": 1}");
    send_policy(MAIN_POLICY, 31);
    assert(loaded(31).ok && state_of("other")->is_refused && state_of("other")->is_in_force);
    assert(strncmp(state_of("other")->text, "other.json:1:", 13) == 0);
    expect_greeting(ports[0], "agent-1 0 other none\n");

    send_policy(MAIN_POLICY, 32);
    assert(loaded(32).ok && !state_of("other"));
    expect_greeting(ports[0], "agent-1 0 none none\n");
    put_under("", "agent-1 0 main none\n");

    send_policy(with_token, 33);
    give_secret("TOKEN", "new");
    assert(loaded(33).ok);
}

/* One that stays in force when its file is refused keeps what it needs, as it is now. */
static void test_a_former_version_that_stays_in_force_has_its_secrets(void)
{
    send_file("other.json", with_token);
    send_policy(MAIN_POLICY, 40);
    give_secret("TOKEN", "old");
    assert(loaded(40).ok);
    put_under("other", "agent-1 0 first old\n");

    send_file("other.json", "{");
    send_policy(MAIN_POLICY, 41);
    give_secret("TOKEN", "fresh");
    assert(loaded(41).ok && state_of("other")->is_refused && state_of("other")->is_in_force);
    expect_greeting(ports[0], "agent-1 0 first fresh\n");

    send_policy(MAIN_POLICY, 42);
    assert(loaded(42).ok && !state_of("other"));
    put_under("", "agent-1 0 main none\n");
    send_policy(with_token, 43);
    give_secret("TOKEN", "new");
    assert(loaded(43).ok);
}

/* ------------------------------------------------------------------------ sandboxes */

/* CASES F5: on a kernel without IPv6 the sockets are of AF_INET. */
static void test_dns_works_on_sockets_of_ipv4(void)
{
    static const char query[] = "\0\1\1\0\0\1\0\0\0\0\0\0\1a\4test\0\0\1\0\1";
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {htonl(INADDR_LOOPBACK)},
                                  .sin_port = htons((uint16_t)dns_port)};
    cleanup_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    unsigned char answer[512];
    assert(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    const ssize_t len = sizeof(query) - 1;
    assert(send(fd, query, sizeof(query) - 1, 0) == len);
    assert(poll(&wait, 1, WAIT_MS) == 1);
    ssize_t n = recv(fd, answer, sizeof(answer), 0);
    assert(n == len + 16 && answer[7] == 1 && answer[n - 4] == 198);
}

static void test_a_detached_sandbox_is_served_no_more(void)
{
    cleanup_fd int kept = dial(ports[0]);
    assert(greeting(kept, WAIT_MS));
    detach("agent-1", "another boot");
    expect_greeting(ports[0], "agent-1 0 first new\n");
    detach("agent-1", "boot");
    const char *end = greeting(kept, WAIT_MS);
    assert(end && end[0] == '\0');
    int fd;
    for (int i = 0; (fd = dial(ports[0])) >= 0; i++) { /* until the listener is closed */
        assert(i < WAIT_MS / 10);
        close(fd);
        poll(NULL, 0, 10);
    }
}

static void test_an_attach_replaces_the_instance_before(void)
{
    attach("agent-2", "boot");
    cleanup_fd int kept = dial(ports[0]);
    assert(strcmp(greeting(kept, WAIT_MS), "agent-2 0 first new\n") == 0);
    attach("agent-2", "next boot");
    const char *end = greeting(kept, WAIT_MS);
    assert(end && end[0] == '\0');
    expect_greeting(ports[1], "agent-2 1 first new\n");
}

/* CASES A13: connections beyond what the descriptors allow wait, and are served in the end. */
static void test_scarce_descriptors_make_connections_wait(void)
{
    enum { COUNT = 200 };
    static int fds[COUNT];
    spawn(64);
    send_start();
    attach("agent-1", "boot");
    for (size_t i = 0; i < COUNT; i++)
        assert((fds[i] = dial(ports[0])) >= 0);
    size_t served = 0;
    while (served < COUNT && greeting(fds[served], 500))
        served++;
    assert(served >= 16 && served <= 32); /* half of the descriptors stay for upstreams */
    for (size_t i = 0; i < COUNT; i++)
        close(fds[i]);
    expect_greeting(ports[0], "agent-1 0 none none\n");
    close(sock);
    assert(child_status() == 0);
}

/* The protocol: nothing before EGRESS_START, which comes once. */
static void test_a_broken_protocol_ends_the_process(void)
{
    struct err err;
    struct msg_policy_load load = {0};
    spawn(0);
    assert(ipc_send(sock, IPC_POLICY_LOAD, 1, &load, NULL, 0, &err) == 0);
    assert(child_status() == 2);
    close(sock);
    spawn(0);
    send_start();
    send_start();
    assert(child_status() == 2);
    close(sock);
}

int main(void)
{
    spawn(0);
    send_start();
    attach("agent-1", "boot");
    test_a_policy_comes_into_force_with_its_secrets();
    test_a_bad_policy_leaves_the_one_in_force();
    test_a_missing_secret_makes_a_rule_inactive();
    test_a_newer_load_replaces_one_that_waits();
    test_a_sandbox_may_be_under_another_policy_of_the_folder();
    test_a_former_version_that_stays_in_force_has_its_secrets();
    test_dns_works_on_sockets_of_ipv4();
    test_a_detached_sandbox_is_served_no_more();
    test_an_attach_replaces_the_instance_before();
    close(sock); /* the supervisor is gone */
    assert(child_status() == 0);
    test_scarce_descriptors_make_connections_wait();
    test_a_broken_protocol_ends_the_process();
    return 0;
}
