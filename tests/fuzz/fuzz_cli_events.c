/* Any bytes of an agent, cut anywhere: nothing that a terminal obeys comes out. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/cli.h"
#include "util/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct cli_events events;
    struct buf out = BUF_INIT(1 << 24);
    size_t cut = len ? data[0] % len : 0;
    cli_events_init(&events);
    cli_events_feed(&events, (const char *)data, cut, &out);
    cli_events_feed(&events, (const char *)data + cut, len - cut, &out);
    cli_events_end(&events, &out);
    cli_events_free(&events);
    assert(utf8_is_valid(buf_text(&out), out.len));
    for (size_t i = 0; i < out.len; i++) {
        unsigned char c = (unsigned char)out.data[i];
        assert(c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7f));
        /* C1 in UTF-8 */
        assert(c != 0xc2 || (unsigned char)out.data[i + 1] >= 0xa0);
    }
    buf_free(&out);
    return 0;
}
