/* The promises of paddock-image-build that need no network: it stops where it is the host's root,
 * takes only the host's ways of fetching, and leaves nothing of the host in the tree. */
#include <assert.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/build.h"
#include "util/cleanup.h"
#include "util/fd.h"

static void test_stops_on_identity(void)
{
    static const struct {
        const char *map;
        bool ok;
    } cases[] = {
        {"         0          0 4294967295\n", false},
        {"0 0 1\n", false},
        {"0 1879113728 65536\n", true},
        {"0 1000 1\n", false},
        {"1000 1000 65536\n", false},
        {"", false},
        {"0 100000 65536\n1000 0 1\n", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = {0};
        assert((build_check_map(cases[i].map, &err) == 0) == cases[i].ok);
        assert(cases[i].ok || err.message[0]);
    }
}

static void test_sources_of_the_suite(void)
{
    cleanup_buf struct buf out = BUF_INIT(4096);
    assert(build_select_sources("http://a/debian/ bookworm main\n"
                                "http://a/debian/ bookworm main\n"
                                "http://a/debian/ bookworm contrib\n"
                                "http://a/debian/ bookworm-updates main\n"
                                "http://b/x bookworm-pgdg main\n"
                                "http://b/x bookwormx main\n"
                                "http://b/x nodistro main\n"
                                "nonsense\n"
                                "http://s/ bookworm-security main",
                                "bookworm", &out) == 0);
    assert(strcmp(out.data, "deb http://a/debian/ bookworm main\n"
                            "deb http://a/debian/ bookworm-updates main\n"
                            "deb http://s/ bookworm-security main\n") == 0);
}

static void test_apt_settings_for_fetching(void)
{
    cleanup_buf struct buf out = BUF_INIT(4096);
    assert(build_select_apt_settings("APT::Architecture \"amd64\";\n"
                                     "Acquire::http::Proxy \"http://p:1\";\n"
                                     "Acquire::IndexTargets::deb \"\";\n"
                                     "DPkg::Post-Invoke:: \"rm -f /x\";\n"
                                     "Acquire::Retries \"3\";",
                                     &out) == 0);
    assert(strcmp(out.data, "Acquire::http::Proxy \"http://p:1\";\nAcquire::Retries \"3\";") == 0);
}

static void test_a_missing_client_is_named_with_its_cure(void)
{
    struct err err = {0};
    assert(build_need("sh", "dash", &err) == 0);
    assert(build_need("no-such-program", "npm", &err) == -ENOENT);
    assert(strcmp(err.message,
                  "no-such-program is not installed on this host: apt-get install npm") == 0);
}

static void test_run_tells_how_a_program_ended(void)
{
    struct err err = {0};
    cleanup_buf struct buf out = BUF_INIT(100);
    setenv("npm_config_registry", "x", 1);
    setenv("AI_GATEWAY_TOKEN", "secret", 1);
    static const char *const print[] = {"sh", "-c",
                                        "echo $npm_config_registry-$AI_GATEWAY_TOKEN-$HOME", NULL};
    assert(build_run(print, &out, &err) == 0);
    assert(strcmp(out.data, "x--" BUILD_HOME "\n") == 0);
    static const char *const fail[] = {"sh", "-c", "exit 3", NULL};
    assert(build_run(fail, NULL, &err) == -ECHILD && strstr(err.message, "status 3"));
    static const char *const kill[] = {"sh", "-c", "kill -9 $$", NULL};
    assert(build_run(kill, NULL, &err) == -ECHILD && strstr(err.message, "signal 9"));
    static const char *const none[] = {"/no/such", NULL};
    assert(build_run(none, NULL, &err) == -ENOENT);
    static const char *const endless[] = {"yes", NULL};
    assert(build_run(endless, &out, &err) < 0);
}

static int root;

static void make(const char *path, const char *text)
{
    char part[128];
    for (const char *slash = path; (slash = strchr(slash, '/')); slash++) {
        snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        assert(mkdirat(root, part, 0755) == 0 || errno == EEXIST);
    }
    if (path[strlen(path) - 1] == '/')
        return;
    cleanup_fd int fd = openat(root, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    assert(fd >= 0 && fd_write_all(fd, text, strlen(text)) == 0);
}

static bool exists(const char *path)
{
    return faccessat(root, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void test_scrub(void)
{
    static const char *const gone[] = {
        "etc/apt/sources.list",
        "etc/apt/sources.list.d/x.list",
        "etc/apt/apt.conf.d/99mmdebstrap",
        "etc/apt/auth.conf.d/tok",
        "etc/hostname",
        "etc/resolv.conf",
        "etc/machine-id",
        "opt/npm/package-lock.json",
        "root/.npmrc",
        "var/log/apt/term.log",
        "opt/npm/node_modules/.package-lock.json",
        "root/.npm/_logs/x.log",
    };
    static const char *const kept[] = {"etc/apt/apt.conf.d/70debconf", "var/log/",
                                       "opt/npm/node_modules/a/package.json", "var/lib/dpkg/status",
                                       "outside/file"};
    for (size_t i = 0; i < ARRAY_LEN(gone); i++)
        make(gone[i], "x");
    for (size_t i = 0; i < ARRAY_LEN(kept); i++)
        make(kept[i], "x");
    /* a package's script left links where folders are expected */
    assert(symlinkat("../../outside", root, "var/tmp") == 0);
    assert(symlinkat("/outside", root, "var/log/link") == 0);
    struct err err = {0};
    assert(build_scrub(root, &err) < 0 && strstr(err.message, "var/tmp"));
    assert(unlinkat(root, "var/tmp", 0) == 0);
    assert(build_scrub(root, &err) == 0);
    for (size_t i = 0; i < ARRAY_LEN(gone); i++)
        assert(!exists(gone[i]));
    for (size_t i = 0; i < ARRAY_LEN(kept); i++)
        assert(exists(kept[i]));
}

static void test_packages_of_another_libc_go(void)
{
    make("modules/@a/x/package.json", "{\"libc\": [\"glibc\"]}");
    make("modules/@a/x-musl/package.json", "{\"libc\": [\"musl\"]}");
    make("modules/@a/x-musl/x", "x");
    make("modules/y/package.json", "{}");
    make("modules/z-musl/package.json", "{\"libc\": [\"musl\"]}");
    make("modules/broken/package.json", "{");
    make("modules/.package-lock.json", "{}");
    cleanup_fd int modules = openat(root, "modules", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert(build_npm_prune(modules, NULL) == 0);
    assert(exists("modules/@a/x") && exists("modules/y") && exists("modules/broken"));
    assert(!exists("modules/@a/x-musl") && !exists("modules/z-musl"));
}

static void test_what_is_installed_is_kept(void)
{
    make("kept/@a/x/package.json", "{\"version\": \"1.2.3\", \"name\": \"other\"}");
    make("kept/y/package.json", "{}");
    make("kept/y/node_modules/z/package.json", "{\"version\": \"1.0.0\"}");
    make("kept/.bin/package.json", "{\"version\": \"1.0.0\"}");
    cleanup_fd int modules = openat(root, "kept", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_buf struct buf text = BUF_INIT(4096);
    assert(build_npm_keep(modules, &text, NULL) == 0);
    bool is_first = strstr(buf_text(&text), "{\"@a/x\":");
    assert(strcmp(buf_text(&text),
                  is_first ? "{\"dependencies\":{\"@a/x\":\"1.2.3\",\"y\":\"*\"}}"
                           : "{\"dependencies\":{\"y\":\"*\",\"@a/x\":\"1.2.3\"}}") == 0);
}

static void test_links_need_a_program_inside(void)
{
    struct recipe_link link = {"/usr/local/bin/claude", (char[]){"/opt/npm/claude"}};
    struct recipe recipe = {.links = &link, .link_count = 1};
    struct err err = {0};
    make("usr/local/bin/", "");
    make("etc/passwd", "");
    make("etc/group", "");
    make("etc/shadow", "");
    make("etc/gshadow", "");
    assert(build_furnish(root, &recipe, &err) == -ENOENT);
    assert(strstr(err.message, "/usr/local/bin/claude"));
    assert(symlinkat("/bin/true", root, "opt/npm/claude") == 0); /* leads out */
    assert(build_furnish(root, &recipe, &err) == -ELOOP);
    assert(unlinkat(root, "opt/npm/claude", 0) == 0);
    make("opt/npm/claude", "#!/bin/sh\n");
    assert(build_furnish(root, &recipe, &err) == 0);
    char target[64] = "";
    assert(readlinkat(root, "usr/local/bin/claude", target, sizeof(target) - 1) == 15);
    struct stat st;
    assert(fstatat(root, "home/agent", &st, 0) == 0 && st.st_uid == 1000);
    int64_t size = 0;
    assert(build_measure(root, &size, &err) == 0 && size > 0);
}

int main(void)
{
    char folder[] = "/tmp/paddock-test-build-XXXXXX";
    test_stops_on_identity();
    test_sources_of_the_suite();
    test_apt_settings_for_fetching();
    test_a_missing_client_is_named_with_its_cure();
    test_run_tells_how_a_program_ended();
    assert(mkdtemp(folder));
    root = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    test_scrub();
    test_packages_of_another_libc_go();
    test_what_is_installed_is_kept();
    if (geteuid() == 0) /* it gives files away */
        test_links_need_a_program_inside();
    execlp("rm", "rm", "-rf", "--", folder, (char *)NULL);
    return 1;
}
