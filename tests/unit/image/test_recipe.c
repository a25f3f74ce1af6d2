/* The promises of recipes: what a recipe says can be no option, no second argument, no way out. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "image/recipe.h"
#include "util/cleanup.h"
#include "util/sha256.h"

static int parse(const char *text, struct recipe *ret, struct err *err)
{
    return recipe_parse("x/build.json", text, strlen(text), ret, err);
}

static void test_a_recipe_is_read(void)
{
    cleanup_recipe struct recipe recipe = {0};
    struct err err = {0};
    assert(
        parse("{ // how\n"
              "\"debian\": {\"suite\": \"bookworm\", \"packages\": [\"git\", \"g++=4:12~rc1-3\"]},"
              "\"npm\": [\"@a-b/c.d@2.1.280\", \"e@1.0.0-rc.1\"],"
              "\"links\": {\"/usr/local/bin/c\": \"/opt/npm/x-${ARCH}/${ARCH}\"}}",
              &recipe, &err) == 0);
    assert(strcmp(recipe.suite, "bookworm") == 0);
    assert(recipe.package_count == 2 && strcmp(recipe.packages[1], "g++=4:12~rc1-3") == 0);
    assert(recipe.npm_count == 2 && strcmp(recipe.npm[0], "@a-b/c.d@2.1.280") == 0);
    char target[64];
    snprintf(target, sizeof(target), "/opt/npm/x-%s/%s", recipe_arch(), recipe_arch());
    assert(recipe.link_count == 1 && strcmp(recipe.links[0].path, "/usr/local/bin/c") == 0);
    assert(strcmp(recipe.links[0].target, target) == 0);
}

static void test_npm_and_links_may_be_missing(void)
{
    cleanup_recipe struct recipe recipe = {0};
    assert(parse("{\"debian\": {\"suite\": \"bookworm\", \"packages\": [\"git\"]}}", &recipe,
                 NULL) == 0);
    assert(recipe.npm_count == 0 && recipe.link_count == 0);
}

static void test_an_image_may_begin_as_another(void)
{
    cleanup_recipe struct recipe recipe = {0};
    struct err err = {0};
    assert(parse("{\"from\": \"base\"}", &recipe, NULL) == 0);
    assert(strcmp(recipe.from, "base") == 0 && !recipe.suite && recipe.package_count == 0);
    assert(parse("{\"from\": \"../base\"}", &recipe, &err) == -EINVAL);
    assert(parse("{\"from\": 1}", &recipe, &err) == -EINVAL);
    assert(parse("{\"from\": \"base\", \"debian\": {}}", &recipe, &err) == -EINVAL);
}

static void assert_refused(const char *format, const char *value)
{
    char text[1024];
    struct err err = {0};
    struct recipe recipe = {.suite = "untouched"};
    int len =
        snprintf(text, sizeof(text), "{\"debian\": {\"suite\": \"s\", \"packages\": [\"git\"]}");
    /* NOLINTNEXTLINE: the formats are the literals below */
    snprintf(text + len, sizeof(text) - (size_t)len, "%.*s%s%s}", (int)strcspn(format, "#"), format,
             value, strchr(format, '#') + 1);
    if (parse(text, &recipe, &err) != -EINVAL || strncmp(err.message, "x/build.json:", 13) != 0) {
        fprintf(stderr, "not refused: %s (%s)\n", text, err.message);
        assert(0);
    }
    assert(strcmp(recipe.suite, "untouched") == 0);
}

static void test_npm_packages_are_pinned_names(void)
{
    static const char *const bad[] = {
        "--registry=x",
        "-g",
        "a",
        "a@",
        "a@latest",
        "a@^1.2.3",
        "a@1.2",
        "a@1.2.3 b@1.2.3",
        "a@1.2.3-",
        "a@1.2.3/../..",
        "../a@1.2.3",
        "@/a@1.2.3",
        "@a@1.2.3",
        "@a/b/c@1.2.3",
        "a@file:x",
        "git+ssh://h/x@1.2.3",
        "A@1.2.3",
        ".a@1.2.3",
        "a@1.2.3.4",
        "a@npm:b@1.2.3",
        "",
        "a@1..3",
        "a@12345678901.0.0",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_refused(",\"npm\": [\"#\"]", bad[i]);
}

static void test_links_stay_in_their_places(void)
{
    static const char *const bad_paths[] = {
        "/usr/local/bin/", "/usr/local/bin/../x", "/usr/local/bin/a/b", "/etc/passwd",
        "usr/local/bin/a", "/usr/local/bin/.",    "/usr/local/bin/-a",  "/usr/local/bin//a",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad_paths); i++)
        assert_refused(",\"links\": {\"#\": \"/opt/x\"}", bad_paths[i]);
    static const char *const bad_targets[] = {
        "",    "/",          "opt/x",   "/opt/../etc/shadow", "/opt/./x", "/opt//x",  "/opt/x/",
        "/..", "/opt/${OS}", "/opt/$x", "/opt/x y",           "/opt/...", "/opt/\\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad_targets); i++)
        assert_refused(",\"links\": {\"/usr/local/bin/a\": \"#\"}", bad_targets[i]);
    assert_refused(",\"links\": {\"/usr/local/bin/a\": #}", "7");
}

static void test_debian_packages_are_names(void)
{
    static const char *const bad[] = {
        "",       "-y",      "git-",   "git,curl",  "git curl", "?essential",
        "~nx",    "./x.deb", "/x.deb", "git/sid",   "git=",     "git=;x",
        "git=-1", "Git",     "g",      "git:amd64", "git*",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char text[200];
        struct err err = {0};
        struct recipe recipe;
        snprintf(text, sizeof(text), "{\"debian\": {\"suite\": \"s\", \"packages\": [\n\"%s\"]}}",
                 bad[i]);
        assert(parse(text, &recipe, &err) == -EINVAL);
        assert(strncmp(err.message, "x/build.json:2:1: ", 18) == 0);
    }
}

static void test_other_refusals(void)
{
    static const char *const bad[] = {
        "[]",
        "{}",
        "{\"debian\": 1}",
        "{\"debian\": {\"suite\": \"s\", \"packages\": []}}",
        "{\"debian\": {\"suite\": \"-s\", \"packages\": [\"git\"]}}",
        "{\"debian\": {\"suite\": \"a/b\", \"packages\": [\"git\"]}}",
        "{\"debian\": {\"suite\": \"s\", \"packages\": [\"git\"], \"mirror\": \"x\"}}",
        "{\"debian\": {\"suite\": \"s\", \"packages\": [\"git\"]}, \"pip\": []}",
        "{\"debian\":",
        "{\"debian\": {\"suite\": \"s\", \"packages\": [7]}}",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err err = {0};
        struct recipe recipe;
        assert(parse(bad[i], &recipe, &err) == -EINVAL);
        assert(strncmp(err.message, "x/build.json:", 13) == 0);
    }
}

static void assert_digest(const char *first, const char *second, const char *expected)
{
    const struct sha256_part parts[] = {{first, strlen(first)}, {second, strlen(second)}};
    char digest[SHA256_HEX_SIZE];
    sha256_hex(parts, 2, digest);
    assert(strcmp(digest, expected) == 0);
}

/* The examples of NIST for FIPS 180-4, and the lengths around the padding's edge. */
static void test_sha256(void)
{
    assert_digest("", "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_digest("a", "bc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmn", "lmnomnopnopq",
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char long_text[1001] = "";
    memset(long_text, 'a', 1000);
    assert_digest(long_text, "",
                  "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
}

int main(void)
{
    test_a_recipe_is_read();
    test_npm_and_links_may_be_missing();
    test_an_image_may_begin_as_another();
    test_npm_packages_are_pinned_names();
    test_links_stay_in_their_places();
    test_debian_packages_are_names();
    test_other_refusals();
    test_sha256();
    return 0;
}
