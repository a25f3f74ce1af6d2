/* agent_parse on any bytes; what parses can be encoded when every variable is set. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/agent.h"
#include "task/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static const char *any_variable(void *ctx, const char *name)
{
    (void)ctx;
    (void)name;
    return "value";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct agent *agent = NULL;
    struct err err;
    if (agent_parse("agent.json", (const char *)data, len, &agent, &err) < 0)
        return 0;
    cleanup_buf struct buf spec = BUF_INIT(LIMIT_SPEC_BYTES);
    int r = agent_encode_spec(agent, any_variable, NULL, &spec, &err);
    assert(r == 0 || r == -EMSGSIZE);
    static struct spec back;
    if (r == 0)
        assert(spec_decode(spec.data, spec.len, &back, &err) == 0 && back.prompt < back.argc);
    agent_free(agent);
    return 0;
}
