/*
 * paddock-egress: the only way out of the sandboxes, and with --make-ca the one-shot that makes
 * their CA. Hears the supervisor on descriptor 3; the one-shot hears nobody and gets ca.key,
 * ca.crt, two empty memfds and its seccomp filter as 3 to 7. Confines itself before it reads a
 * single byte of either.
 */
#include <fcntl.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "egress/ca.h"
#include "egress/process.h"
#include "util/cleanup.h"
#include "util/confine.h"
#include "util/fd.h"
#include "util/limits.h"
#include "util/log.h"

#define MAKE_CA_KEY_FD 3
#define MAKE_CA_CRT_FD 4
#define MAKE_CA_OUT_FD 5
#define MAKE_CA_JAVA_FD 6
#define MAKE_CA_SECCOMP_FD 7
#define CA_DATES_CRT_FD 3
#define CA_DATES_OUT_FD 4

/* Landlock binds to inodes and these files are replaced by renaming: so folders, not files. Names
 * are resolved by the C library, which loads its modules when they are first wanted. */
static const char *const readable[] = {
    "/etc",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/usr/share/zoneinfo",
    "/run/systemd/resolve", /* where /etc/resolv.conf may lead */
    "/run/resolvconf",
    "/run/NetworkManager",
};

static int make_ca(struct err *err)
{
    int result = confine_privileges(geteuid() != 0, err);
    if (result == 0)
        result = confine_landlock(NULL, 0, err);
    if (result == 0)
        result = confine_seccomp(MAKE_CA_SECCOMP_FD, err);
    if (result == 0)
        result =
            egress_ca_make(MAKE_CA_KEY_FD, MAKE_CA_CRT_FD, MAKE_CA_OUT_FD, MAKE_CA_JAVA_FD, err);
    return result;
}

/* For paddockd's doctor: when the CA's certificate (descriptor 3) begins and ends, as two numbers
 * of Unix seconds into descriptor 4. */
static int tell_ca_dates(struct err *err)
{
    int64_t begin, end;
    int result = confine_privileges(geteuid() != 0, err);
    if (result == 0)
        result = confine_landlock(NULL, 0, err);
    if (result == 0)
        result = egress_ca_dates(CA_DATES_CRT_FD, &begin, &end, err);
    if (result == 0 &&
        dprintf(CA_DATES_OUT_FD, "%lld %lld\n", (long long)begin, (long long)end) < 0)
        result = err_errno(err, errno, "cannot tell the dates");
    return result;
}

/* As many connections as the supervisor allows us. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Libraries read their configuration here, while that is ours alone; then the doors are shut. Under
 * the root of a user namespace the capabilities cannot be given up: the other walls hold. */
static int confine(struct err *err)
{
    int result = confine_privileges(geteuid() != 0, err);
    if (result < 0)
        return result;
    if (!OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL))
        return err_set(err, EIO, "cannot start OpenSSL");
    raise_descriptor_limit();
    result = confine_landlock(readable, ARRAY_LEN(readable), err);
    return result < 0 ? result : confine_seccomp(CONFINE_FD_SECCOMP, err);
}

static int serve(struct err *err)
{
    setenv("UV_THREADPOOL_SIZE", LIMIT_EGRESS_THREADS, 1);
    int result = confine(err);
    if (result == 0)
        result = fd_set_cloexec(CONFINE_FD_SUPERVISOR, true);
    return result < 0 ? result : egress_process_run(CONFINE_FD_SUPERVISOR, err);
}

int main(int argc, char **argv)
{
    struct err err = {0};
    bool is_make_ca = argc == 2 && strcmp(argv[1], "--make-ca") == 0;
    bool is_ca_dates = argc == 2 && strcmp(argv[1], "--ca-dates") == 0;
    log_init("paddock-egress", LOG_INFO);
    signal(SIGPIPE, SIG_IGN);
    if (!is_make_ca && !is_ca_dates && (argc != 2 || !log_take_argument(argv[1]))) {
        log_error("these arguments make no sense; paddockd starts this program");
        return 2;
    }
    int result = is_make_ca ? make_ca(&err) : is_ca_dates ? tell_ca_dates(&err) : serve(&err);
    if (result < 0)
        log_error("%s", err.message);
    return result < 0;
}
