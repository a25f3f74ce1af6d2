/* A static program that the tests run inside a sandbox. Prints what it finds, one fact a line. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void print_file(const char *key, const char *path)
{
    char text[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (n < 0) {
        printf("%s=errno %s\n", key, strerrorname_np(errno));
        return;
    }
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    printf("%s=%s\n", key, text);
}

static void print_result(const char *key, long result)
{
    printf("%s=%s\n", key, result < 0 ? strerrorname_np(errno) : "ok");
}

static void print_status(void)
{
    char line[256];
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof(line), file)) {
        static const char *const wanted[] = {
            "Uid:",    "Gid:",    "Groups:",     "CapInh:",  "CapPrm:", "CapEff:",
            "CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp:", "NSpid:"};
        for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
            if (strncmp(line, wanted[i], strlen(wanted[i])) == 0)
                fputs(line, stdout);
    }
    if (file)
        fclose(file);
}

static void print_refusals(void)
{
    print_result("vsock", socket(AF_VSOCK, SOCK_STREAM, 0));
    print_result("vsock-high-bit", syscall(SYS_socket, 0x100000000L | AF_VSOCK, SOCK_STREAM, 0));
    print_result("alg", socket(AF_ALG, SOCK_SEQPACKET, 0));
    print_result("netlink-route", socket(AF_NETLINK, SOCK_RAW, 0));
    print_result("netlink-audit", socket(AF_NETLINK, SOCK_RAW, 9));
    print_result("inet", socket(AF_INET, SOCK_STREAM, 0));
    print_result("raw", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    print_result("unshare-user", unshare(CLONE_NEWUSER));
    print_result("unshare-files", unshare(CLONE_FILES));
    print_result("clone-user", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL));
    print_result("clone3", syscall(SYS_clone3, NULL, 0));
    print_result("mount", mount("x", "/tmp", "tmpfs", 0, NULL));
    print_result("tiocsti", ioctl(0, TIOCSTI, "x"));
    print_result("tiocsti-high-bit", syscall(SYS_ioctl, 0, 0x100000000L | TIOCSTI, "x"));
    print_result("tcgets", ioctl(0, TCGETS, NULL));
    print_result("io-uring", syscall(SYS_io_uring_setup, 1, NULL));
    print_result("new-call", syscall(9999));
    print_result("int80-like-x32", syscall(0x40000000L | 39));
}

static int write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int result = fd < 0 || write(fd, text, strlen(text)) < 0 ? -1 : 0;
    if (fd >= 0)
        close(fd);
    return result;
}

static int run_facts(void)
{
    struct stat st;
    print_status();
    print_refusals();
    print_file("hostname", "/proc/sys/kernel/hostname");
    print_file("boot-id", "/proc/sys/kernel/random/boot_id");
    print_file("etc-hostname", "/etc/hostname");
    print_file("resolver", "/etc/resolv.conf");
    print_file("trust", "/etc/ssl/certs/ca-certificates.crt");
    print_file("trust-local", "/usr/local/share/ca-certificates/paddock.crt");
    print_file("keys", "/proc/keys");
    print_file("cgroup", "/proc/self/cgroup");
    print_file("tw-reuse", "/proc/sys/net/ipv4/tcp_tw_reuse");
    print_file("tcp-wmem", "/proc/sys/net/ipv4/tcp_wmem");
    print_result("proc-sys-write", write_text("/proc/sys/net/ipv4/tcp_tw_reuse", "0"));
    print_result("sys", stat("/sys/kernel", &st));
    print_result("workspace-write", write_text("/workspace/by-agent", "x"));
    print_result("task-write", write_text("/workspace/task/by-agent", "x"));
    print_result("task-rename", rename("/workspace/task", "/workspace/task2"));
    print_result("upper-write", write_text("/home/agent/by-agent", "x"));
    print_result("etc-write", write_text("/etc/by-agent", "x"));
    /* Of its own name: fs.protected_regular forbids even root to open another's file there. */
    print_result("tmp-write", write_text(geteuid() == 0 ? "/tmp/by-root" : "/tmp/by-agent", "x"));
    print_result("kill-init", kill(1, SIGKILL));
    print_result("init-fds", open("/proc/1/fd/5", O_RDONLY));
    print_result("dev-null", write_text("/dev/null", "x"));
    print_result("stdout-reopen", open("/dev/stdout", O_WRONLY));
    printf("cwd=%s\n", getcwd((char[256]){0}, 256));
    printf("home=%s extra=%s\n", getenv("HOME"), getenv("EXTRA") ? getenv("EXTRA") : "none");
    return 0;
}

/* Connects and prints what the other end sends. */
static int run_connect(const char *host, const char *port)
{
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = htons((in_port_t)atoi(port))};
    struct sockaddr_in to4 = {.sin_family = AF_INET, .sin_port = htons((in_port_t)atoi(port))};
    int is6 = inet_pton(AF_INET6, host, &to6.sin6_addr) == 1;
    if (!is6 && inet_pton(AF_INET, host, &to4.sin_addr) != 1)
        return 2;
    int sock = socket(is6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr *to = is6 ? (const struct sockaddr *)&to6 : (const struct sockaddr *)&to4;
    if (connect(sock, to, is6 ? sizeof(to6) : sizeof(to4)) < 0) {
        printf("connect=%s\n", strerrorname_np(errno));
        return 1;
    }
    char text[256];
    ssize_t n = read(sock, text, sizeof(text) - 1);
    printf("connect=%.*s\n", (int)(n > 0 ? n : 0), text);
    return 0;
}

static _Noreturn void run_stubborn(void)
{
    if (fork() == 0) {
        setsid();
        for (;;)
            pause();
    }
    signal(SIGTERM, SIG_IGN);
    puts("stubborn");
    fflush(stdout);
    for (;;)
        pause();
}

/* Takes memory until it is killed. */
static _Noreturn void run_eat(void)
{
    for (;;) {
        char *page = malloc(1 << 20);
        if (page)
            memset(page, 1, 1 << 20);
    }
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    if (strcmp(verb, "facts") == 0)
        return run_facts();
    if (strcmp(verb, "echo") == 0 && argc > 2)
        return puts(argv[2]) < 0;
    if (strcmp(verb, "exit") == 0 && argc > 2)
        return atoi(argv[2]);
    if (strcmp(verb, "connect") == 0 && argc > 3)
        return run_connect(argv[2], argv[3]);
    if (strcmp(verb, "stubborn") == 0)
        run_stubborn();
    if (strcmp(verb, "wait") == 0)
        for (;;)
            pause();
    if (strcmp(verb, "eat") == 0)
        run_eat();
    if (strcmp(verb, "both") == 0)
        return fputs("out\n", stdout) < 0 || fputs("err\n", stderr) < 0;
    if (strcmp(verb, "leave") == 0) { /* ends while a child holds its output */
        if (fork() == 0)
            for (;;)
                pause();
        return puts("hi") < 0;
    }
    if (strcmp(verb, "spoil") == 0) { /* as root: what an agent may leave in the way */
        unlink("/etc/resolv.conf");
        unlink("/etc/hosts");
        unlink("/etc/hostname");
        unlink("/etc/passwd");
        return mkfifo("/etc/resolv.conf", 0600) || mkdir("/etc/hosts", 0700) ||
               symlink("/proc/self/mem", "/etc/hostname") || mkfifo("/etc/passwd", 0600);
    }
    return 2;
}
