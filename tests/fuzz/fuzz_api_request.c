/* Bodies and queries of clients; the first byte chooses which reader. What is accepted keeps the
 * rules that git, init and the jail rely on. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "api/outcome.h"
#include "api/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check_spec(const struct buf *bytes, bool is_clone)
{
    static struct spec spec;
    assert(spec_decode(bytes->data, bytes->len, &spec, NULL) == 0);
    if (!is_clone)
        return;
    assert(strncmp(spec.argv[spec.argc - 2], "https://github.com/", 19) == 0);
    assert(strcmp(spec.argv[spec.argc - 3], "--") == 0);
    for (uint32_t i = 5; i + 3 < spec.argc; i++)
        assert(spec.argv[i][0] != '-');
}

static void read_one(int which, const char *data, size_t len)
{
    cleanup_buf struct buf spec = BUF_INIT(LIMIT_SPEC_BYTES);
    struct msg_image_name image;
    struct request_log log;
    struct msg_diff diff;
    uint32_t user;
    struct err err;
    if (which == 0 && request_clone(data, len, &spec, &err) == 0)
        check_spec(&spec, true);
    if (which == 1 && request_exec(data, len, &spec, &user, &err) == 0)
        check_spec(&spec, false);
    if (which == 2 && request_image(data, len, &image, &err) == 0)
        assert(image.name[0] && image.rebuild <= 1);
    if (which == 3 && request_log(data, len, &log, &err) == 0)
        assert(log.from >= 0);
    if (which == 4 && request_diff(data, len, &diff, &err) == 0)
        assert(diff.revision[0] != '-');
    if (which == 5)
        request_prompt(data, len, &err);
    if (which == 6)
        outcome_is_valid(data, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len)
        read_one(data[0] % 7, (const char *)data + 1, len - 1);
    return 0;
}
