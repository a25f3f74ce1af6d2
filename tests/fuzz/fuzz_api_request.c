/* Bodies and queries of clients; the first byte chooses which reader. What is accepted keeps the
 * rules that git, init and the jail rely on. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "api/outcome.h"
#include "api/request.h"
#include "api/usage.h"
#include "util/name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* `options`: of a clone, the words before its ref: 5, or 6 with --progress; else 0. */
static void check_spec(const struct buf *bytes, uint32_t options)
{
    static struct spec spec;
    assert(spec_decode(bytes->data, bytes->len, &spec, NULL) == 0);
    if (!options)
        return;
    assert(strncmp(spec.argv[spec.argc - 2], "https://github.com/", 19) == 0);
    assert(strcmp(spec.argv[spec.argc - 3], "--") == 0);
    for (uint32_t i = options; i + 3 < spec.argc; i++)
        assert(spec.argv[i][0] != '-');
}

/* The supervisor takes each list that is accepted. */
static void check_put(const char *data, size_t len, bool is_patch)
{
    struct msg_sandbox_put put;
    struct err err;
    cleanup_buf struct buf lists = BUF_INIT(2 * (LIMIT_ENV_BYTES + LIMIT_LABELS_BYTES));
    if (request_sandbox_put(data, len, is_patch, &put, &lists, &err) < 0)
        return;
    const uint32_t bytes[] = {put.env_bytes, put.label_bytes, put.env_gone_bytes,
                              put.label_gone_bytes};
    size_t at = 0;
    for (size_t i = 0; i < 4; i++) {
        struct buf list = {.data = lists.data ? lists.data + at : NULL, .len = bytes[i]};
        assert(settings_list_is_valid(i % 2 ? SETTINGS_LABELS : SETTINGS_ENV, &list));
        at += bytes[i];
    }
    assert(lists.len == at && put.is_patch == is_patch);
    assert(is_patch || (!put.named && !put.env_gone_bytes && !put.label_gone_bytes));
    assert(put.memory_mib >= 0 && put.cpu_millis >= 0 && put.pids >= 0);
}

static void check_list(const char *data, size_t len)
{
    struct msg_sandbox_list list;
    struct err err;
    if (request_sandbox_list(data, len, &list, &err) == 0)
        assert(list.state <= 4 && list.label_count <= LIMIT_LABEL_FILTERS);
}

static void read_one(int which, const char *data, size_t len)
{
    cleanup_buf struct buf spec = BUF_INIT(LIMIT_SPEC_BYTES);
    struct msg_image_name image;
    struct request_log log;
    struct msg_diff diff;
    struct request_exec exec;
    struct err err;
    char repository[LIMIT_REPOSITORY_BYTES + 1];
    if (which == 0 && request_clone(data, len, len % 2, &spec, repository, &err) == 0) {
        check_spec(&spec, 5 + len % 2);
        assert(!repository[0] || name_is_repository(repository));
    }
    if (which == 1) {
        if (request_exec(data, len, &exec, &err) == 0) {
            check_spec(&exec.spec, 0);
            assert(exec.body.timeout_ms >= 0 && exec.body.timeout_ms <= LIMIT_EXEC_TIMEOUT_MS);
            assert(exec.body.has_stdin || !exec.input.len);
        }
        request_exec_free(&exec);
    }
    if (which == 2 && request_image(data, len, &image, &err) == 0)
        assert(image.name[0] && image.rebuild <= 1);
    if (which == 3 && request_log(data, len, &log, &err) == 0)
        assert(log.from >= 0);
    int64_t deadline_ms;
    if (which == 3 && request_task(data, len, &deadline_ms, &err) == 0)
        assert(deadline_ms >= 0 && deadline_ms <= LIMIT_EXEC_TIMEOUT_MS);
    if (which == 4 && request_diff(data, len, &diff, &err) == 0)
        assert(diff.revision[0] != '-');
    if (which == 7) {
        struct msg_api_token token;
        if (request_token(data, len, 1000, &token, &err) == 0)
            assert(token.read_only <= 1 && (!token.expires_ms || token.expires_ms > 1000));
    }
    if (which == 8) {
        check_put(data, len, false);
        check_put(data, len, true);
    }
    if (which == 9)
        check_list(data, len);
    if (which == 10) {
        cleanup_buf struct buf json = BUF_INIT(1024 * 1024);
        assert(usage_json(data, len, &json) == 0);
    }
    if (which == 5)
        request_prompt(data, len, &err);
    if (which == 6)
        outcome_is_valid(data, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len)
        read_one(data[0] % 11, (const char *)data + 1, len - 1);
    return 0;
}
