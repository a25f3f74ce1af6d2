/*
 * paddock-api: the REST API. Runs as a user of its own without capabilities, sees no file system,
 * and may neither connect nor start anything. Hears: clients on the listening sockets that the
 * supervisor passes, and the supervisor on descriptor 3; ends when the supervisor is gone, and is
 * started again by the next one.
 */
#include <signal.h>
#include <sys/resource.h>
#include <uv.h>

#include "api/api.h"
#include "ipc/ipc.h"
#include "util/confine.h"
#include "util/fd.h"
#include "util/log.h"

static void on_lost(void *ctx, const char *reason)
{
    log_info("ending: %s", reason);
    uv_stop(ctx);
}

/* Each connection is a descriptor, and each run two more. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int confine(struct err *err)
{
    int r = confine_privileges(1, err);
    if (r == 0)
        r = confine_landlock(NULL, 0, err);
    if (r == 0)
        r = confine_seccomp(CONFINE_FD_SECCOMP, err);
    return r;
}

int main(int argc, char **argv)
{
    static uv_loop_t loop;
    struct api *api = NULL;
    struct err err;
    log_init("paddock-api", LOG_INFO);
    if (argc != 2 || !log_take_argument(argv[1])) {
        log_error("paddock-api is started by paddockd");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    raise_descriptor_limit();
    if (fd_set_cloexec(CONFINE_FD_SUPERVISOR, true) < 0) {
        log_error("descriptor 3 is not there: paddock-api is started by paddockd");
        return 2;
    }
    if (uv_loop_init(&loop) < 0 || api_open(&loop, CONFINE_FD_SUPERVISOR, LIMIT_API_EVENT_MS,
                                            on_lost, &loop, &api, &err) < 0) {
        log_error("cannot start: %s", err.message);
        return 1;
    }
    if (confine(&err) < 0) { /* before the first byte of a client */
        log_error("refusing to run: %s", err.message);
        return 1;
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    return 0;
}
