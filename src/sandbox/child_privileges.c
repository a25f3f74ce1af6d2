/* What the set-up child gives up before exec. Set-up child; allocates nothing. */
#include <linux/seccomp.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox/child.h"

static int limit_bounding_set(uint64_t keep, struct err *err)
{
    cap_value_t end = cap_max_bits();
    for (cap_value_t cap = 0; cap < end; cap++)
        if (!(keep >> cap & 1) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            return err_errno(err, errno, "cannot drop capability %d", cap);
    return 0;
}

/* What is inheritable and ambient is kept over exec(2) by one who is not root (capabilities(7)). */
static int set_inheritable(uint64_t keep, struct err *err)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, data) < 0)
        return err_errno(err, errno, "cannot read the capabilities");
    for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
        data[i].inheritable = (uint32_t)(keep >> (32 * i));
    if (syscall(SYS_capset, &header, data) < 0 ||
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return err_errno(err, errno, "cannot set the inheritable capabilities");
    cap_value_t end = cap_max_bits();
    for (cap_value_t cap = 0; cap < end; cap++)
        if ((keep >> cap & 1) && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
            return err_errno(err, errno, "cannot keep capability %d", cap);
    return 0;
}

int child_drop_privileges(const struct child_common *common, struct err *err)
{
    int result = limit_bounding_set(common->keep_capabilities, err);
    if (result == 0)
        result = set_inheritable(common->ambient_capabilities, err);
    if (result < 0)
        return result;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_errno(err, errno, "cannot set no_new_privs");
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, common->seccomp) < 0)
        return err_errno(err, errno, "cannot load the seccomp filter");
    return 0;
}
