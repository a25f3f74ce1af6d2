/* Progress of long work: one line on a terminal's standard error, written over and over. Where that
 * is no terminal nothing is told. */
#include "cli/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "util/cleanup.h"
#include "util/clock.h"

#define TELL_MS 200 /* from one line to the next */
#define COLUMNS_DEFAULT 80
#define TEXT_BYTES 200
#define LINE_BYTES (16 * TEXT_BYTES)

void cli_progress_begin(struct cli_progress *progress)
{
    *progress = (struct cli_progress){.is_wanted = isatty(STDERR_FILENO) == 1,
                                      .began_ms = clock_monotonic_ms()};
}

double cli_progress_seconds(const struct cli_progress *progress)
{
    return (double)(clock_monotonic_ms() - progress->began_ms) / 1000;
}

bool cli_progress_is_due(const struct cli_progress *progress)
{
    return progress->is_wanted && clock_monotonic_ms() - progress->told_ms >= TELL_MS;
}

/* One less than there are: a terminal that wraps would keep the line. */
static size_t columns(void)
{
    struct winsize size;
    bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return (size_t)(is_known ? size.ws_col : COLUMNS_DEFAULT) - 1;
}

void cli_progress_tell(struct cli_progress *progress, const char *text)
{
    cleanup_buf struct buf line = BUF_INIT(LINE_BYTES);
    if (!progress->is_wanted || cli_text_append(&line, text, strlen(text), true, TEXT_BYTES) < 0)
        return;
    size_t most = columns();
    size_t len = line.len < most ? line.len : most;
    while (len && len < line.len && ((unsigned char)line.data[len] & 0xc0) == 0x80)
        len--; /* no half of a character */
    fprintf(stderr, "\r%.*s\033[K", (int)len, buf_text(&line));
    progress->is_shown = true;
    progress->told_ms = clock_monotonic_ms();
}

void cli_progress_clear(struct cli_progress *progress)
{
    if (progress->is_shown)
        fputs("\r\033[K", stderr);
    progress->is_shown = false;
}

void cli_progress_left(double done, double seconds, char *ret, size_t size)
{
    ret[0] = '\0';
    if (!(done > 0 && done <= 1))
        return;
    double left = seconds * (1 - done) / done;
    if (left < 600)
        snprintf(ret, size, ", %.0f s left", left);
    else
        snprintf(ret, size, ", %.0f min left", left / 60);
}

double cli_progress_share(const char *text)
{
    const char *percent = strchr(text, '%');
    const char *digits = percent;
    while (digits && digits > text && strchr("0123456789", digits[-1]))
        digits--;
    if (!percent || digits == percent || percent - digits > 3)
        return -1;
    double share = (double)strtol(digits, NULL, 10) / 100;
    return share <= 1 ? share : -1;
}
