/*
 * The start bench: client of our API and launcher of its peers in one program, in turn, so that all
 * are timed by the same clock and meet the same machine. The clock runs from before connect(2) or
 * posix_spawn(3) to the first byte of the probe's output. Each of our starts uses a name that was
 * never there; one at a time, it is checked afterwards: its confinement, and its limits in the
 * cgroup files.
 *
 *   bench_start start SOCKET COUNT WARM-UP PEER...   each of ours and of the peers, in turn
 *   bench_start exec SOCKET COUNT WARM-UP PEER       in the running sandbox "running"
 *   bench_start many SOCKET COUNT WARM-UP PEER       COUNT times as many at once as MANY
 *
 * A PEER is NAME=COMMAND LINE; its words are split at spaces, {nonce} and {id} are replaced.
 * Prints "NAME<TAB>microseconds" per measured run, "ours" for us.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROBE "/usr/local/bin/paddock-probe"
#define MANY 50
#define WORDS 64
extern char **environ;

static void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
static void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (sock < 0 || connect(sock, (struct sockaddr *)&address, sizeof(address)) < 0)
        fail("cannot connect to %s: %s", path, strerror(errno));
    return sock;
}

/* Sends a request and reads the answer until `mark` is in it (NULL: to its end). */
static void request(const char *socket_path, const char *method, const char *path, const char *body,
                    const char *mark, char answer[8192])
{
    int sock = connect_to(socket_path);
    char text[4096];
    int len = snprintf(text, sizeof(text),
                       "%s %s HTTP/1.1\r\nHost: paddock\r\nConnection: close\r\n"
                       "Content-Length: %zu\r\n\r\n%s",
                       method, path, strlen(body), body);
    if (write(sock, text, (size_t)len) != len)
        fail("cannot send a request");
    size_t have = 0;
    answer[0] = '\0';
    while (have < 8191 && !(mark && strstr(answer, mark))) {
        ssize_t n = read(sock, answer + have, 8191 - have);
        if (n <= 0)
            break;
        have += (size_t)n;
        answer[have] = '\0';
    }
    close(sock);
    if (mark && !strstr(answer, mark))
        fail("%s %s: no %s in the answer: %s", method, path, mark, answer);
}

static char wanted_group[128];
static int limits_seen;

static int look_at_group(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    if (kind != FTW_F || !strstr(path, wanted_group))
        return 0;
    const char *name = path + ftw->base;
    if (strcmp(name, "memory.limit_in_bytes") && strcmp(name, "memory.max") &&
        strcmp(name, "pids.max") && strcmp(name, "cpu.cfs_quota_us") && strcmp(name, "cpu.max"))
        return 0;
    char value[64] = "";
    FILE *file = fopen(path, "re");
    if (file) {
        if (fgets(value, sizeof(value), file) && value[0] >= '1' && value[0] <= '9' &&
            strtoll(value, NULL, 10) < (1LL << 60))
            limits_seen++;
        fclose(file);
    }
    return 0;
}

/* `shared`: of how many of the kinds, from the first on, the peer makes none of its own. */
static void check_namespaces(const char *output, size_t shared)
{
    static const char *const kinds[] = {"user", "cgroup", "mnt", "pid", "net", "ipc", "uts"};
    for (size_t i = shared; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        char path[64];
        char own[64];
        snprintf(path, sizeof(path), "/proc/self/ns/%s", kinds[i]);
        ssize_t len = readlink(path, own, sizeof(own) - 1);
        if (len < 0)
            fail("cannot read %s", path);
        own[len] = '\0';
        if (strstr(output, own))
            fail("the probe shares the host's %s namespace", kinds[i]);
    }
    if (!strstr(output, "cgroup:["))
        fail("the probe told no namespaces: %s", output);
}

static void check_instance(const char *socket_path, const char *name, const char *nonce)
{
    char path[128];
    char body[256];
    char answer[8192];
    snprintf(path, sizeof(path), "/sandboxes/%s/exec", name);
    snprintf(body, sizeof(body), "{\"argv\":[\"" PROBE "\",\"%s\",\"check\"]}", nonce);
    request(socket_path, "POST", path, body, "port443", answer);
    static const char *const wanted[] = {"Seccomp:\\t2", "NoNewPrivs:\\t1", "uid 1000", "overlay 1",
                                         "port443 1"};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        if (!strstr(answer, wanted[i]))
            fail("%s: no \"%s\" in: %s", name, wanted[i], answer);
    const char *boot_id = strstr(answer, "boot_id ");
    if (!boot_id)
        fail("%s: no boot id in: %s", name, answer);
    snprintf(wanted_group, sizeof(wanted_group), "/%.36s/", boot_id + strlen("boot_id "));
    limits_seen = 0;
    nftw("/sys/fs/cgroup", look_at_group, 32, FTW_PHYS);
    if (limits_seen < 3)
        fail("%s: %d of the limits memory, cpu, pids are in force", name, limits_seen);
}

/* A program on its way to its first output. */
struct run {
    char nonce[64];
    int fd; /* its output, or the answer to the request */
    pid_t pid;
    char output[2048];
    size_t len;
};

static void make_nonce(struct run *run)
{
    static int count;
    snprintf(run->nonce, sizeof(run->nonce), "nonce-%lld-%d", (long long)now_us(), count++);
}

static void begin_ours(struct run *run, const char *socket_path, const char *name)
{
    char text[1024];
    char body[256];
    snprintf(body, sizeof(body), "{\"argv\":[\"" PROBE "\",\"%s\"]}", run->nonce);
    int len = snprintf(text, sizeof(text),
                       "POST /sandboxes/%s/exec HTTP/1.1\r\nHost: paddock\r\n"
                       "Accept: text/event-stream\r\nContent-Length: %zu\r\n\r\n%s",
                       name, strlen(body), body);
    run->fd = connect_to(socket_path);
    if (write(run->fd, text, (size_t)len) != len)
        fail("cannot send a request");
}

/* The words of a command line with {nonce} and {id} put in. */
static void split(const char *line, const struct run *run, char *room, size_t size,
                  char *argv[WORDS])
{
    size_t at = 0;
    int argc = 0;
    while (*line && argc < WORDS - 1) {
        size_t len = strcspn(line, " ");
        const char *value = line;
        size_t value_len = len;
        if (strncmp(line, "{nonce}", len) == 0 || strncmp(line, "{id}", len) == 0) {
            value = run->nonce;
            value_len = strlen(value);
        }
        if (at + value_len + 1 > size)
            fail("the command line is too long");
        argv[argc++] = memcpy(room + at, value, value_len);
        room[at + value_len] = '\0';
        at += value_len + 1;
        line += len + strspn(line + len, " ");
    }
    argv[argc] = NULL;
}

static void begin_peer(struct run *run, char *const argv[])
{
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) < 0)
        fail("pipe: %s", strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], STDOUT_FILENO);
    if (posix_spawnp(&run->pid, argv[0], &actions, NULL, argv, environ) != 0)
        fail("cannot start %s", argv[0]);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[1]);
    run->fd = pipes[0];
}

/* Reads once. True when the line of the probe is there. */
static int read_output(struct run *run)
{
    ssize_t n = read(run->fd, run->output + run->len, sizeof(run->output) - 1 - run->len);
    if (n <= 0)
        fail("it ended without the probe's output: %s", run->output);
    run->len += (size_t)n;
    run->output[run->len] = '\0';
    return strstr(run->output, "uts:[") != NULL;
}

static void end_peer(struct run *run)
{
    close(run->fd);
    int status;
    if (waitpid(run->pid, &status, 0) != run->pid || status != 0)
        fail("a peer ended with status %d", status);
}

/* One of a peer; `shared` as check_namespaces has it. Microseconds. */
static int64_t run_peer(const char *line, size_t shared)
{
    struct run run = {0};
    char room[2048];
    char *argv[WORDS];
    make_nonce(&run);
    split(line, &run, room, sizeof(room), argv);
    int64_t begin = now_us();
    begin_peer(&run, argv);
    while (!read_output(&run))
        ;
    int64_t end = now_us();
    check_namespaces(run.output, shared);
    if (strstr(line, "{nonce}") && !strstr(run.output, run.nonce))
        fail("another's output: %s", run.output);
    end_peer(&run);
    return end - begin;
}

static int64_t run_ours(const char *socket_path, const char *name)
{
    struct run run = {0};
    make_nonce(&run);
    int64_t begin = now_us();
    begin_ours(&run, socket_path, name);
    while (!read_output(&run))
        ;
    int64_t end = now_us();
    check_namespaces(run.output, 0);
    if (!strstr(run.output, run.nonce))
        fail("another's output: %s", run.output);
    close(run.fd);
    return end - begin;
}

static void fresh_name(char ret[64])
{
    static int count;
    snprintf(ret, 64, "bench-%d-%d", (int)getpid(), count++);
}

static void remove_sandbox(const char *socket_path, const char *name)
{
    char path[128];
    char answer[8192];
    snprintf(path, sizeof(path), "/sandboxes/%.63s", name);
    request(socket_path, "DELETE", path, "", "HTTP/1.1 2", answer);
}

static int64_t start_ours(const char *socket_path)
{
    char name[64];
    char nonce[80];
    fresh_name(name);
    int64_t took = run_ours(socket_path, name);
    snprintf(nonce, sizeof(nonce), "check-%s", name);
    check_instance(socket_path, name, nonce);
    remove_sandbox(socket_path, name);
    return took;
}

/* From the first to the last one's output. */
static int64_t wait_for_many(struct run runs[MANY], int64_t begin)
{
    struct pollfd polled[MANY];
    int left = MANY;
    for (int i = 0; i < MANY; i++)
        polled[i] = (struct pollfd){.fd = runs[i].fd, .events = POLLIN};
    while (left) {
        if (poll(polled, MANY, 60000) <= 0)
            fail("%d of %d did not come", left, MANY);
        for (int i = 0; i < MANY; i++)
            if (polled[i].revents && read_output(&runs[i])) {
                polled[i].fd = -1;
                left--;
            }
    }
    return now_us() - begin;
}

static int64_t many_ours(const char *socket_path)
{
    static struct run runs[MANY];
    static char names[MANY][64];
    memset(runs, 0, sizeof(runs));
    int64_t begin = now_us();
    for (int i = 0; i < MANY; i++) {
        make_nonce(&runs[i]);
        fresh_name(names[i]);
        begin_ours(&runs[i], socket_path, names[i]);
    }
    int64_t took = wait_for_many(runs, begin);
    for (int i = 0; i < MANY; i++) {
        check_namespaces(runs[i].output, 0);
        close(runs[i].fd);
        remove_sandbox(socket_path, names[i]);
    }
    return took;
}

static int64_t many_peers(const char *line)
{
    static struct run runs[MANY];
    char room[2048];
    char *argv[WORDS];
    memset(runs, 0, sizeof(runs));
    int64_t begin = now_us();
    for (int i = 0; i < MANY; i++) {
        make_nonce(&runs[i]);
        split(line, &runs[i], room, sizeof(room), argv);
        begin_peer(&runs[i], argv);
    }
    int64_t took = wait_for_many(runs, begin);
    for (int i = 0; i < MANY; i++) {
        check_namespaces(runs[i].output, 0);
        end_peer(&runs[i]);
    }
    return took;
}

static void tell(int number, const char *who, size_t who_len, int64_t took)
{
    if (number >= 0)
        printf("%.*s\t%lld\n", (int)who_len, who, (long long)took);
}

int main(int argc, char **argv)
{
    if (argc < 5)
        fail("usage: bench_start start|exec|many SOCKET COUNT WARM-UP [NAME=COMMAND...]");
    signal(SIGPIPE, SIG_IGN);
    const char *mode = argv[1];
    const char *socket_path = argv[2];
    int count = atoi(argv[3]);
    for (int number = -atoi(argv[4]); number < count; number++) {
        int64_t took = strcmp(mode, "start") == 0  ? start_ours(socket_path)
                       : strcmp(mode, "exec") == 0 ? run_ours(socket_path, "running")
                                                   : many_ours(socket_path);
        tell(number, "ours", 4, took);
        for (int i = 5; i < argc; i++) {
            size_t len = strcspn(argv[i], "=");
            const char *line = argv[i] + len + 1;
            bool is_runc =
                strncmp(argv[i], "runc=", 5) == 0; /* makes no user, no cgroup namespace */
            took = strcmp(mode, "many") == 0 ? many_peers(line) : run_peer(line, is_runc ? 2 : 0);
            tell(number, argv[i], len, took);
        }
    }
    return 0;
}
