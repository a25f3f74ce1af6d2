/*
 * The doctor's questions to a daemon that runs. The gateway is asked in the way of an agent: from a
 * sandbox, through egress, by the policy, which adds the token; so neither this program nor the
 * sandbox ever has it. The request is a GET that costs nothing, made by git, which each image has.
 * What the gateway answers is not shown but for its status, and that is taken from the audit where
 * it may be read: what a program of the image says is only its word.
 */
#include "cli/doctor.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "util/cleanup.h"
#include "json/json.h"

#define SAY(field, ...) snprintf((field), sizeof(field), __VA_ARGS__)
#define ASK_TIMEOUT_MS 10000
#define GATEWAY_TIMEOUT_MS 60000
#define REMOVE_TIMEOUT_MS 30000 /* its programs have ten seconds to end */
#define BODY_BYTES 4096
#define STATUS_MARK "Recv header: HTTP/"
#define REASON_MARK "Recv header: x-paddock-reason: "

static struct cli_finding *add(struct cli_finding *findings, size_t *count, const char *name,
                               const char *level)
{
    struct cli_finding *finding = &findings[(*count)++];
    *finding = (struct cli_finding){.name = name, .level = level};
    return finding;
}

/* Whoever set PADDOCK_URL to one daemon's socket and names no configuration has another's judged.
 */
static void compare_sockets(const struct cli *cli, const char *judged, struct cli_finding *ret)
{
    const char *asked = cli->values[OPTION_URL] ? cli->values[OPTION_URL] : getenv("PADDOCK_URL");
    bool is_socket = asked && strncmp(asked, "unix:", 5) == 0;
    if (!is_socket || !judged || strncmp(judged, "unix:", 5) != 0 || strcmp(asked, judged) == 0)
        return;
    ret->level = "warn";
    SAY(ret->text, "a daemon answers at %.150s, but what was judged above listens at %.150s", asked,
        judged);
    SAY(ret->lost, "settings, state and gateway above are not those of the daemon that answers");
    SAY(ret->cure, "paddock doctor --config FILE, with the configuration of that daemon");
}

/* Whether it answers; else why not is told. `judged`: where the configuration's daemon listens. */
static bool look_at_daemon(const struct cli *cli, const char *judged, struct cli_finding *ret)
{
    struct err err = {0};
    cleanup_reply struct cli_reply reply = {0};
    struct cli_request request = {
        .method = "GET", .path = "/healthz", .timeout_ms = ASK_TIMEOUT_MS};
    bool is_there = cli_ask(cli, &request, &reply, &err) == CLI_OK;
    SAY(ret->text, "%.390s", is_there ? "the daemon answers" : err.message);
    if (is_there) {
        compare_sockets(cli, judged, ret);
        return true;
    }
    ret->level = "warn";
    SAY(ret->lost, "no sandbox can be used; the gateway was not asked");
    SAY(ret->cure, "paddockd --config FILE, or set PADDOCK_URL and PADDOCK_TOKEN");
    return false;
}

/* The status of the last answer in git's trace; 0: there was none. */
static long read_status(const char *trace)
{
    long status = 0;
    for (const char *at = trace; (at = strstr(at, STATUS_MARK));) {
        at += strlen(STATUS_MARK);
        at += strcspn(at, " \n");
        long found = strtol(at, NULL, 10);
        status = found >= 200 && found <= 599 ? found : status;
    }
    return status;
}

/* Why egress did not ask the gateway, by git's trace; "": it did. */
static void read_reason(const char *trace, char *ret, size_t size)
{
    const char *found = strstr(trace, REASON_MARK);
    found = found ? found + strlen(REASON_MARK) : "";
    snprintf(ret, size, "%.*s", (int)strcspn(found, "\r\n"), found);
}

static int write_exec(const char *gateway, struct buf *ret)
{
    char url[1024];
    SAY(url, "%.1000s/v1/models", gateway);
    const char *const argv[] = {"/usr/bin/env", "LC_ALL=C", "GIT_TERMINAL_PROMPT=0",
                                "GIT_TRACE_CURL=1", "GIT_TRACE_CURL_NO_DATA=1",
                                /* a gateway that sends nothing */
                                "GIT_HTTP_LOW_SPEED_LIMIT=1", "GIT_HTTP_LOW_SPEED_TIME=20", "git",
                                "-c", "http.followRedirects=false", "ls-remote", url};
    const struct cli_exec exec = {.argv = argv, .count = ARRAY_LEN(argv), .cwd = "/tmp"};
    return cli_exec_body(&exec, ret);
}

static bool make_sandbox(const struct cli *cli, const char *path, struct err *err)
{
    cleanup_reply struct cli_reply made = {0};
    struct cli_request make = {.method = "PUT",
                               .path = path,
                               .content_type = "application/json",
                               .body = "{}",
                               .body_len = 2,
                               .is_only_new = true,
                               .timeout_ms = ASK_TIMEOUT_MS};
    return cli_ask(cli, &make, &made, err) == CLI_OK;
}

static void remove_sandbox(const struct cli *cli, const char *path)
{
    struct err ignored = {0};
    cleanup_reply struct cli_reply removed = {0};
    struct cli_request remove = {
        .method = "DELETE", .path = path, .is_cleaning = true, .timeout_ms = REMOVE_TIMEOUT_MS};
    (void)cli_ask(cli, &remove, &removed, &ignored);
}

/* Has the sandbox ask; what its program says of it is told. */
static bool run_request(const struct cli *cli, const char *path, const char *gateway,
                        struct cli_asked *ret, struct err *err)
{
    char exec_path[128];
    cleanup_buf struct buf body = BUF_INIT(BODY_BYTES);
    cleanup_reply struct cli_reply reply = {0};
    cleanup_json struct json *json = NULL;
    SAY(exec_path, "%s/exec", path);
    if (write_exec(gateway, &body) < 0)
        return false;
    struct cli_request exec = {.method = "POST",
                               .path = exec_path,
                               .content_type = "application/json",
                               .body = buf_text(&body),
                               .body_len = body.len,
                               .timeout_ms = GATEWAY_TIMEOUT_MS};
    if (cli_ask(cli, &exec, &reply, err) != CLI_OK ||
        json_parse(buf_text(&reply.body), reply.body.len, JSON_STRICT, &json, err) < 0)
        return false;
    const char *trace = json_text(json_get(json, "stderr"));
    ret->status = read_status(trace ? trace : "");
    read_reason(trace ? trace : "", ret->reason, sizeof(ret->reason));
    return true;
}

/* False: it could not be asked, err tells why. From here on Ctrl-C leaves no sandbox behind. */
static bool ask_in_sandbox(const struct cli *cli, const char *name, const char *gateway,
                           struct cli_audit *audit, struct cli_asked *ret, struct err *err)
{
    char path[96];
    SAY(path, "/sandboxes/%s", name);
    cli_catch_interrupt();
    bool is_made = make_sandbox(cli, path, err);
    bool is_asked = is_made && run_request(cli, path, gateway, ret, err);
    struct cli_asked seen = {0};
    if (is_asked)
        (void)cli_audit_wait(audit, name, gateway, &seen);
    if (audit->fd >= 0)
        *ret = seen; /* egress is to be believed, and nobody else */
    if (is_made || cli_is_interrupted())
        remove_sandbox(cli, path);
    return is_asked;
}

static void judge(const struct cli_asked *asked, bool is_witnessed, struct cli_finding *ret)
{
    long status = (long)asked->status;
    if (status == 403 && asked->reason[0]) { /* a policy may allow less than we ask for */
        ret->level = "warn";
        SAY(ret->text, "the policy refuses the doctor's request: %s", asked->reason);
        SAY(ret->lost, "whether the token is accepted is not known");
        SAY(ret->cure, "let the policy allow GET of /v1/models of the gateway, or try a task");
        return;
    }
    if (status && status != 401 && status != 403 && status < 500) {
        SAY(ret->text, "the gateway answers a sandbox and takes the token (HTTP %ld)", status);
        if (is_witnessed)
            return;
        ret->level = "warn";
        SAY(ret->lost, "nobody but a program of the image says so: the audit cannot be read");
        SAY(ret->cure, "run `paddock doctor --config FILE` as the daemon's user");
        return;
    }
    ret->level = "fail";
    SAY(ret->lost, "agents reach no model");
    if (status == 401 || status == 403) {
        SAY(ret->text, "the gateway, or the provider behind it, refuses us (HTTP %ld)", status);
        SAY(ret->cure, "put a valid token into secrets_dir/AI_GATEWAY_TOKEN, then `paddock policy "
                       "reload`; a provider's key belongs to the gateway");
    } else if (status == 503) {
        SAY(ret->text, "egress does not ask the gateway, or the gateway is busy (HTTP 503)");
        SAY(ret->cure, "`paddock policy ls` tells of inactive rules; the audit tells who answered");
    } else {
        SAY(ret->text, "the gateway cannot be reached from a sandbox (%s%.0ld)",
            status ? "HTTP " : "no answer", status);
        SAY(ret->cure, "look at this machine's network, DNS and upstream_proxy: curl -I "
                       "https://gateway.ai.cloudflare.com; the audit in state_dir tells the rest");
    }
}

void cli_doctor_daemon(const struct cli *cli, const char *judged, const char *gateway,
                       const char *audit, struct cli_finding *findings, size_t *count)
{
    unsigned tag = 0;
    char name[64];
    struct cli_asked asked = {0};
    struct cli_audit lines;
    struct err err = {0};
    if (!look_at_daemon(cli, judged, add(findings, count, "daemon", "ok")) || !gateway)
        return;
    struct cli_finding *finding = add(findings, count, "gateway-answer", "ok");
    if (getrandom(&tag, sizeof(tag), 0) < 0)
        tag = 1;
    SAY(name, "paddock-doctor-%08x", tag);
    cli_audit_open(audit, &lines);
    if (ask_in_sandbox(cli, name, gateway, &lines, &asked, &err)) {
        judge(&asked, lines.fd >= 0, finding);
    } else {
        finding->level = "warn";
        SAY(finding->text, "the gateway was not asked: %.300s", err.message);
        SAY(finding->lost, "whether the token is accepted is not known");
        SAY(finding->cure, "see above; `paddock doctor` then makes a sandbox for one request");
    }
    cli_audit_close(&lines);
}
