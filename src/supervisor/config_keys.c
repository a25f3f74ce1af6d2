/* The configuration's keys; see config_keys.h. "group.key" is a key of an object. */
#include <assert.h>

#include "supervisor/config_keys.h"

#define AT(field) offsetof(struct config, field)
#define WEEK_MS (7LL * 24 * 3600 * 1000)

const struct config_key config_keys[] = {
    {"state_dir", KEY_PATH, AT(state_dir), .text = "/var/lib/paddock",
     .describe = "folder of sandboxes, images, CA and audit",
     .details = "of one daemon; on ext4, xfs, btrfs or (Linux 6.6 and later) tmpfs"},
    {"listen", KEY_LISTEN, 0, .text = "unix:/run/paddock/paddock.sock",
     .describe = "list of unix:/PATH and tcp:127.0.0.1:PORT",
     .details = "TCP: loopback alone, each request with a token (`paddock token create`); for "
                "others put a TLS proxy in front, which sends `Host: localhost`"},
    {"policy", KEY_PATH, AT(policy), .text = "@/policy/default.json",
     .describe = "what sandboxes may reach", .details = "a file; see [policy.md](policy.md)"},
    {"policy_prefixes", KEY_PREFIXES, 0,
     .describe = "policies by the beginning of a sandbox's name",
     .details =
         "an object such as `{\"ci-\": \"strict\"}`: names of files beside `policy`, without "
         "`.json`. The longest beginning counts; a policy that a client sets comes before it"},
    {"secrets_dir", KEY_PATH, AT(secrets_dir), .text = "/etc/paddock/secrets",
     .describe = "one file of mode 0600 per secret", .details = "named as the secret"},
    {"recipes_dir", KEY_PATH, AT(recipes_dir), .text = "@/images",
     .describe = "a folder per image and agent"},
    {"upstream_proxy", KEY_PROXY, AT(upstream_proxy), .text = "",
     .describe = "http://HOST:PORT of a proxy in front of egress",
     .details = "between Paddock and the world; it tunnels by `CONNECT`. With `USER:PASSWORD@` in "
                "front of `HOST` where it wants them (then nobody else may read the file). It "
                "finds the addresses of names, so that it must refuse private ones. A rule with an "
                "`upstream` goes past it"},
    {"ids.base", KEY_INTEGER, AT(ids_base), 65536, UINT32_MAX - 65535LL, .number = 1879048192,
     .describe = "first of the user ids that instances lease",
     .details = "nobody else may use them"},
    {"ids.count", KEY_INTEGER, AT(ids_count), 4 * 65536, UINT32_MAX - 65535LL, .number = 67108864,
     .describe = "how many; an instance takes 65536"},
    {"egress_processes", KEY_INTEGER, AT(egress_processes), 1, 1, .number = 1,
     .describe = "processes of the egress gateway", .details = "always 1 today"},
    {"egress_idle_ms", KEY_INTEGER, AT(egress_idle_ms), 1000, WEEK_MS,
     .number = LIMIT_EGRESS_IDLE_MS,
     .describe = "a connection without a byte for so long is ended"},
    {"audit.max_bytes", KEY_INTEGER, AT(audit_max_bytes), 65536, 1LL << 40,
     .number = 64LL * 1024 * 1024, .describe = "size at which the audit goes on in a new file",
     .details = "a file may be larger by the lines of the moment"},
    {"audit.keep", KEY_INTEGER, AT(audit_keep), 0, LIMIT_AUDIT_KEPT, .number = 4,
     .describe = "former files of the audit that are kept",
     .details = "`audit.jsonl.1` is the newest"},
    {"vars", KEY_VARS, 0, .describe = "variables of policies and agents: an object of texts",
     .details =
         "such as `AI_GATEWAY_ACCOUNT_ID`. `AI_GATEWAY_ACCOUNT_ID`, `AI_GATEWAY_ID` (`default`) "
         "and `MODEL` (`claude-sonnet-5`) are taken from the environment when they are not here"},
    {"default_agent", KEY_NAME, AT(default_agent), .text = "claude",
     .describe = "agent of a new sandbox", .details = "a folder of `recipes_dir`"},
    {"max_running", KEY_INTEGER, AT(max_running), 0, 65536, .number = 0,
     .describe = "instances at once; 0: as many as there are ids"},
    {"limits.memory_mib", KEY_INTEGER, AT(memory_mib), 0, 1LL << 30, .number = 4096,
     .describe = "memory of an instance with swap; 0: no limit"},
    {"limits.cpus", KEY_THOUSANDTHS, AT(cpu_millis), 0, 4096, .number = 2000,
     .describe = "cpus of an instance, 0.5 is half of one; 0: no limit"},
    {"limits.pids", KEY_INTEGER, AT(pids), 0, 4194304, .number = 1024,
     .describe = "processes of an instance; 0: no limit"},
    {"limits.open_files", KEY_INTEGER, AT(open_files), 64, 1048576, .number = 524288,
     .describe = "open files of a process; it begins with 16384 at most",
     .details = "of each program, root's too: it may raise its own up to this, and the machine's "
                "own limit"},
    {"limits.log_mib", KEY_INTEGER, AT(log_mib), 1, 1LL << 20, .number = LIMIT_TASK_LOG_BYTES >> 20,
     .describe = "size of each of the two logs of a task; the rest is dropped",
     .details = "and marked; the task's state tells `logCut`"},
    {"limits.disk_mib", KEY_INTEGER, AT(disk_mib), 0, 1LL << 30, .number = 32768,
     .describe = "what a sandbox's files may take on the disk; 0: no limit",
     .details = "the workspace and what was changed or installed outside it. It is watched: one "
                "that is over it is stopped"},
    {"limits.inodes", KEY_INTEGER, AT(inodes), 0, 1LL << 40, .number = 2000000,
     .describe = "how many files, folders and links it may have there; 0: no limit",
     .details = "as `limits.disk_mib`"},
    {"limits.deadline_ms", KEY_INTEGER, AT(deadline_ms), 0, WEEK_MS, .number = 0,
     .describe = "a task that runs for so long is ended; 0: no limit",
     .details = "unless its start names another deadline; it is told as failed then"},
    {"sizes", KEY_SIZES, 0, .describe = "named sets of limits that a sandbox may be given",
     .details = "an object such as `{\"small\": {\"memory_mib\": 1024, \"cpus\": 0.5, \"pids\": "
                "256}}` (and `disk_mib`, `inodes`), 16 at most, in place of those that are there "
                "by default: `small` (1024, "
                "0.5, 256), `standard` (2048, 1, 512) and `large` (as `limits`). What one leaves "
                "out, and what is above it, is that of `limits`"},
    {"floor.disk_mib", KEY_INTEGER, AT(floor_disk_mib), 0, 1LL << 30, .number = 256,
     .describe = "free space of state_dir below which no instance is started",
     .details = "a start is answered `503` then; 0: no floor"},
    {"floor.disk_files", KEY_INTEGER, AT(floor_disk_files), 0, 1LL << 40, .number = 4096,
     .describe = "free inodes of state_dir below which no instance is started",
     .details = "files that can still be made there; as `floor.disk_mib`, and not where the file "
                "system has no fixed number of them (btrfs); 0: no floor"},
    {"floor.memory_mib", KEY_INTEGER, AT(floor_memory_mib), 0, 1LL << 30, .number = 256,
     .describe = "available memory below which no instance is started",
     .details = "as `floor.disk_mib`; 0: no floor"},
    {"disk_check_ms", KEY_INTEGER, AT(disk_check_ms), 100, WEEK_MS, .number = 5000,
     .describe = "how often it is looked whether the disk has filled up",
     .details = "which costs nothing; files of a sandbox are counted when it may have come near "
                "its `limits.disk_mib` or `limits.inodes`"},
    {"log_format", KEY_FORMAT, AT(log_format), .text = "text",
     .describe = "lines of the log: text or json",
     .details = "`text`: a line of words, `json`: an object per line; under systemd each with its "
                "priority"},
    {"inactivity_ms", KEY_INTEGER, AT(inactivity_ms), 100, 52 * WEEK_MS, .number = 1800000,
     .describe = "an instance unused for so long is stopped",
     .details = "without request, program or task"},
    {"stopped_ttl_ms", KEY_INTEGER, AT(stopped_ttl_ms), 0, 520 * WEEK_MS, .number = 0,
     .describe = "a sandbox stopped for so long is removed; 0: never",
     .details =
         "its time goes on while the daemon is away, by the machine's clock. While that is before "
         "the last time that a record of the sandbox knows (a machine without a clock that has "
         "just booted) the time begins anew instead"},
    {"task_check_ms", KEY_INTEGER, AT(task_check_ms), 100, WEEK_MS, .number = 60000,
     .describe = "how often each running task is looked at", .details = "which counts as use"},
};
const size_t config_key_count = sizeof(config_keys) / sizeof(config_keys[0]);

static_assert(sizeof(config_keys) / sizeof(config_keys[0]) <= CONFIG_KEYS_MAX,
              "CONFIG_KEYS_MAX is too small");
