/* repo_config_keep on any bytes: no section but the two comes out, and nothing on failure. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "repo/config.h"
#include "util/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    bool is_sha256 = false;
    if (repo_config_keep((const char *)data, len, &text, &is_sha256, NULL) < 0) {
        assert(text.len == 0);
        return 0;
    }
    bool is_line_start = true;
    for (size_t i = 0; i < text.len; i++) {
        if (is_line_start)
            assert(strncmp(text.data + i, "[core]\n\t", 8) == 0 ||
                   strncmp(text.data + i, "[extensions]\n\t", 14) == 0 || text.data[i] == '\t');
        is_line_start = text.data[i] == '\n';
    }
    return 0;
}
