/*
 * Every limit, with its unit and the reason for it. What is shared by two folders is here; a limit
 * of one folder alone may also stand here. docs/ take their figures from this file.
 */
#pragma once

/* Names: an RFC 1123 label, so that a name can be a hostname. */
#define LIMIT_NAME_BYTES 63

/* A prompt becomes one argument of the agent; Linux refuses an argument of 128 KiB or more, its
 * NUL included (MAX_ARG_STRLEN, execve(2)). */
#define LIMIT_PROMPT_BYTES (128 * 1024 - 1)

/* Messages between our processes: one page, so that a peer cannot make us allocate. */
#define LIMIT_IPC_MESSAGE_BYTES 4096
#define LIMIT_IPC_DESCRIPTORS 8

/* argv, environment and cwd of a program, encoded (task/spec.h). */
#define LIMIT_SPEC_BYTES (256 * 1024)
#define LIMIT_SPEC_STRINGS 1024

/* Configuration, policies, agent.json, meta.json: written by people or by us. */
#define LIMIT_CONFIG_BYTES (1024 * 1024)
#define LIMIT_JSON_DEPTH 32
/* Members of one object: each new key is compared with those before it. */
#define LIMIT_JSON_MEMBERS 1024
/* One text of the configuration: a path, an address, a variable. */
#define LIMIT_CONFIG_TEXT_BYTES 4000
/* Variables of policies and agents. */
#define LIMIT_CONFIG_VARS 64
/* Policies by the beginning of a sandbox's name. */
#define LIMIT_POLICY_PREFIXES 32
/* Sockets that the API listens on. */
#define LIMIT_LISTEN_SOCKETS 16

/* Recipes of images (build.json): entries of a list, and the length of a package's name or a path.
 */
#define LIMIT_RECIPE_ITEMS 256
#define LIMIT_RECIPE_STRING_BYTES 256

/* Images built or imported at once: each takes a disk's and a processor's time. */
#define LIMIT_BUILDS 4
/* Images that are imported. Bytes of an archive without its compression, and again of all files in
 * it at their full length, however sparse: the largest images in use have some 20 GiB. */
#define LIMIT_IMPORT_BYTES (32LL * 1024 * 1024 * 1024)
/* Files, folders and links of all layers together; a large one has some 500,000. */
#define LIMIT_IMPORT_ENTRIES 2000000
/* A path in an image, and the folders on it: no program opens a longer one in one go. */
#define LIMIT_IMPORT_PATH_BYTES 4095
#define LIMIT_IMPORT_DEPTH 128
/* Layers of an image; the tools that make them stop at 127. */
#define LIMIT_IMPORT_LAYERS 128
/* Files of an archive of layers: each layer is looked up among them. */
#define LIMIT_IMPORT_MEMBERS 4096
/* index.json, manifests, configurations; and how many indexes may lead to a manifest. */
#define LIMIT_IMPORT_JSON_BYTES (4 * 1024 * 1024)
#define LIMIT_IMPORT_INDEXES 4
/* passwd and group of an image. */
#define LIMIT_IMPORT_ACCOUNTS_BYTES (1024 * 1024)
/* Bytes that are written before the room on the disk is looked at again. */
#define LIMIT_IMPORT_ROOM_STEP (64LL * 1024 * 1024)
/* What a file, folder or link counts there, empty or not; and so many more of them must fit on the
 * disk: as many as all imports at once make before each looks again. */
#define LIMIT_IMPORT_ENTRY_BYTES 4096
#define LIMIT_IMPORT_FREE_INODES                                                                   \
    ((unsigned long)LIMIT_BUILDS * LIMIT_IMPORT_ROOM_STEP / LIMIT_IMPORT_ENTRY_BYTES)
/* What is kept of an image's environment: it is given to every program of its sandboxes. */
#define LIMIT_IMAGE_ENV_BYTES (32 * 1024)
#define LIMIT_IMAGE_ENV_COUNT 128
#define LIMIT_IMAGE_PATH_BYTES 1023
#define LIMIT_IMAGE_USER_BYTES 127

/* A string of a policy with its variables put in; headers longer than this are refused by many
 * servers. */
#define LIMIT_POLICY_STRING_BYTES (16 * 1024)
/* Names of variables and secrets in a policy. */
#define LIMIT_POLICY_NAME_BYTES 64
/* The refs at the start of a push (a line of git's protocol has up to 65,520 bytes): held in memory
 * until they are judged; some 1,000 refs. Not more than LIMIT_EGRESS_QUEUE_BYTES: they wait there.
 */
#define LIMIT_POLICY_PUSH_BYTES (128 * 1024)
/* What git is told of each of them. */
#define LIMIT_POLICY_PUSH_REPORT_BYTES (1024 * 1024)
/* OWNER/REPOSITORY; GitHub's own are at most 140. */
#define LIMIT_REPOSITORY_BYTES 255
/* Why a rule is inactive: it may name several things. */
#define LIMIT_POLICY_REASON_BYTES 1024

/* What a client sets of a sandbox. Its environment is given to each program inside, beside the
 * agent's own: far below what execve(2) takes. */
#define LIMIT_ENV 64
#define LIMIT_ENV_NAME_BYTES 128
#define LIMIT_ENV_VALUE_BYTES 4096
#define LIMIT_ENV_BYTES (32 * 1024)
/* Labels: all are in the list of sandboxes. Name and value are as in Kubernetes. */
#define LIMIT_LABELS 32
#define LIMIT_LABEL_PREFIX_BYTES 253
#define LIMIT_LABELS_BYTES (4 * 1024)
/* Labels that one list of sandboxes asks for. */
#define LIMIT_LABEL_FILTERS 8
/* The least that an instance can be limited to: init and a shell. */
#define LIMIT_LEAST_MEMORY_MIB 16
#define LIMIT_LEAST_CPU_MILLIS 10
#define LIMIT_LEAST_PIDS 16
/* And what it writes itself (resolv.conf, certificates and the like). */
#define LIMIT_LEAST_DISK_MIB 16
#define LIMIT_LEAST_INODES 1024
/* A sandbox over its limit of files may be used to tidy up, and grow by so much meanwhile before it
 * is stopped again. */
#define LIMIT_TIDY_BYTES (64LL * 1024 * 1024)
#define LIMIT_TIDY_INODES 10000

/* API bodies that are JSON; a prompt has its own. */
#define LIMIT_API_JSON_BYTES (512 * 1024)
/* Request line and headers of an API request. */
#define LIMIT_API_HEAD_BYTES (32 * 1024)
/* So much of a request's path is in its line of the log. */
#define LIMIT_LOG_PATH_BYTES 200
/* Headers of one request, of API clients and of agents, and of one answer to an agent: none has
 * more than some dozens. */
#define LIMIT_HTTP_FIELDS 256
/* Tokens of the API: each request over TCP is compared with all of them. */
#define LIMIT_TOKENS 256
/* Ten years: the longest time of a token that has an end. */
#define LIMIT_TOKEN_SECONDS 315360000
/* Connections of API clients at once. */
#define LIMIT_API_CONNECTIONS 1024
/* From one comment in a stream of events to the next. */
#define LIMIT_API_EVENT_MS 15000

/* stdout and stderr of an exec that the API keeps: the last part of each. */
#define LIMIT_EXEC_OUTPUT_BYTES (1024 * 1024)

/* An answer of the API that the command line keeps whole: two outputs of an exec, each byte escaped
 * in JSON as up to six. */
#define LIMIT_CLI_REPLY_BYTES (2 * 6 * LIMIT_EXEC_OUTPUT_BYTES + 4096)
/* An event line of an agent that is shown; a longer one is skipped over. */
#define LIMIT_CLI_LINE_BYTES (8 * 1024 * 1024)
/* What is shown of one text of an agent. */
#define LIMIT_CLI_EVENT_BYTES (64 * 1024)

/* Logs of a task, each; what follows is dropped and marked. */
#define LIMIT_TASK_LOG_BYTES (256LL * 1024 * 1024)
/* outcome.json; the result or the error inside is cut to fit. */
#define LIMIT_OUTCOME_BYTES (1024 * 1024)
/* One value of an agent's event that an adapter keeps; the rest of a longer one is dropped. An
 * event may be of any length. */
#define LIMIT_AGENT_VALUE_BYTES LIMIT_OUTCOME_BYTES
/* Containers within containers in an event; one that nests deeper is not an event. A bit each. */
#define LIMIT_AGENT_NESTING 65536
/* The end of stderr that goes into an error text, in characters. */
#define LIMIT_STDERR_TAIL 2000

/* Followers of one task's log at once. */
#define LIMIT_TASK_WATCHERS 16
/* Programs run by exec in one instance at once. */
/* Of the configuration: named sets of limits. */
#define LIMIT_SIZES 16
#define LIMIT_EXECS 256
/* The longest time that may be set for a program: a week. */
#define LIMIT_EXEC_TIMEOUT_MS (7LL * 24 * 3600 * 1000)
/* Between SIGTERM to a program whose time is over and SIGKILL to all that it started. */
#define LIMIT_EXEC_GRACE_MS 2000

/* The diff. One path of a work tree, or a file of one line in a git folder, quoted or in a
 * variable; Linux hands out no longer ones than PATH_MAX. */
#define LIMIT_REPO_PATHS_BYTES (16 * 1024)
/* An index takes some 100 bytes a file: a million files. It is copied into the jail's /tmp. */
#define LIMIT_REPO_INDEX_BYTES (128LL * 1024 * 1024)
/* packed-refs and shallow, some 60 bytes a ref. */
#define LIMIT_REPO_REFS_BYTES (32LL * 1024 * 1024)
/* Shared parts of split indexes; git leaves those of two weeks. */
#define LIMIT_REPO_SHARED_INDEXES 16
/* Submodules and nested clones of one work tree, and how deep they nest; more is an error. */
#define LIMIT_REPO_SUBMODULES 512
#define LIMIT_REPO_SUBMODULE_DEPTH 8
/* A git that says nothing for so long is held up; one that does not compute either, sooner. */
#define LIMIT_GIT_SILENCE_MS 100000
#define LIMIT_GIT_IDLE_MS 10000
/* The beginning of a diff is held back, so that a git that stumbled over a change under its feet
 * can be run again unseen; and how often. */
#define LIMIT_DIFF_HELD_BYTES (1024 * 1024)
#define LIMIT_DIFF_TRIES 4
/* A revision that a client names. */
#define LIMIT_REVISION_BYTES 1024

/* Diffs made at once: each is a jail that may take a gigabyte. */
#define LIMIT_DIFFS 32

/* Grace between SIGTERM and SIGKILL. */
#define LIMIT_STOP_GRACE_MS 10000

/* The audit: one line; path and reason are cut so that it fits whatever a sandbox sends. */
#define LIMIT_AUDIT_LINE_BYTES (16 * 1024)
#define LIMIT_AUDIT_TEXT_BYTES 2048

/* Former files of the audit that can be kept: each turn renames them all. */
#define LIMIT_AUDIT_KEPT 100

/* What a decompressor holds of an answer that is read for its usage: Brotli's window of 4 MiB and
 * its tables; and how many compressed answers one sandbox may have at once: others are asked for
 * without compression. */
#define LIMIT_USAGE_WINDOW_BYTES ((size_t)5 * 1024 * 1024)
#define LIMIT_USAGE_DECODERS 32
/* The largest budget that can be set. */
#define LIMIT_BUDGET (1LL << 50)

/* Rules whose requests are counted by themselves; those of more are counted together. */
#define LIMIT_RULE_COUNTS 512

/* Lines of the audit that one answer has: most wanted, asked for when nothing is said, in bytes. */
#define LIMIT_AUDIT_LINES 1000
#define LIMIT_AUDIT_LINES_DEFAULT 100
#define LIMIT_AUDIT_ANSWER_BYTES (4 * 1024 * 1024)
/* Clients that follow the audit at once. */
#define LIMIT_AUDIT_WATCHERS 64

/* PEM of the CA: a key and two certificates are some 2 KiB. */
#define LIMIT_CA_PEM_BYTES (64 * 1024)
/* Leaf certificates kept, by host: some 2 KiB each. */
#define LIMIT_CA_LEAVES 1024

/* What a sandbox may send to egress: one request line, one head. Clients in use stay below 8 KiB.
 */
#define LIMIT_EGRESS_REQUEST_LINE_BYTES (16 * 1024)
#define LIMIT_EGRESS_HEAD_BYTES (64 * 1024)
/* Chunk extensions and trailers of a request body between two bytes of the body. */
#define LIMIT_EGRESS_CHUNK_OVERHEAD (8 * 1024)
/* Heads of one upstream answer, its interim ones included, and its trailers. */
#define LIMIT_EGRESS_ANSWER_HEAD_BYTES (64 * 1024)
/* Bytes of one exchange that wait in egress, per direction; what is more stays in the sockets. */
#define LIMIT_EGRESS_QUEUE_BYTES (128 * 1024)
/* The same in a sandbox that is at its limit below: enough to go on with. */
#define LIMIT_EGRESS_TIGHT_QUEUE_BYTES (8 * 1024)
/* A buffer up to this size is a connection's own; what is larger counts for the sandbox. */
#define LIMIT_EGRESS_OWN_BUFFER_BYTES (32 * 1024)
/* All larger buffers of one sandbox: 64 slow readers with full queues. Beyond it each connection
 * has LIMIT_EGRESS_TIGHT_QUEUE_BYTES. With LIMIT_EGRESS_CONNECTIONS, some 150 KiB each for TLS and
 * HTTP both ways, a sandbox holds at most some 64 MiB of egress, and with LIMIT_EGRESS_STREAMS over
 * HTTP/2, each with its first window, and LIMIT_EGRESS_WIDE_STREAMS, some 48 MiB more. */
#define LIMIT_EGRESS_SANDBOX_BYTES (16 * 1024 * 1024)
/* What the kernel holds of a sandbox's connection each way (it doubles the figure); left alone it
 * would give megabytes, for which nobody's limit counts. */
#define LIMIT_EGRESS_SOCKET_BYTES (128 * 1024)
/* Towards the sandbox its first connections that filled theirs are left to the kernel's tuning, up
 * to the last figure of LIMIT_SANDBOX_TCP_WMEM each, until they end: a download goes on while its
 * reader and egress take turns. At most 16 MiB of kernel memory a sandbox. */
#define LIMIT_EGRESS_WIDE_SOCKETS 8
/* net.ipv4.tcp_wmem of a sandbox's network namespace: least, first and largest size of what waits
 * to be sent on one connection (tcp(7)). */
#define LIMIT_SANDBOX_TCP_WMEM "4096 16384 2097152"
/* Headers that a rule sets, and secrets in them. */
#define LIMIT_EGRESS_SET_HEADERS 32
/* A TLS handshake, and a request's head from its first byte to its last. */
#define LIMIT_EGRESS_HANDSHAKE_MS 10000
#define LIMIT_EGRESS_HEAD_MS 20000
/* A connection kept open between two requests. */
#define LIMIT_EGRESS_KEEP_ALIVE_MS 120000
/* After an answer that came before the end of the request: so long and so many bytes of it are read
 * and dropped, so that the answer is not lost in a reset. */
#define LIMIT_EGRESS_LINGER_MS 2000
#define LIMIT_EGRESS_LINGER_BYTES (16 * 1024 * 1024)
/* Of one answer over HTTP/2 under way or waiting, once its client takes what comes. */
#define LIMIT_EGRESS_STREAM_BYTES (512 * 1024)
/* So many of those at once in one sandbox, 16 MiB; others keep their first window, 64 KiB. */
#define LIMIT_EGRESS_WIDE_STREAMS 32
/* What waits to be sent on one connection to an upstream: a head, and bodies' bytes. */
#define LIMIT_EGRESS_LINK_OUT_BYTES (LIMIT_EGRESS_QUEUE_BYTES + LIMIT_EGRESS_HEAD_BYTES * 3)
/* A connection to an upstream that nobody uses is kept for so long. */
#define LIMIT_EGRESS_POOL_IDLE_MS 60000
/* Connecting to an upstream, name lookup and TLS included. */
#define LIMIT_EGRESS_CONNECT_MS 30000
/* Names that one sandbox looks up at once; more wait, for the time above, in the order in which
 * they came. One whose servers are silent is asked for as long as resolv.conf(5) says, given up or
 * not. */
#define LIMIT_EGRESS_LOOKUPS 2
/* Threads for that (UV_THREADPOOL_SIZE), some 20 KiB each. libuv gives half of them to lookups: it
 * takes eight sandboxes with nothing but such names to hold up the others'. */
#define LIMIT_EGRESS_THREADS "32"

/* DNS of a sandbox: a query is a name of at most 255 bytes and a few options. Connections over TCP
 * at once, and how long one may say nothing whole. */
#define LIMIT_DNS_QUERY_BYTES 4096
#define LIMIT_DNS_CONNECTIONS 32
#define LIMIT_DNS_IDLE_MS 10000
/* Connections to 80 and 443 of one sandbox at once; more wait in the backlog. */
#define LIMIT_EGRESS_CONNECTIONS 256
/* Streams over HTTP/2 of one sandbox at once, on all of its connections; more are refused before
 * they are looked at, and clients send them again. Each may need a connection to its upstream. */
#define LIMIT_EGRESS_STREAMS 512

/* Files of a policy's folder, and secrets that one policy names; a secret is a token or a key. */
#define LIMIT_POLICY_FILES 64
/* Reloads of the policy that clients wait for at once. */
#define LIMIT_POLICY_RELOADS 16
#define LIMIT_POLICY_SECRETS 256
#define LIMIT_SECRET_BYTES (16 * 1024)
/* A connection without a byte for so long is ended, where the supervisor says nothing else. */
#define LIMIT_EGRESS_IDLE_MS 600000

/* With less than that free the disk of STATE is full: a folder, a record and their blocks must fit.
 */
#define LIMIT_STATE_ROOM_BYTES (64 * 1024)

/* A start that is not ready by then has failed; a start takes some milliseconds. */
#define LIMIT_START_MS 30000
/* From the fork of a program to its exec. The agent can stop a process of its own uid on this way
 * (SIGSTOP), and init waits for it meanwhile. */
#define LIMIT_EXEC_MS 3000
/* An init that is asked to start a program, or to end a task (the grace included), is given up for
 * the one who asked: it is stopped from outside, or held up in the kernel. */
#define LIMIT_ANSWER_MS 15000
/* An init that a new supervisor finds answers at once, where the machine is not too busy for it: to
 * give it up ends its task. */
#define LIMIT_ADOPT_MS 15000
/* Wall clock of one image build: packages come over the network. */
#define LIMIT_BUILD_MS (60LL * 60 * 1000)
/* Messages kept for one of our own processes that does not read; more, and it is started anew. */
#define LIMIT_CHANNEL_MESSAGES 4096
/* A child that ends is started again at once, then after 100 ms, doubled to this. */
#define LIMIT_RESTART_MS 5000
/* Documents for the API (lists of sandboxes and images), images of a list included. */
#define LIMIT_DOCUMENT_BYTES (16 * 1024 * 1024)
