/*
 * The program whose first output the start bench waits for: static, so that both sandboxes load the
 * same bytes. `probe NONCE` prints the nonce and its namespaces in one write; `probe NONCE check`
 * then tells what confines it.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *const namespaces[] = {"user", "cgroup", "mnt", "pid", "net", "ipc", "uts"};

static void print_namespaces(const char *nonce)
{
    char line[1024];
    int at = snprintf(line, sizeof(line), "%s", nonce);
    for (size_t i = 0; i < sizeof(namespaces) / sizeof(namespaces[0]); i++) {
        char path[64];
        char value[64];
        snprintf(path, sizeof(path), "/proc/self/ns/%s", namespaces[i]);
        ssize_t len = readlink(path, value, sizeof(value));
        at +=
            snprintf(line + at, sizeof(line) - (size_t)at, " %.*s", len < 0 ? 0 : (int)len, value);
    }
    line[at++] = '\n';
    ssize_t n = write(STDOUT_FILENO, line, (size_t)at);
    (void)n;
}

static int can_write_overlay(void)
{
    int fd = open("/home/agent/.probe", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return 0;
    close(fd);
    return 1;
}

static int port_answers(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(443)};
    inet_pton(AF_INET, "198.18.0.1", &address.sin_addr);
    int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int answers = connect(sock, (struct sockaddr *)&address, sizeof(address)) == 0;
    close(sock);
    return answers;
}

static void print_status_lines(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, "Seccomp:", 8) == 0 || strncmp(line, "NoNewPrivs:", 11) == 0)
            printf("%s", line);
    if (file)
        fclose(file);
}

/* Names the instance's control groups outside. */
static void print_boot_id(void)
{
    char line[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file && fgets(line, sizeof(line), file))
        printf("boot_id %s", line);
    if (file)
        fclose(file);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    print_namespaces(argv[1]);
    if (argc < 3)
        return 0;
    print_status_lines();
    print_boot_id();
    printf("uid %d\noverlay %d\nport443 %d\n", (int)getuid(), can_write_overlay(), port_answers());
    return 0;
}
