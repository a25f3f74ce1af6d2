/*
 * The start bench: client of our API and launcher of bwrap in one program, in turn, so that both
 * are timed by the same clock and meet the same machine. The clock runs from before connect(2) or
 * posix_spawn(3) to the first byte of the probe's output. Each of our runs uses a name that was
 * never there, and is checked afterwards: its confinement, and its limits in the cgroup files.
 *
 *   bench_start SOCKET COUNT WARM-UP BWRAP...    (BWRAP...: its command line but the probe's part)
 * prints "ours<TAB>microseconds" and "bwrap<TAB>microseconds" per run.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
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

static void check_namespaces(const char *output)
{
    static const char *const kinds[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
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
    snprintf(wanted_group, sizeof(wanted_group), "%s/", name);
    limits_seen = 0;
    nftw("/sys/fs/cgroup", look_at_group, 32, FTW_PHYS);
    if (limits_seen < 3)
        fail("%s: %d of the limits memory, cpu, pids are in force", name, limits_seen);
}

static void run_ours(const char *socket_path, int number)
{
    char name[64];
    char nonce[64];
    char path[128];
    char body[256];
    char answer[8192];
    snprintf(name, sizeof(name), "bench-%d-%d", (int)getpid(), number);
    snprintf(nonce, sizeof(nonce), "nonce-%lld-%d", (long long)now_us(), number);
    snprintf(path, sizeof(path), "/sandboxes/%s/exec", name);
    snprintf(body, sizeof(body), "{\"argv\":[\"" PROBE "\",\"%s\"]}", nonce);
    int64_t begin = now_us();
    request(socket_path, "POST", path, body, nonce, answer);
    int64_t end = now_us();
    check_namespaces(answer);
    check_instance(socket_path, name, nonce);
    snprintf(path, sizeof(path), "/sandboxes/%s", name);
    request(socket_path, "DELETE", path, "", "HTTP/1.1 2", answer);
    printf("ours\t%lld\n", (long long)(end - begin));
}

static void run_bwrap(char **prefix, int prefix_len, int number)
{
    char nonce[64];
    char *argv[64];
    int argc = 0;
    snprintf(nonce, sizeof(nonce), "nonce-%lld-%d", (long long)now_us(), number);
    for (; argc < prefix_len && argc < 60; argc++)
        argv[argc] = prefix[argc];
    char probe[] = PROBE;
    argv[argc++] = probe;
    argv[argc++] = nonce;
    argv[argc] = NULL;
    int64_t begin = now_us();
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) < 0)
        fail("pipe: %s", strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], STDOUT_FILENO);
    pid_t pid;
    if (posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ) != 0)
        fail("cannot start %s", argv[0]);
    close(pipes[1]);
    char output[1024];
    ssize_t len = read(pipes[0], output, sizeof(output) - 1);
    int64_t end = now_us();
    output[len > 0 ? len : 0] = '\0';
    if (!strstr(output, nonce))
        fail("bwrap: no nonce in its output");
    check_namespaces(output);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[0]);
    waitpid(pid, NULL, 0);
    printf("bwrap\t%lld\n", (long long)(end - begin));
}

int main(int argc, char **argv)
{
    if (argc < 5)
        fail("usage: bench_start SOCKET COUNT WARM-UP BWRAP...");
    signal(SIGPIPE, SIG_IGN);
    int count = atoi(argv[2]);
    int warm = atoi(argv[3]);
    for (int number = -warm; number < count; number++) {
        if (number == 0) {
            fflush(stdout);
            printf("measured\t0\n");
        }
        run_ours(argv[1], number + warm);
        run_bwrap(argv + 4, argc - 4, number + warm);
    }
    return 0;
}
