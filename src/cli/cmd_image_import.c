/* paddock image import. */
#include <inttypes.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/upload.h"
#include "util/cleanup.h"
#include "json/json.h"

#define MIB (1024 * 1024)

struct sending {
    struct cli_upload *upload;
    int64_t sent;
    bool is_sent;
    struct cli_progress progress;
};

static void tell_progress(struct sending *sending)
{
    char text[160], left[40] = "";
    double seconds = cli_progress_seconds(&sending->progress);
    int64_t size = cli_upload_size(sending->upload);
    if (!cli_progress_is_due(&sending->progress))
        return;
    if (size > 0)
        cli_progress_left((double)sending->sent / (double)size, seconds, left, sizeof(left));
    snprintf(text, sizeof(text), "%" PRId64 " MiB sent, %.1f MiB/s%s", sending->sent / MIB,
             (double)sending->sent / MIB / (seconds + 0.001), left);
    cli_progress_tell(&sending->progress, text);
}

/* Everything is sent: it is unpacked now. */
static void on_time(void *ctx)
{
    struct sending *sending = ctx;
    if (sending->is_sent && cli_progress_is_due(&sending->progress))
        cli_progress_tell(&sending->progress, "sent; the daemon unpacks the rest");
}

static ssize_t on_read(void *ctx, char *data, size_t max)
{
    struct sending *sending = ctx;
    ssize_t n = cli_upload_read(sending->upload, data, max);
    sending->sent += n > 0 ? n : 0;
    sending->is_sent = n == 0;
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
    const char *user = json_text(json_get(json, "user"));
    printf("image %s: %" PRId64 " MiB\n", cli->args[0],
           json_integer(json_get(json, "sizeBytes")) / MIB);
    if (dropped)
        printf("left out: %" PRId64 " device nodes, sockets and FIFOs\n", dropped);
    if (user && user[0])
        printf("its user %s is not used: programs in a sandbox run as agent (uid 1000) or root\n",
               user);
}

enum cli_exit cmd_image_import(struct cli *cli, struct err *err)
{
    char path[128];
    cleanup_upload struct cli_upload *upload = NULL;
    cleanup_reply struct cli_reply reply = {0};
    if (cli_upload_open(cli->args[1], &upload, err) < 0)
        return CLI_FAILED;
    struct sending sending = {.upload = upload};
    cli_progress_begin(&sending.progress);
    snprintf(path, sizeof(path), "/images/%s", cli->args[0]);
    struct cli_request request = {.method = "PUT",
                                  .path = path,
                                  .content_type = "application/x-tar",
                                  .upload = on_read,
                                  .upload_bytes = cli_upload_size(upload),
                                  .on_time = on_time,
                                  .ctx = &sending};
    enum cli_exit status = cli_ask(cli, &request, &reply, err);
    cli_progress_clear(&sending.progress);
    if (cli_upload_error(upload)->message[0])
        return cli_fail(err, CLI_FAILED, "%s", cli_upload_error(upload)->message);
    if (status == CLI_OK)
        tell_image(cli, &reply.body);
    return status;
}
