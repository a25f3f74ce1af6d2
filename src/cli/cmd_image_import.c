/* paddock image import. */
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/upload.h"
#include "util/cleanup.h"
#include "json/json.h"

#define MIB (1024 * 1024)

/* What is told on a terminal while an archive is sent. */
struct sending {
    struct cli_upload *upload;
    int64_t sent;
    struct timespec began, told;
};

static double seconds_between(const struct timespec *from, const struct timespec *to)
{
    return (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_nsec - from->tv_nsec) / 1e9;
}

static void tell_progress(struct sending *sending)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!isatty(STDERR_FILENO) || seconds_between(&sending->told, &now) < 0.2)
        return;
    sending->told = now;
    double rate = (double)sending->sent / (seconds_between(&sending->began, &now) + 0.001);
    int64_t size = cli_upload_size(sending->upload);
    fprintf(stderr, "\r%" PRId64 " MiB sent, %.1f MiB/s", sending->sent / MIB, rate / MIB);
    if (size >= 0)
        fprintf(stderr, ", %.0f s left", (double)(size - sending->sent) / (rate + 1));
    fputs("\033[K", stderr);
}

static ssize_t on_read(void *ctx, char *data, size_t max)
{
    struct sending *sending = ctx;
    ssize_t n = cli_upload_read(sending->upload, data, max);
    sending->sent += n > 0 ? n : 0;
    tell_progress(sending);
    return n;
}

static void tell_image(const struct cli *cli, const struct buf *answer)
{
    cleanup_json struct json *json = NULL;
    if (cli->values[OPTION_JSON]) {
        cli_print_json(answer);
        return;
    }
    if (json_parse(buf_text(answer), answer->len, JSON_STRICT, &json, NULL) < 0)
        return;
    int64_t dropped = json_integer(json_get(json, "dropped"));
    printf("image %s: %" PRId64 " MiB\n", cli->args[0],
           json_integer(json_get(json, "sizeBytes")) / MIB);
    if (dropped)
        printf("left out: %" PRId64 " device nodes, sockets and FIFOs\n", dropped);
}

enum cli_exit cmd_image_import(struct cli *cli, struct err *err)
{
    char path[128];
    cleanup_upload struct cli_upload *upload = NULL;
    cleanup_reply struct cli_reply reply = {0};
    if (cli_upload_open(cli->args[1], &upload, err) < 0)
        return CLI_FAILED;
    struct sending sending = {.upload = upload};
    clock_gettime(CLOCK_MONOTONIC, &sending.began);
    sending.told = sending.began;
    snprintf(path, sizeof(path), "/images/%s", cli->args[0]);
    struct cli_request request = {.method = "PUT",
                                  .path = path,
                                  .content_type = "application/x-tar",
                                  .upload = on_read,
                                  .upload_bytes = cli_upload_size(upload),
                                  .ctx = &sending};
    enum cli_exit status = cli_ask(cli, &request, &reply, err);
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    if (cli_upload_error(upload)->message[0])
        return cli_fail(err, CLI_FAILED, "%s", cli_upload_error(upload)->message);
    if (status == CLI_OK)
        tell_image(cli, &reply.body);
    return status;
}
