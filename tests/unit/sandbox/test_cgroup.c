/* The unit that systemd delegates for instances is found beside the daemon's own. */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "sandbox/cgroup.h"

static void must_find(const char *own, const char *expected)
{
    char path[PATH_MAX];
    assert(cgroup_find_unit(own, path, sizeof(path)) == 0);
    assert(strcmp(path, expected) == 0);
}

static void own_must_be(const char *own, const char *expected)
{
    char path[PATH_MAX];
    assert(cgroup_find_own(own, path, sizeof(path)) == 0);
    assert(strcmp(path, expected) == 0);
}

int main(void)
{
    own_must_be("0::/user.slice/x.scope\n1:pids:/y\n", "user.slice/x.scope");
    own_must_be("0::/a/paddock-daemon\n", "a");
    own_must_be("0::/paddock-daemon\n", "paddock-daemon"); /* not below a group of ours */
    own_must_be("0::/\n", "");
    must_find("0::/system.slice/paddock.service\n", "system.slice/paddock-instances.service");
    must_find(
        "12:pids:/x\n1:name=systemd:/a/b\n0::/user.slice/u.service/app.slice/paddock.service\n",
        "user.slice/u.service/app.slice/paddock-instances.service");
    must_find("0::/one", "paddock-instances.service");
    must_find("0::/\n", "paddock-instances.service");
    must_find("0::/a/b\n1:pids:/c/d/e\n", "a/paddock-instances.service");
    char path[PATH_MAX];
    assert(cgroup_find_unit("", path, sizeof(path)) == -ENOENT);
    assert(cgroup_find_unit("1:pids:/system.slice/x.service\n", path, sizeof(path)) == -ENOENT);
    assert(cgroup_find_unit("0::/a/b\n", path, 10) == -ENAMETOOLONG);
    return 0;
}
