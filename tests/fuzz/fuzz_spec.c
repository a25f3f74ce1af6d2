/* spec_decode on any bytes: what was decoded keeps the rules, and encodes to the same bytes. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "task/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct spec spec;
    struct err err;
    if (spec_decode((const char *)data, len, &spec, &err) < 0)
        return 0;
    assert(spec.cwd[0] == '/' && spec.argc >= 1 && spec.argv[0][0]);
    assert(!spec.argv[spec.argc] && !spec.envp[spec.envc]);
    cleanup_buf struct buf again = BUF_INIT(LIMIT_SPEC_BYTES);
    assert(spec_encode(&spec, &again, &err) == 0);
    assert(again.len == len && memcmp(again.data, data, len) == 0);
    return 0;
}
