/* The promises of the pool of ids, the seccomp profiles and the network's requests: no root. */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <string.h>

#include "sandbox/ids.h"
#include "sandbox/network.h"
#include "sandbox/profile.h"

#define BASE 1879048192U

static void test_the_range_is_whole_blocks_below_the_end(void)
{
    struct ids *ids = NULL;
    struct err err = {0};
    assert(ids_new(BASE + 1, 4 * IDS_PER_BLOCK, &ids, &err) == -EINVAL);
    assert(ids_new(BASE, 3 * IDS_PER_BLOCK, &ids, &err) == -EINVAL);
    assert(ids_new(0, 4 * IDS_PER_BLOCK, &ids, &err) == -EINVAL);
    assert(ids_new(0xffff0000U, 4 * IDS_PER_BLOCK, &ids, &err) == -EINVAL && !ids);
}

static void test_no_block_is_leased_twice(void)
{
    struct ids *ids = NULL;
    struct err err = {0};
    uint32_t blocks[3];
    uint32_t none = 77;
    assert(ids_new(BASE, 4 * IDS_PER_BLOCK, &ids, &err) == 0);
    for (int i = 0; i < 3; i++)
        assert(ids_lease(ids, &blocks[i], &err) == 0 && blocks[i] != 0);
    assert(blocks[0] != blocks[1] && blocks[1] != blocks[2] && blocks[0] != blocks[2]);
    assert(ids_lease(ids, &none, &err) == -EAGAIN && none == 77);
    assert(ids_claim(ids, blocks[0], &err) == -EBUSY);
    ids_release(ids, blocks[1]);
    ids_release(ids, blocks[0]);
    assert(ids_claim(ids, blocks[2], &err) == -EBUSY && ids_claim(ids, 0, &err) == -EINVAL);
    /* least recently used first, so that a late process of the last lease meets nobody */
    assert(ids_lease(ids, &none, &err) == 0 && none == blocks[1]);
    assert(ids_claim(ids, blocks[0], &err) == 0);
    assert(ids_base(ids, 2) == BASE + 2 * IDS_PER_BLOCK);
    ids_free(ids);
}

static void test_every_profile_compiles_and_returns(void)
{
    for (int profile = 0; profile < SECCOMP_PROFILES; profile++) {
        struct buf program = BUF_INIT(SECCOMP_FILTER_MAX);
        struct err err = {0};
        assert(profile_compile(profile, &program, &err) == 0);
        size_t count = program.len / sizeof(struct sock_filter);
        assert(program.len % sizeof(struct sock_filter) == 0 && count > 10 && count <= 4096);
        const struct sock_filter *last =
            (const struct sock_filter *)(const void *)program.data + count - 1;
        assert(last->code == (BPF_RET | BPF_K));
        buf_free(&program);
    }
}

static void test_the_network_is_one_batch_of_requests(void)
{
    struct network_requests with;
    struct network_requests without;
    struct err err = {0};
    assert(network_build_requests(true, &with, &err) == 0 && with.count == 5);
    assert(network_build_requests(false, &without, &err) == 0 && without.count == 3);
    assert(without.len < with.len && with.len <= sizeof(with.data));
    const struct nlmsghdr *first = (const struct nlmsghdr *)(const void *)with.data;
    assert(first->nlmsg_flags & NLM_F_ACK);
}

int main(void)
{
    test_the_range_is_whole_blocks_below_the_end();
    test_no_block_is_leased_twice();
    test_every_profile_compiles_and_returns();
    test_the_network_is_one_batch_of_requests();
    return 0;
}
