/* agent_outcome with the claude adapter on any output: always an outcome, valid JSON, within its
 * limit, and a success only with exit code 0. The first byte chooses the exit code. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/agent.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "json/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len == 0)
        return 0;
    cleanup_fd int fd = memfd_create("output", MFD_CLOEXEC);
    assert(fd >= 0 && fd_write_all(fd, data + 1, len - 1) == 0);
    struct task_end end = {.kind = TASK_END_EXITED, .code = data[0] & 1};
    cleanup_buf struct buf outcome = BUF_INIT(LIMIT_OUTCOME_BYTES);
    struct err err;
    struct agent_ended task = {"claude-stream-json", "claude", "", &end, fd, fd};
    assert(agent_outcome(&task, &outcome, &err) == 0);
    cleanup_json struct json *json = NULL;
    assert(json_parse(outcome.data, outcome.len, JSON_STRICT, &json, &err) == 0);
    const char *state = json_text(json_get(json, "state"));
    if (strcmp(state, "succeeded") == 0)
        assert(end.code == 0 && json_string(json_get(json, "result"), NULL));
    else
        assert(json_string(json_get(json, "error"), NULL));
    return 0;
}
