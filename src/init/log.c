/* What a task prints, from its pipes to its files; see init.h. The task holds a pipe and never the
 * file, so that it can neither truncate nor rewrite what it said. */
#include <fcntl.h>
#include <unistd.h>

#include "init/init.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"

#define CHUNK (64 * 1024)
/* Turns of one call: others are served in between. */
#define CHUNKS_PER_PUMP 16

static const char cut_mark[] = "\n[paddock: the log ends here, the rest was dropped]\n";

static void cut(struct init_log *log)
{
    if (log->is_cut)
        return;
    log->is_cut = true;
    /* On a full disk the mark is lost too; end.json tells it as well. */
    if (fd_write_all(log->file_fd, cut_mark, sizeof(cut_mark) - 1) == 0)
        log->written += (int64_t)sizeof(cut_mark) - 1;
}

/* The bytes are read and dropped, so that the task never stands still for a full log. */
static ssize_t drop(struct init_log *log)
{
    static char sink[CHUNK];
    return read(log->pipe_fd, sink, sizeof(sink));
}

static ssize_t move_chunk(struct init_log *log)
{
    int64_t room = log->max_bytes - log->written;
    if (log->is_cut)
        return drop(log);
    if (room <= 0) {
        ssize_t n = drop(log);
        if (n > 0)
            cut(log);
        return n;
    }
    ssize_t n = splice(log->pipe_fd, NULL, log->file_fd, NULL, room < CHUNK ? (size_t)room : CHUNK,
                       SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n > 0)
        log->written += n;
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        cut(log); /* the disk is full */
        return drop(log);
    }
    return n;
}

bool log_pump(struct init_log *log)
{
    int64_t before = log->written;
    for (int i = 0; log->pipe_fd >= 0 && i < CHUNKS_PER_PUMP; i++) {
        ssize_t n = move_chunk(log);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break; /* empty for now */
        if (n == 0) {
            loop_unwatch(log->pipe_fd);
            close(TAKE_FD(log->pipe_fd));
        }
    }
    return log->written != before;
}

void log_close(struct init_log *log)
{
    if (log->pipe_fd >= 0)
        loop_unwatch(log->pipe_fd);
    cleanup_fd_at(&log->pipe_fd);
    cleanup_fd_at(&log->file_fd);
    log->pipe_fd = -1;
    log->file_fd = -1;
}
