/* task_end_read on any bytes: what was read is written again as the same bytes. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "task/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct task_end end;
    struct err err;
    if (task_end_read((const char *)data, len, &end, &err) < 0)
        return 0;
    char again[TASK_END_JSON_MAX];
    assert(task_end_write(&end, again) == len && memcmp(again, data, len) == 0);
    return 0;
}
