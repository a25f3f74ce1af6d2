/* The settings that are named as the cause, in a folder that stands for /. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/host_settings.h"

static char root[] = "/tmp/paddock-test-settings.XXXXXX";

static void make(const char *path, const char *text)
{
    char whole[256];
    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    if (!text) {
        mkdir(whole, 0700);
        return;
    }
    FILE *file = fopen(whole, "we");
    assert(file);
    fputs(text, file);
    fclose(file);
}

static void drop(const char *path)
{
    char whole[256];
    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    remove(whole);
}

static void expect(int is_root, const char *cause, const char *cure)
{
    struct host_settings settings;
    host_settings_read(root, &settings);
    struct host_cause found = host_settings_userns(&settings, is_root);
    assert(strstr(found.cause, cause));
    assert(strstr(found.cure, cure));
}

int main(void)
{
    struct host_settings settings;
    assert(mkdtemp(root));
    make("proc", NULL);
    make("proc/sys", NULL);
    make("proc/sys/user", NULL);
    make("proc/sys/kernel", NULL);
    expect(0, "no setting", "outside");
    host_settings_read(root, &settings);
    assert(host_settings_tightest(&settings, 1000) == -1);

    make("proc/sys/user/max_user_namespaces", "5000\n");
    make("proc/sys/user/max_net_namespaces", "40\n");
    make("proc/sys/user/max_ipc_namespaces", "200\n");
    host_settings_read(root, &settings);
    assert(strcmp(host_namespace_kinds[host_settings_tightest(&settings, 1000)], "net") == 0);
    assert(settings.max[host_settings_tightest(&settings, 1000)] == 40);
    expect(0, "no setting", "outside");

    make("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
    expect(0, "apparmor_restrict", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
    expect(1, "no setting", "outside");
    make("proc/sys/kernel/unprivileged_userns_clone", "0\n");
    expect(0, "unprivileged_userns_clone", "sysctl -w kernel.unprivileged_userns_clone=1");
    expect(1, "no setting", "outside");
    make("proc/sys/user/max_user_namespaces", "0\n");
    expect(1, "max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=15000");
    make("proc/sys/user/max_user_namespaces", "nonsense\n"); /* counts as absent */
    expect(1, "no setting", "outside");

    static const char *const all[] = {"proc/sys/user/max_user_namespaces",
                                      "proc/sys/user/max_net_namespaces",
                                      "proc/sys/user/max_ipc_namespaces",
                                      "proc/sys/kernel/apparmor_restrict_unprivileged_userns",
                                      "proc/sys/kernel/unprivileged_userns_clone",
                                      "proc/sys/user",
                                      "proc/sys/kernel",
                                      "proc/sys",
                                      "proc",
                                      ""};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        drop(all[i]);
    assert(access(root, F_OK) < 0);
    return 0;
}
