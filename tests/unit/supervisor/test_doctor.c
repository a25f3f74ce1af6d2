/* What the doctor makes of file systems, clocks and dates that this machine does not have. */
#include <assert.h>
#include <string.h>

#include "supervisor/doctor_internal.h"

#define DAY 86400

static void test_file_systems(void)
{
    static const struct {
        uint64_t type;
        enum finding_level level;
        const char *text, *lost;
    } cases[] = {
        {0xef53, FINDING_OK, "ext4, 9000 MiB free", ""},
        {0x9123683e, FINDING_OK, "btrfs", ""},
        {0x01021994, FINDING_WARN, "tmpfs", "reboot"},
        {0x6969, FINDING_FAIL, "nfs", "no sandbox"},
        {0x794c7630, FINDING_FAIL, "overlay", "cannot lie on another"},
        {0xff534d42, FINDING_FAIL, "cifs", "no sandbox"},
        {0x65735546, FINDING_FAIL, "fuse", "no sandbox"},
        {0x4d44, FINDING_FAIL, "vfat", "owners"},
        {0x1234, FINDING_OK, "type 0x1234", ""}, /* the mount with a sandbox's ids decides */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sandbox_finding found = {.name = "x"};
        struct doctor_place place = {.type = cases[i].type, .free_mib = 9000, .floor_mib = 256};
        doctor_judge_place(&place, &found);
        assert(found.level == cases[i].level && strstr(found.text, cases[i].text));
        assert(strstr(found.lost, cases[i].lost));
        assert((found.level == FINDING_OK) == (found.cure[0] == '\0'));
    }
}

static void test_mounts_and_free_space(void)
{
    static const struct {
        struct doctor_place place;
        enum finding_level level;
        const char *says, *cure;
    } cases[] = {
        {{.type = 0xef53, .is_read_only = true, .free_mib = 9000},
         FINDING_FAIL,
         "mounted ro",
         "rw"},
        {{.type = 0xef53, .is_noexec = true, .free_mib = 9000},
         FINDING_FAIL,
         "mounted noexec",
         "exec"},
        {{.type = 0xef53, .free_mib = 1000, .floor_mib = 256},
         FINDING_WARN,
         "1000 MiB",
         "paddock df"},
        {{.type = 0xef53, .free_mib = 200, .floor_mib = 256},
         FINDING_FAIL,
         "200 MiB",
         "paddock df"},
        {{.type = 0xef53, .free_mib = 9000, .counts_files = true, .free_files = 9},
         FINDING_WARN,
         "only 9 files",
         "larger"},
        {{.type = 0xef53,
          .free_mib = 9000,
          .counts_files = true,
          .free_files = 9,
          .floor_files = 10},
         FINDING_FAIL,
         "only 9 files",
         "larger"},
        {{.type = 0x9123683e, .free_mib = 9000, .free_files = 0, .floor_files = 10},
         FINDING_OK,
         "btrfs",
         ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sandbox_finding found = {.name = "x"};
        doctor_judge_place(&cases[i].place, &found);
        assert(found.level == cases[i].level && strstr(found.text, cases[i].says));
        assert(strstr(found.cure, cases[i].cure));
    }
}

static void test_clock(void)
{
    int64_t made = 1780000000;
    struct sandbox_finding found = {.name = "x"};
    doctor_judge_clock(made + 5, made, 0, &found);
    assert(found.level == FINDING_OK && strcmp(found.text, "2026-05-28 20:26 UTC") == 0);
    doctor_judge_clock(made - DAY / 2, made, 0, &found); /* time zones, a build machine's clock */
    assert(found.level == FINDING_OK);
    doctor_judge_clock(made, made, 77, &found);
    assert(found.level == FINDING_OK && strstr(found.text, "slept 77 s"));
    doctor_judge_clock(1000, made, 0, &found);
    assert(found.level == FINDING_FAIL && strstr(found.text, "1970-01-01"));
    assert(strstr(found.cure, "timedatectl"));
}

static void test_ca(void)
{
    int64_t now = 1780000000;
    static const struct {
        int64_t begin, end; /* in days from now */
        enum finding_level level;
        const char *lost, *cure;
    } cases[] = {
        {-1, 3650, FINDING_OK, "", ""},
        {-3600, 31, FINDING_OK, "", ""},
        {-3640, 10, FINDING_WARN, "from then on", "rm '/s/ca.key' '/s/ca.crt'"},
        {-3660, -1, FINDING_FAIL, "it has ended", "rm '/s/ca.key' '/s/ca.crt'"},
        {2, 3650, FINDING_FAIL, "not valid yet", "timedatectl"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sandbox_finding found = {.name = "x"};
        doctor_judge_ca(now, now + cases[i].begin * DAY, now + cases[i].end * DAY, "/s", &found);
        assert(found.level == cases[i].level && strstr(found.lost, cases[i].lost));
        assert(strstr(found.cure, cases[i].cure));
    }
}

int main(void)
{
    test_file_systems();
    test_mounts_and_free_space();
    test_clock();
    test_ca();
    return 0;
}
