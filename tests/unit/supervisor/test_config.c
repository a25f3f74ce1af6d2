/* The promises of supervisor/config, meta and secrets: defaults, refusals that name the place,
 * records that come back, schemas, an environment that is wiped. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervisor/config.h"
#include "supervisor/meta.h"
#include "supervisor/secrets.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/fd.h"

static int parse(const char *text, struct config *ret, struct err *err)
{
    return config_parse("p.json", text, strlen(text), "/data", NULL, ret, err);
}

static void refuses(const char *text, const char *message)
{
    struct config config;
    struct err err = {0};
    assert(parse(text, &config, &err) == -EINVAL);
    if (strcmp(err.message, message) != 0)
        fprintf(stderr, "got:    %s\nwanted: %s\n", err.message, message);
    assert(strcmp(err.message, message) == 0);
}

static void test_defaults(void)
{
    struct config config;
    assert(parse("{}", &config, NULL) == 0);
    assert(strcmp(config.state_dir, "/var/lib/paddock") == 0);
    assert(strcmp(config.policy, "/data/policy/default.json") == 0);
    assert(strcmp(config.recipes_dir, "/data/images") == 0);
    assert(config.listen_count == 1 &&
           strcmp(config.listen[0], "unix:/run/paddock/paddock.sock") == 0);
    assert(config.ids_base == 1879048192 && config.cpu_millis == 2000 &&
           config.memory_mib == 4096 && config.inactivity_ms == 1800000);
    assert(config_var(&config, "MODEL") == NULL);
    config_free(&config);
}

static void test_the_longest_prefix_of_a_name_gives_the_policy(void)
{
    struct config config;
    assert(
        parse("{\"policy_prefixes\": {\"ci-\": \"strict\", \"ci-open-\": \"open\", \"c\": \"c\"}}",
              &config, NULL) == 0);
    assert(strcmp(config_prefix_policy(&config, "ci-1"), "strict") == 0);
    assert(strcmp(config_prefix_policy(&config, "ci-open-1"), "open") == 0);
    assert(strcmp(config_prefix_policy(&config, "ci"), "c") == 0);
    assert(!config_prefix_policy(&config, "a-ci-1"));
    config_free(&config);
    assert(parse("{}", &config, NULL) == 0 && !config_prefix_policy(&config, "ci-1"));
    config_free(&config);
    refuses("{\"policy_prefixes\": {\"Ci\": \"a\"}}",
            "p.json:1:28: no sandbox's name begins with \"Ci\"");
    refuses("{\"policy_prefixes\": {\"-ci\": \"a\"}}",
            "p.json:1:29: no sandbox's name begins with \"-ci\"");
    refuses("{\"policy_prefixes\": {\"\": \"a\"}}",
            "p.json:1:26: no sandbox's name begins with \"\"");
    refuses("{\"policy_prefixes\": {\"ci-\": \"a.json\"}}",
            "p.json:1:29: policy_prefixes.ci- must be a policy's name of a-z, 0-9 and -, without "
            ".json");
    refuses("{\"policy_prefixes\": []}",
            "p.json:1:21: policy_prefixes must be an object of at most 32 names");
}

static void test_sizes_are_named_sets_of_limits(void)
{
    struct config config;
    assert(parse("{}", &config, NULL) == 0 && config.size_count == 3);
    assert(config_size(&config, "small")->memory_mib == 1024 && !config_size(&config, "tiny"));
    assert(config_size(&config, "standard")->pids == 512 && config_size(&config, "large"));
    config_free(&config);
    assert(parse("{\"sizes\": {\"tiny\": {\"cpus\": 0.25, \"pids\": 16}, \"all\": {}}}", &config,
                 NULL) == 0);
    const struct config_size *tiny = config_size(&config, "tiny");
    assert(tiny->cpu_millis == 250 && tiny->pids == 16 && !tiny->memory_mib);
    assert(config_size(&config, "all") && !config_size(&config, "small"));
    config_free(&config);
    refuses("{\"sizes\": []}", "p.json:1:11: sizes must be an object of at most 16 names");
    refuses("{\"sizes\": {\"A\": {}}}", "p.json:1:17: sizes.A is no name of a-z, 0-9 and -");
    static const char *const bad[] = {
        "[]",           "{\"memory_mib\":15}", "{\"memory_mib\":64.5}", "{\"pids\":15}",
        "{\"cpus\":0}", "{\"cpus\":4097}",     "{\"cpus\":\"1\"}",      "{\"disk_mib\":1}"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char text[128];
        snprintf(text, sizeof(text), "{\"sizes\": {\"a\": %s}}", bad[i]);
        refuses(text,
                "p.json:1:17: sizes.a must be an object of memory_mib (16 or more), cpus (0.01 "
                "or more), pids (16 or more), disk_mib (16 or more) and inodes (1024 or more)");
    }
}

static void test_every_kind_of_key(void)
{
    struct config config;
    assert(parse("// by hand\n{\"state_dir\": \"/s\", \"listen\": [\"unix:/a\", "
                 "\"tcp:127.0.0.1:7300\"], \"limits\": {\"cpus\": 0.5, \"pids\": 0}, "
                 "\"vars\": {\"MODEL\": \"m\"}, /* so */ \"ids\": {\"base\": 65536}, "
                 "\"egress_idle_ms\": 1234}",
                 &config, NULL) == 0);
    assert(config.egress_idle_ms == 1234);
    assert(strcmp(config.state_dir, "/s") == 0 && config.listen_count == 2);
    assert(config.cpu_millis == 500 && config.pids == 0 && config.ids_base == 65536);
    assert(strcmp(config_var(&config, "MODEL"), "m") == 0);
    config_free(&config);
}

static void test_refusals_name_the_place(void)
{
    refuses("{\n  \"stat_dir\": \"/x\"}",
            "p.json:2:15: unknown key stat_dir: did you mean state_dir?");
    refuses("{\"limits\": {\"cpu\": 1}}",
            "p.json:1:20: unknown key limits.cpu: did you mean limits.cpus?");
    refuses("{\"zzzzzzzzz\": 1}",
            "p.json:1:15: unknown key zzzzzzzzz; paddockd --help lists the keys");
    refuses("{\"limits.cpus\": 1}",
            "p.json:1:17: unknown key limits.cpus; paddockd --help lists the keys");
    refuses("{\"policy\": 7}", "p.json:1:12: policy must be a string, not an integer");
    refuses("{\"policy\": \"x.json\"}", "p.json:1:12: policy must be an absolute path");
    refuses("{\"inactivity_ms\": 5}", "p.json:1:19: inactivity_ms must be from 100 to 31449600000");
    refuses("{\"limits\": 3}", "p.json:1:12: limits must be an object");
    refuses("{\"ids\": {\"base\": 65537}}",
            "p.json:1:9: ids.base and ids.count must be multiples of 65536");
    refuses("{\"listen\": [\"tcp:0.0.0.0:80\"]}",
            "p.json:1:13: an address to listen on is unix:/PATH, tcp:127.0.0.1:PORT or "
            "tcp:[::1]:PORT; put a TLS proxy in front for any other");
    static const char *const proxies[] = {"h:1",        "http://h",    "http://h:",   "http://:1",
                                          "http://h:0", "https://h:1", "http://h:1/", "http://u@"};
    for (size_t i = 0; i < sizeof(proxies) / sizeof(proxies[0]); i++) {
        char text[100];
        snprintf(text, sizeof(text), "{\"upstream_proxy\": \"%s\"}", proxies[i]);
        refuses(text, "p.json:1:20: upstream_proxy must be http://HOST:PORT");
    }
    refuses("{\"vars\": {\"A\": 1}}", "p.json:1:16: vars.A must be a string of at most 4000 bytes");
}

static const char *lookup(const char *name)
{
    return strcmp(name, "MODEL") == 0 || strcmp(name, "AI_GATEWAY_ACCOUNT_ID") == 0 ? "env" : NULL;
}

static void test_variables_of_the_environment_come_second(void)
{
    struct config config;
    assert(parse("{\"vars\": {\"MODEL\": \"file\"}}", &config, NULL) == 0);
    assert(config_add_environment(&config, lookup) == 0);
    assert(strcmp(config_var(&config, "MODEL"), "file") == 0);
    assert(strcmp(config_var(&config, "AI_GATEWAY_ACCOUNT_ID"), "env") == 0);
    assert(strcmp(config_var(&config, "AI_GATEWAY_ID"), "default") == 0);
    config_free(&config);
}

static void test_meta_comes_back(int dir)
{
    struct meta meta = {.name = "a-1",
                        .repository = "Acme/notes.x",
                        .agent = "claude",
                        .image = "img",
                        .created_ms = 1764633600000,
                        .is_cloned = true,
                        .task = TASK_RUNNING,
                        .lease = {.pid = 77,
                                  .start_time = 1234567,
                                  .block = 9,
                                  .boot_id = "0b6f3c9e-0000-4000-8000-000000000000"}};
    struct meta back;
    struct err err = {0};
    assert(meta_write(dir, &meta, &err) == 0 && meta_read(dir, "a-1", &back, &err) == 0);
    assert(back.is_cloned && !back.is_cloning && back.task == TASK_RUNNING);
    assert(strcmp(back.repository, "Acme/notes.x") == 0);
    assert(back.created_ms == meta.created_ms && back.lease.pid == 77 && back.lease.block == 9);
    assert(back.lease.start_time == 1234567 && strcmp(back.lease.boot_id, meta.lease.boot_id) == 0);
    assert(meta_read(dir, "other", &back, &err) == -EINVAL); /* not this sandbox's */
    meta.lease = (struct meta_lease){0};
    assert(meta_write(dir, &meta, &err) == 0 && meta_read(dir, "a-1", &back, &err) == 0);
    assert(back.lease.pid == 0);
}

static void test_settings_come_back_with_meta(int dir)
{
    struct meta meta = {.name = "a-1",
                        .agent = "claude",
                        .image = "img",
                        .stopped_ms = 5,
                        .was_started = true,
                        .settings = SETTINGS_INIT};
    struct settings *settings = &meta.settings;
    struct meta back;
    snprintf(settings->policy, sizeof(settings->policy), "strict");
    settings->memory_mib = 512;
    settings->cpu_millis = 1250;
    settings->pids = 99;
    assert(settings_add(&settings->env, "A", "\xc3\xa9=\n1") == 0);
    assert(settings_add(&settings->labels, "x.test/team", "") == 0);
    assert(meta_write(dir, &meta, NULL) == 0 && meta_read(dir, "a-1", &back, NULL) == 0);
    assert(back.was_started && back.stopped_ms == 5);
    assert(strcmp(back.settings.policy, "strict") == 0 && back.settings.memory_mib == 512);
    assert(back.settings.cpu_millis == 1250 && back.settings.pids == 99);
    assert(settings_have(&back.settings.env, "A=\xc3\xa9=\n1"));
    assert(settings_have(&back.settings.labels, "x.test/team="));
    settings_free(&meta.settings);
    settings_free(&back.settings);
}

/* What a Paddock without settings wrote. */
static void test_meta_of_the_first_schema_is_read(void)
{
    static const char old[] = "{\"schema\": 1, \"name\": \"a\", \"agent\": \"b\", "
                              "\"image\": \"c\", \"created_ms\": 7, \"task\": \"none\"}";
    struct meta meta;
    struct err err = {0};
    assert(meta_parse("a", old, sizeof(old) - 1, &meta, &err) == 0);
    assert(meta.was_started && meta.settings.labels.len == 0 && !meta.settings.policy[0]);
}

static void test_what_was_used_is_kept(void)
{
    struct meta meta = {.name = "a",
                        .agent = "b",
                        .image = "c",
                        .task_count = 4,
                        .settings = SETTINGS_INIT,
                        .usage = {7, 1, 2, 100, 50, 30, 20, "claude-x"},
                        .task_usage = {.requests = 3, .output_tokens = 9}};
    struct meta again;
    struct err err = {0};
    cleanup_buf struct buf text = BUF_INIT(4096);
    meta.settings.budget_output_tokens = 1000;
    meta.settings.budget_requests = 8;
    assert(meta_encode(&meta, &text, &err) == 0);
    assert(meta_parse("a", buf_text(&text), text.len, &again, &err) == 0);
    assert(memcmp(&again.usage, &meta.usage, sizeof(meta.usage)) == 0);
    assert(again.task_usage.output_tokens == 9 && again.task_count == 4);
    assert(again.settings.budget_output_tokens == 1000 && again.settings.budget_requests == 8);
}

static void test_meta_of_a_newer_schema_is_refused(void)
{
    static const char newer[] = "{\"schema\": 3, \"name\": \"a\"}";
    struct meta meta;
    struct err err = {0};
    assert(meta_parse("a", newer, sizeof(newer) - 1, &meta, &err) == -EPROTONOSUPPORT);
    assert(strstr(err.message, "newer Paddock"));
    assert(meta_parse("a", "{}", 2, &meta, &err) == -EINVAL);
    assert(meta_parse("a", "{", 1, &meta, &err) == -EINVAL);
}

static void write_file(int dir, const char *name, mode_t mode)
{
    cleanup_fd int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert(fd >= 0 && write(fd, "file", 4) == 4 && fchmod(fd, mode) == 0);
}

static void test_secrets_leave_the_environment(const char *path, int dir)
{
    char first[] = "TOKEN=hush", second[] = "NOTHING", third[] = "OPEN=env";
    char *environment[] = {first, second, third, NULL};
    struct secrets *secrets = secrets_take(environment);
    struct err err = {0};
    assert(secrets && environment[0] == NULL);
    for (size_t i = 0; i < sizeof(first); i++)
        assert(first[i] == '\0'); /* what /proc/PID/environ would show */
    cleanup_fd int fd = secrets_open(secrets, path, "TOKEN", &err);
    cleanup_buf struct buf text = BUF_INIT(100);
    assert(fd >= 0 && fd_is_sealed(fd) && fd_read_all(fd, &text) == 0);
    assert(strcmp(buf_text(&text), "hush") == 0);
    write_file(dir, "OPEN", 0644);
    assert(secrets_open(secrets, path, "OPEN", &err) == -EPERM); /* and no weaker one instead */
    assert(strstr(err.message, "mode 0600"));
    write_file(dir, "SHUT", 0600);
    cleanup_fd int shut = secrets_open(secrets, path, "SHUT", &err);
    assert(shut >= 0);
    assert(symlinkat("SHUT", dir, "LINK") == 0 && secrets_open(secrets, path, "LINK", &err) < 0);
    assert(secrets_open(secrets, path, "NONE", &err) == -ENOENT);
    assert(secrets_open(secrets, path, "../x", &err) == -EINVAL);
    secrets_free(secrets);
}

int main(void)
{
    char path[] = "/tmp/test-config-XXXXXX";
    assert(mkdtemp(path));
    cleanup_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert(dir >= 0);
    test_defaults();
    test_sizes_are_named_sets_of_limits();
    test_every_kind_of_key();
    test_the_longest_prefix_of_a_name_gives_the_policy();
    test_refusals_name_the_place();
    test_variables_of_the_environment_come_second();
    test_meta_comes_back(dir);
    test_settings_come_back_with_meta(dir);
    test_meta_of_the_first_schema_is_read();
    test_what_was_used_is_kept();
    test_meta_of_a_newer_schema_is_refused();
    test_secrets_leave_the_environment(path, dir);
    static const char *const files[] = {"meta.json", "OPEN", "SHUT", "LINK"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        assert(unlinkat(dir, files[i], 0) == 0);
    assert(rmdir(path) == 0);
    return 0;
}
