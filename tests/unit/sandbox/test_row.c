/* Which row holds, from the text of the files that say so; and the places that go with it. */
#undef NDEBUG
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/row.h"
#include "util/places.h"

static void test_maps(void)
{
    uint32_t first = 0, outside = 0, count = 0;
    assert(row_map_is_whole("         0          0 4294967295\n"));
    assert(!row_map_is_whole("0 1000 1\n"));
    assert(!row_map_is_whole("0 0 65536\n"));
    assert(!row_map_is_whole(""));
    assert(!row_map_find_range("0 1000 1\n", &first, &outside, &count));
    assert(!row_map_find_range("0 1000 1\n1 100000 65534\n", &first, &outside, &count));
    assert(row_map_find_range("0 1000 1\n1 100000 65536\n", &first, &outside, &count));
    assert(first == 1 && outside == 100000 && count == 65536);
    assert(row_map_find_range("0 100000 65536\n", &first, &outside, &count)); /* 0 is our own */
    assert(first == 1 && outside == 100001 && count == 65535);
    assert(row_map_find_range("0 0 1\n5 5 10\n100 7 1000000\n", &first, &outside, &count));
    assert(first == 100 && outside == 7 && count == 65536);
}

static bool find(const char *text, const char *name, uint32_t uid, uint32_t *ret_first)
{
    const struct row_owner owner = {name, uid, uid};
    return row_find_subordinate(text, &owner, ret_first);
}

static void test_subordinate(void)
{
    static const char text[] = "root:1:65536\nann:100000:65536\nbob:200000:1000\n"
                               "1003:300000:70000\nbob:400000:131072\nx:y\n:1:2\n";
    uint32_t first = 0;
    assert(find(text, "ann", 1001, &first) && first == 100000);
    assert(find(text, "bob", 1002, &first) && first == 400000);
    assert(find(text, "carl", 1003, &first) && first == 300000);
    assert(!find(text, "an", 1001, &first));
    assert(!find(text, "x", 9, &first));
    assert(!find(text, "", 9, &first));
    assert(!find("ann:0:65536\n", "ann", 1, &first));
    assert(!find("ann:100000:65535\n", "ann", 1, &first));
    assert(!find("ann:4294950000:65536\n", "ann", 1, &first));
    assert(find("ann:7:65536", "ann", 1, &first) && first == 7);
}

/* Each line alone gives nothing, and does not hide the good one after it. */
static void test_odd_lines(void)
{
    static const char *const lines[] = {
        "ann:-1:65536",
        "ann:-4294867296:65536",
        "ann:18446744073709551615:65536",
        "ann:99999999999999999999999:65536",
        "ann: 500000:65536",
        "ann:+500000:65536",
        "ann:500000: 65536",
        "ann:500000:-1",
        "ann:500000:99999999999999999999999",
        "ann:500000",
        "ann:500000:",
        "ann::65536",
        "ann:500000:65536:",
        "ann:500000:65536 # a comment",
        "ann:0x7a120:65536",
        "#ann:500000:65536",
        " ann:500000:65536",
        ":500000:65536",
        "ann:1:65536",     /* with the user's own id */
        "ann:500:70000",   /* the same */
        "ann:1001:100000", /* the same */
        "",
    };
    const struct row_owner ann = {"ann", 1001, 1001}, nameless = {"", 1001, 1001};
    char text[256];
    uint32_t first = 0;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        assert(!row_find_subordinate(lines[i], &ann, &first));
        assert(!row_find_subordinate(lines[i], &nameless, &first));
        snprintf(text, sizeof(text), "%s\nann:700000:65536\n", lines[i]);
        assert(row_find_subordinate(text, &ann, &first) && first == 700000);
    }
}

static void test_sharers(void)
{
    static const char text[] = "eve:165000:0\nroot:100000:65536\nann:100000:65536\n"
                               "1001:100000:65536\ndan:99999:1\ncat:165536:1\nbob:165535:1\n";
    const struct row_owner ann = {"ann", 1001, 1001}, bob = {"bob", 1002, 1002};
    char who[64] = "";
    assert(row_find_sharer(text, &ann, 100000, who) && strcmp(who, "bob") == 0);
    assert(!row_find_sharer(text, &ann, 165537, who));
    assert(row_find_sharer(text, &bob, 100000, who) && strcmp(who, "ann") == 0);
}

static const char *none(const char *name)
{
    (void)name;
    return NULL;
}

static const char *home_alone(const char *name)
{
    return strcmp(name, "HOME") == 0 ? "/home/ann" : NULL;
}

static char runtime[] = "/tmp/paddock-test-XXXXXX";

static const char *all(const char *name)
{
    if (strcmp(name, "XDG_RUNTIME_DIR") == 0)
        return runtime;
    if (strcmp(name, "XDG_STATE_HOME") == 0)
        return "/s";
    return strcmp(name, "XDG_CONFIG_HOME") == 0 ? "not/absolute" : home_alone(name);
}

static void test_places(void)
{
    struct places places;
    char socket[PLACES_MAX];
    assert(mkdtemp(runtime));
    snprintf(socket, sizeof(socket), "%s/paddock/paddock.sock", runtime);
    assert(places_find(false, none, &places) && !places.is_user);
    assert(strcmp(places.state, "/var/lib/paddock") == 0 && !places.fallback[0]);
    assert(!places_find(true, none, &places));
    assert(places_find(true, home_alone, &places) && places.is_user);
    assert(strcmp(places.config, "/home/ann/.config/paddock/paddock.json") == 0);
    assert(strcmp(places.secrets, "/home/ann/.config/paddock/secrets") == 0);
    assert(strcmp(places.state, "/home/ann/.local/state/paddock") == 0);
    assert(strcmp(places.socket, "/home/ann/.local/state/paddock/paddock.sock") == 0);
    assert(places_find(true, all, &places));
    assert(strcmp(places.config, "/home/ann/.config/paddock/paddock.json") == 0);
    assert(strcmp(places.state, "/s/paddock") == 0);
    assert(strcmp(places.socket, socket) == 0);
    assert(strcmp(places.fallback, "/s/paddock/paddock.sock") == 0);
}

static void assert_fallback(void)
{
    struct places places;
    assert(places_find(true, all, &places));
    assert(strcmp(places.socket, "/s/paddock/paddock.sock") == 0);
    assert(strcmp(places.fallback, "/s/paddock/paddock.sock") == 0);
}

/* A runtime folder that another can write to is none. */
static void test_runtime_of_others(void)
{
    assert(chmod(runtime, 01777) == 0);
    assert_fallback();
    assert(chmod(runtime, 0720) == 0);
    assert_fallback();
    assert(rmdir(runtime) == 0);
    assert_fallback();
    assert(symlink("/", runtime) == 0);
    assert_fallback();
    assert(unlink(runtime) == 0);
}

int main(void)
{
    test_maps();
    test_subordinate();
    test_odd_lines();
    test_sharers();
    test_places();
    test_runtime_of_others();
    return 0;
}
