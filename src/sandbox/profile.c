/*
 * Compiles the seccomp profiles; see profile.h. A profile is two programs, one after the other in
 * one array: the first refuses by name or argument and lets all else through to the second, which
 * lets through what is on the list and answers ENOSYS to the rest, new calls included, so that
 * programs take their way around. 32-bit and x32 calls are other tables of numbers: ENOSYS too.
 *
 * Arguments are compared in the 32 bits that the kernel looks at: a 64-bit comparison would be
 * passed by with a bit above them.
 */
#include "sandbox/profile.h"

#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sandbox/profile_tables.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define LOW_32 0xffffffffULL
#define PER_QUERY 0xffffffffU

static void release_filter(scmp_filter_ctx *filter)
{
    if (*filter)
        seccomp_release(*filter);
}

#define cleanup_filter __attribute__((cleanup(release_filter)))

/* For a conditional rule; the first failure is kept in *result. */
static void refuse_if(scmp_filter_ctx filter, int *result, int code, int call,
                      struct scmp_arg_cmp compare)
{
    if (*result == 0)
        *result = seccomp_rule_add_array(filter, SCMP_ACT_ERRNO((uint32_t)code), call, 1, &compare);
}

static void refuse(scmp_filter_ctx filter, int *result, int code, int call)
{
    if (*result == 0)
        *result = seccomp_rule_add_array(filter, SCMP_ACT_ERRNO((uint32_t)code), call, 0, NULL);
}

/* What init calls for the task's pid namespace and the /proc in it. */
static const char *const nesting_calls[] = {"mount", "open_tree", "move_mount", "mount_setattr",
                                            "setns"};

static bool is_for_nesting(const char *call)
{
    for (size_t i = 0; i < ARRAY_LEN(nesting_calls); i++)
        if (strcmp(nesting_calls[i], call) == 0)
            return true;
    return false;
}

static void refuse_named(scmp_filter_ctx filter, int *result, int profile,
                         const struct profile_refusal *table)
{
    for (; table->name; table++) {
        int call = seccomp_syscall_resolve_name(table->name);
        if (call >= 0 && !(profile == SECCOMP_NESTING && is_for_nesting(table->name)))
            refuse(filter, result, EPERM, call);
    }
}

/* A network namespace confines AF_INET and AF_INET6; AF_VSOCK for one it does not. */
static void refuse_sockets(scmp_filter_ctx filter, int *result, int profile)
{
    static const unsigned allowed[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
    for (unsigned family = 0; family <= AF_NETLINK; family++) {
        bool is_allowed = false;
        for (size_t i = 0; i < ARRAY_LEN(allowed); i++)
            is_allowed |= allowed[i] == family;
        /* A user's egress has the rights of its user: services of that user would do as it says. */
        is_allowed &= profile != SECCOMP_EGRESS || family != AF_UNIX;
        if (!is_allowed)
            refuse_if(filter, result, EAFNOSUPPORT, SCMP_SYS(socket),
                      SCMP_A0_64(SCMP_CMP_MASKED_EQ, LOW_32, family));
    }
    refuse_if(filter, result, EAFNOSUPPORT, SCMP_SYS(socket), SCMP_A0_64(SCMP_CMP_GT, AF_NETLINK));
    struct scmp_arg_cmp not_route[] = {SCMP_A0_64(SCMP_CMP_EQ, AF_NETLINK),
                                       SCMP_A2_64(SCMP_CMP_NE, 0 /* NETLINK_ROUTE */)};
    if (*result == 0)
        *result = seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 2,
                                         not_route);
    refuse_if(filter, result, EAFNOSUPPORT, SCMP_SYS(socketpair), SCMP_A0_64(SCMP_CMP_NE, AF_UNIX));
}

/* New namespaces, of any kind, would bring back capabilities. clone3(2) hides its flags in memory,
 * where no filter can see them: ENOSYS, and libc takes clone(2). */
static void refuse_namespaces(scmp_filter_ctx filter, int *result, int profile)
{
    static const unsigned flags[] = {CLONE_NEWUSER, CLONE_NEWNS,  CLONE_NEWPID,   CLONE_NEWNET,
                                     CLONE_NEWIPC,  CLONE_NEWUTS, CLONE_NEWCGROUP};
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        struct scmp_arg_cmp has_flag = SCMP_A0_64(SCMP_CMP_MASKED_EQ, flags[i], flags[i]);
        if (profile == SECCOMP_NESTING && (flags[i] == CLONE_NEWNS || flags[i] == CLONE_NEWPID))
            continue; /* with capabilities alone, and those its programs do not have */
        refuse_if(filter, result, EPERM, SCMP_SYS(clone), has_flag);
        refuse_if(filter, result, EPERM, SCMP_SYS(unshare), has_flag);
    }
    /* Of clone(2) these bits are the exit signal. */
    refuse_if(filter, result, EPERM, SCMP_SYS(unshare),
              SCMP_A0_64(SCMP_CMP_MASKED_EQ, CLONE_NEWTIME, CLONE_NEWTIME));
    refuse(filter, result, ENOSYS, SCMP_SYS(clone3));
}

/* Both put bytes into a terminal's input, as if its user had typed them. */
static void refuse_terminal_input(scmp_filter_ctx filter, int *result)
{
    static const unsigned requests[] = {TIOCSTI, TIOCLINUX};
    for (size_t i = 0; i < ARRAY_LEN(requests); i++)
        refuse_if(filter, result, EPERM, SCMP_SYS(ioctl),
                  SCMP_A1_64(SCMP_CMP_MASKED_EQ, LOW_32, requests[i]));
}

/* api, egress: threads, but no processes, no programs, no raw sockets; api makes no connection. */
static void refuse_daemon(scmp_filter_ctx filter, int *result, int profile)
{
    refuse_named(filter, result, profile, profile_refused_daemon);
    refuse_if(filter, result, EPERM, SCMP_SYS(clone),
              SCMP_A0_64(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
    if (profile == SECCOMP_API)
        refuse(filter, result, EPERM, SCMP_SYS(connect));
}

static int fill_refusing(scmp_filter_ctx filter, int profile)
{
    int result = 0;
    refuse_terminal_input(filter, &result);
    if (profile == SECCOMP_BUILD) {
        /* dpkg and mmdebstrap mount and chroot; the user namespace is their wall. */
        static const struct profile_refusal few[] = {{"bpf", ""},
                                                     {"keyctl", ""},
                                                     {"add_key", ""},
                                                     {"request_key", ""},
                                                     {"userfaultfd", ""},
                                                     {"perf_event_open", ""},
                                                     {"io_uring_setup", ""},
                                                     {"kexec_load", ""},
                                                     {"open_by_handle_at", ""},
                                                     {NULL, NULL}};
        refuse_named(filter, &result, profile, few);
        return result;
    }
    refuse_named(filter, &result, profile, profile_refused);
    refuse_namespaces(filter, &result, profile);
    if (profile == SECCOMP_JAIL) {
        refuse(filter, &result, EPERM, SCMP_SYS(socket));
        refuse(filter, &result, EPERM, SCMP_SYS(ptrace));
    } else {
        refuse_sockets(filter, &result, profile);
    }
    if (profile == SECCOMP_API || profile == SECCOMP_EGRESS)
        refuse_daemon(filter, &result, profile);
    return result;
}

static int fill_allowing(scmp_filter_ctx filter, int profile)
{
    static const unsigned personalities[] = {0, 0x0008, 0x20000, 0x20008, PER_QUERY};
    int result = 0;
    for (const char *const *name = profile_allowed; *name && result == 0; name++) {
        int call = seccomp_syscall_resolve_name(*name);
        if (call >= 0)
            result = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, call, 0, NULL);
    }
    for (size_t i = 0; i < ARRAY_LEN(nesting_calls) && result == 0; i++) {
        int call = seccomp_syscall_resolve_name(nesting_calls[i]);
        if (call >= 0 && profile == SECCOMP_NESTING)
            result = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, call, 0, NULL);
    }
    for (size_t i = 0; i < ARRAY_LEN(personalities) && result == 0; i++) {
        struct scmp_arg_cmp is = SCMP_A0_64(SCMP_CMP_MASKED_EQ, LOW_32, personalities[i]);
        result = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(personality), 1, &is);
    }
    return result;
}

/* Appends the program to *ret. libseccomp writes to a descriptor only. */
static int export(scmp_filter_ctx filter, struct buf *ret, struct err *err)
{
    cleanup_fd int fd = memfd_create("bpf", MFD_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot make a memfd");
    int result = seccomp_export_bpf(filter, fd);
    if (result < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return err_set(err, EINVAL, "libseccomp cannot compile a filter: %s", strerror(-result));
    result = fd_read_all(fd, ret);
    return result < 0 ? err_errno(err, -result, "cannot read a seccomp filter") : 0;
}

static int configure(scmp_filter_ctx filter)
{
    int result = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
    /* A binary tree: the kernel runs the filter for every number once when it is loaded. */
    if (result == 0)
        result = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    return result;
}

/* Makes the first program go on to what follows it instead of letting the call through. */
static void chain(struct sock_filter *program, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (program[i].code == (BPF_RET | BPF_K) && program[i].k == SECCOMP_RET_ALLOW)
            program[i] =
                (struct sock_filter){.code = BPF_JMP | BPF_JA, .k = (uint32_t)(count - i - 1)};
}

int profile_compile(int profile, struct buf *ret, struct err *err)
{
    cleanup_filter scmp_filter_ctx refusing = seccomp_init(SCMP_ACT_ALLOW);
    cleanup_filter scmp_filter_ctx allowing = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    if (!refusing || !allowing)
        return err_set(err, ENOMEM, "cannot make a seccomp filter");
    int result = configure(refusing);
    if (result == 0)
        result = configure(allowing);
    if (result == 0)
        result = fill_refusing(refusing, profile);
    if (result == 0)
        result = fill_allowing(allowing, profile);
    if (result < 0)
        return err_errno(err, -result, "cannot build seccomp profile %d", profile);
    result = export(refusing, ret, err);
    if (result < 0 || profile == SECCOMP_BUILD)
        return result;
    chain((struct sock_filter *)(void *)ret->data, ret->len / sizeof(struct sock_filter));
    return export(allowing, ret, err);
}
