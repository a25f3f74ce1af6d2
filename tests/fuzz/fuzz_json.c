/* json_parse on any bytes: no crash, and a document that was read has a root. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "json/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct json *json = NULL;
    struct err err;
    enum json_flags flags = len && data[0] & 1 ? JSON_COMMENTS : JSON_STRICT;
    if (json_parse((const char *)data, len, flags, &json, &err) == 0)
        assert(json != NULL);
    else
        assert(json == NULL);
    json_free(json);
    return 0;
}
