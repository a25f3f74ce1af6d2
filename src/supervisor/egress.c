/*
 * The child paddock-egress. Each start is two programs: the one-shot that makes an intermediate
 * (`--make-ca`, the only one that ever has the root's key), then egress itself, which is told
 * everything anew: intermediate, audit, variables, the policy's folder, and the listeners of every
 * running instance. Policy files, secrets and the intermediate pass through unread.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervisor/notify.h"
#include "supervisor/spawn.h"
#include "supervisor/supervisor.h"
#include "supervisor/table.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/log.h"
#include "json/json.h"

/* The one-shot that runs; there is one egress, so one of these. */
static struct egress_maker {
    struct sandbox_process process;
    struct event *ended;
    int intermediate_fd;
    int java_fd; /* the root as a trust store of Java */
} egress_maker = {.intermediate_fd = -1, .java_fd = -1};

/* Loads of the policy are numbered; who asked for one is told how it went. */
struct egress_reload {
    uint64_t load;
    struct reply reply;
};
static struct {
    uint64_t last;
    struct egress_reload waiting[LIMIT_POLICY_RELOADS];
    size_t count;
    bool is_answered; /* this egress has taken or refused its first policy */
    bool is_listed;   /* the load whose policies are told has begun to tell them */
} egress_loads;

static uint32_t egress_id(const struct supervisor *supervisor)
{
    return ids_daemon(sandbox_host_ids(supervisor->host), IDS_EGRESS_OFFSET);
}

static bool egress_is_users(const struct supervisor *supervisor)
{
    return sandbox_host_row(supervisor->host)->kind != ROW_ROOT;
}

/* A memfd with the configuration's variables as a JSON object. */
static int egress_vars(const struct config *config, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    struct json_writer *writer = json_writer_new(&text, false);
    if (!writer)
        return err_set(err, ENOMEM, "no memory for the variables");
    json_write_object_begin(writer);
    for (size_t i = 0; i < config->var_count; i++)
        json_write_pair_string(writer, config->vars[i].name, config->vars[i].value);
    json_write_object_end(writer);
    int result = json_writer_end(writer);
    if (result < 0)
        return err_errno(err, -result, "cannot encode the variables");
    return fd_sealed("vars", text.data, text.len, err);
}

static int egress_tell_start(struct supervisor *supervisor, struct err *err)
{
    cleanup_fd int audit = audit_open(supervisor, err);
    if (audit < 0)
        return audit;
    cleanup_fd int vars = egress_vars(supervisor->config, err);
    if (vars < 0)
        return vars;
    struct msg_egress_start start = {.idle_ms = supervisor->config->egress_idle_ms};
    IPC_SET_TEXT(start.upstream_proxy, supervisor->config->upstream_proxy);
    int fds[3] = {egress_maker.intermediate_fd, audit, vars};
    channel_send(supervisor->egress.channel, IPC_EGRESS_START, 0, &start, fds, 3);
    audit_tell(supervisor, audit);
    audit_tell_followers(supervisor);
    return 0;
}

static bool egress_is_policy_file(const char *name)
{
    size_t len = strlen(name);
    if (name[0] == '.' || len >= sizeof(((struct msg_policy_file *)0)->name))
        return false;
    return (len > 5 && strcmp(name + len - 5, ".json") == 0) ||
           (len > 4 && strcmp(name + len - 4, ".pem") == 0);
}

static void egress_send_folder(struct supervisor *supervisor, DIR *folder)
{
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        if (!egress_is_policy_file(entry->d_name))
            continue;
        cleanup_fd int fd =
            openat(dirfd(folder), entry->d_name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
            continue;
        if (++count > LIMIT_POLICY_FILES) {
            log_warn("the policy's folder has more than %d files; the rest is left out",
                     LIMIT_POLICY_FILES);
            return;
        }
        struct msg_policy_file file = {0};
        IPC_SET_TEXT(file.name, entry->d_name);
        channel_send(supervisor->egress.channel, IPC_POLICY_FILE, 0, &file, &fd, 1);
    }
}

/* For /healthz and the errors of tasks: why nothing can be reached. */
static void egress_has_no_policy(struct supervisor *supervisor, const char *why)
{
    snprintf(supervisor->policy.text, sizeof(supervisor->policy.text), "no policy is in force: %s",
             why);
}

/* False: the folder cannot be read. */
static bool egress_send_policy(struct supervisor *supervisor, struct err *err)
{
    char folder[LIMIT_CONFIG_TEXT_BYTES + 1];
    snprintf(folder, sizeof(folder), "%s", supervisor->config->policy);
    char *slash = strrchr(folder, '/');
    struct msg_policy_load load = {0};
    IPC_SET_TEXT(load.name, slash + 1);
    *slash = '\0';
    DIR *dir = opendir(folder[0] ? folder : "/");
    if (!dir) {
        char why[MSG_TEXT];
        snprintf(why, sizeof(why), "cannot open the policy's folder %.200s: %s", folder,
                 strerror(errno));
        log_error("%s; %s", why,
                  supervisor->policy.is_loaded ? "the policy in force stays"
                                               : "nothing can be reached");
        if (!supervisor->policy.is_loaded)
            egress_has_no_policy(supervisor, why);
        notify_manager("READY=1"); /* a reload is over, not well */
        err_set(err, EIO, "%s", why);
        return false;
    }
    egress_send_folder(supervisor, dir);
    closedir(dir);
    channel_send(supervisor->egress.channel, IPC_POLICY_LOAD, ++egress_loads.last, &load, NULL, 0);
    return true;
}

void egress_load_policy(struct supervisor *supervisor)
{
    egress_send_policy(supervisor, NULL);
}

void egress_reload(struct supervisor *supervisor, struct reply reply)
{
    struct err err = {0};
    if (!supervisor->egress.channel || egress_loads.count == LIMIT_POLICY_RELOADS) {
        reply_status(supervisor, reply, IPC_STATUS_UNAVAILABLE, "%s",
                     supervisor->egress.channel
                         ? "The policies are being read several times already: try again"
                         : "The egress gateway does not run; it reads the policies when it starts");
        return;
    }
    log_info("reloading policy and secrets");
    if (!egress_send_policy(supervisor, &err)) {
        reply_status(supervisor, reply, IPC_STATUS_CONFLICT, "%s", err.message);
        return;
    }
    egress_loads.waiting[egress_loads.count++] = (struct egress_reload){egress_loads.last, reply};
}

/* Answers those who asked for this load; 0: all of them. */
static void egress_answer_reload(struct supervisor *supervisor, uint64_t id, const char *refusal)
{
    for (size_t i = 0; i < egress_loads.count;) {
        struct egress_reload *reload = &egress_loads.waiting[i];
        struct err err = {0};
        if (id && reload->load != id) {
            i++;
            continue;
        }
        struct reply reply = reload->reply;
        *reload = egress_loads.waiting[--egress_loads.count];
        cleanup_fd int document = id && !refusal ? document_policies(supervisor, &err) : -1;
        if (document >= 0)
            reply_send(supervisor, reply, IPC_DOCUMENT, NULL, &document, 1);
        else
            reply_status(supervisor, reply, id ? IPC_STATUS_CONFLICT : IPC_STATUS_UNAVAILABLE, "%s",
                         refusal ? refusal : err.message);
    }
}

/* Only when egress has judged its first policy: until then connections wait in the listeners'
 * backlog, and the agent is not told that nothing may leave. */
static void egress_attach_all(struct supervisor *supervisor)
{
    if (egress_loads.is_answered)
        return;
    egress_loads.is_answered = true;
    for (struct sandbox *sandbox = supervisor->sandboxes; sandbox; sandbox = sandbox->next)
        egress_attach(supervisor, sandbox);
}

static int egress_run(struct supervisor *supervisor, struct err *err)
{
    int filter = sandbox_host_seccomp_fd(supervisor->host, SECCOMP_EGRESS);
    if (filter < 0)
        return err_errno(err, -filter, "there is no seccomp filter for egress");
    const char *const argv[] = {"paddock-egress", log_style_argument(), NULL};
    struct spawn spawn = {.path = supervisor->paths->egress,
                          .argv = argv,
                          .id = egress_id(supervisor),
                          .is_user = egress_is_users(supervisor),
                          .has_network = true,
                          .fds = &filter,
                          .fd_count = 1};
    int result = child_run(&supervisor->egress, &spawn, err);
    if (result == 0)
        result = egress_tell_start(supervisor, err);
    if (result < 0)
        return result;
    egress_loads.is_answered = false;
    if (!egress_send_policy(supervisor, NULL))
        egress_attach_all(supervisor);
    return 0;
}

/* The one-shot has made ca.crt; sandboxes get it in their trust bundle. */
static int egress_read_ca(struct supervisor *supervisor, struct err *err)
{
    buf_free(&supervisor->ca_pem);
    supervisor->ca_pem = BUF_INIT(LIMIT_CONFIG_BYTES);
    cleanup_fd int fd = fd_open_beneath(supervisor->state_fd, "ca.crt", O_RDONLY, 0, true, err);
    if (fd < 0)
        return fd;
    int result = fd_read_all(fd, &supervisor->ca_pem);
    if (result < 0)
        return err_errno(err, -result, "cannot read ca.crt");
    if (supervisor->ca_pem.len == 0)
        return err_set(err, EINVAL, "ca.crt is empty");
    buf_free(&supervisor->ca_java);
    supervisor->ca_java = BUF_INIT(LIMIT_CA_PEM_BYTES);
    if (lseek(egress_maker.java_fd, 0, SEEK_SET) < 0 ||
        fd_read_all(egress_maker.java_fd, &supervisor->ca_java) < 0 || !supervisor->ca_java.len)
        return err_set(err, EINVAL, "Java's trust store cannot be read");
    result = state_make_common(supervisor, err);
    if (result < 0)
        buf_free(&supervisor->ca_pem); /* nothing starts without it */
    return result;
}

static void egress_on_made(void *ctx)
{
    struct supervisor *supervisor = ctx;
    int code = spawn_reap(&egress_maker.process);
    event_free(&egress_maker.ended);
    sandbox_process_release(&egress_maker.process);
    struct err err = {0};
    int result = code == 0 ? egress_read_ca(supervisor, &err)
                           : err_set(&err, EIO, "paddock-egress --make-ca ended with %d", code);
    if (result == 0)
        result = egress_run(supervisor, &err);
    close(egress_maker.intermediate_fd);
    close(egress_maker.java_fd);
    egress_maker.intermediate_fd = egress_maker.java_fd = -1;
    if (result < 0 && supervisor->egress.channel)
        child_kill(&supervisor->egress, err.message);
    else if (result < 0)
        child_failed(&supervisor->egress, err.message);
    table_pump_all(supervisor); /* starts wait for ca.crt */
}

bool egress_ca_is_coming(const struct supervisor *supervisor)
{
    return supervisor->ca_pem.len == 0 && egress_maker.ended;
}

/* Begins a start; egress_on_made goes on. */
static int egress_make(void *ctx, struct child *child, struct err *err)
{
    struct supervisor *supervisor = ctx;
    (void)child;
    int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    cleanup_fd int key = openat(supervisor->state_fd, "ca.key", flags, 0600);
    cleanup_fd int crt = openat(supervisor->state_fd, "ca.crt", flags, 0644);
    cleanup_fd int out = memfd_create("intermediate", MFD_CLOEXEC);
    cleanup_fd int java = memfd_create("java", MFD_CLOEXEC);
    if (key < 0 || crt < 0 || out < 0 || java < 0)
        return err_errno(err, errno, "cannot open the CA's files");
    int filter = sandbox_host_seccomp_fd(supervisor->host, SECCOMP_EGRESS);
    if (filter < 0)
        return err_errno(err, -filter, "there is no seccomp filter for egress");
    const char *const argv[] = {"paddock-egress", "--make-ca", NULL};
    int fds[5] = {key, crt, out, java, filter};
    struct spawn spawn = {.path = supervisor->paths->egress,
                          .argv = argv,
                          .id = egress_id(supervisor),
                          .is_user = egress_is_users(supervisor),
                          .fds = fds,
                          .fd_count = ARRAY_LEN(fds)};
    int result = spawn_start(&spawn, &egress_maker.process, err);
    if (result < 0)
        return result;
    egress_maker.intermediate_fd = TAKE_FD(out);
    egress_maker.java_fd = TAKE_FD(java);
    egress_maker.ended =
        event_watch(&supervisor->loop, egress_maker.process.pidfd, egress_on_made, supervisor);
    return -EINPROGRESS;
}

/* ------------------------------------------------------------------------------ messages */

static void egress_give_secret(struct supervisor *supervisor, const struct ipc_message *message)
{
    const char *name = IPC_TEXT(IPC_BODY(message, msg_secret_get)->name);
    struct err err = {0};
    cleanup_fd int fd =
        secrets_open(supervisor->secrets, supervisor->config->secrets_dir, name, &err);
    if (fd >= 0) {
        channel_send(supervisor->egress.channel, IPC_SECRET, message->header.id, NULL, &fd, 1);
        return;
    }
    /* one that is there but refused has a reason of its own, which egress passes on */
    struct msg_status status = {.code = fd == -ENOENT ? IPC_STATUS_NOT_FOUND : IPC_STATUS_FAILED};
    IPC_SET_TEXT(status.text, err.message);
    channel_send(supervisor->egress.channel, IPC_STATUS, message->header.id, &status, NULL, 0);
}

/* A sandbox under a policy that is not there reaches nothing. */
static void egress_check_prefixes(const struct supervisor *supervisor)
{
    const struct config *config = supervisor->config;
    for (size_t i = 0; i < config->prefix_count; i++) {
        bool is_there = false;
        for (size_t j = 0; j < supervisor->named_count && !is_there; j++)
            is_there = supervisor->named[j].is_in_force &&
                       strcmp(supervisor->named[j].name, config->prefixes[i].value) == 0;
        if (!is_there)
            log_error("policy_prefixes.%s: the policy %s is not there, so that these sandboxes "
                      "reach nothing",
                      config->prefixes[i].name, config->prefixes[i].value);
    }
}

static void egress_note_policy(struct supervisor *supervisor, const struct msg_policy_loaded *body)
{
    const char *text = IPC_TEXT(body->text);
    notify_manager("READY=1"); /* a reload is over */
    if (!body->ok) {
        log_error("the policy is refused, %s: %s",
                  supervisor->policy.is_loaded ? "the one in force stays"
                                               : "nothing can be reached",
                  text);
        if (!supervisor->policy.is_loaded)
            egress_has_no_policy(supervisor, text);
        return;
    }
    supervisor->policy.is_loaded = true;
    supervisor->policy.inactive = body->inactive;
    egress_check_prefixes(supervisor);
    snprintf(supervisor->policy.text, sizeof(supervisor->policy.text), "%s", text);
    if (body->inactive)
        log_warn("%u rules of the policy are inactive: %s", body->inactive, text);
    else
        log_info("the policy %s is in force", supervisor->config->policy);
}

static void egress_on_loaded(struct supervisor *supervisor, const struct ipc_message *message)
{
    const struct msg_policy_loaded *body = IPC_BODY(message, msg_policy_loaded);
    if (body->ok && !egress_loads.is_listed)
        supervisor->named_count = 0;
    egress_loads.is_listed = false;
    egress_note_policy(supervisor, body);
    egress_attach_all(supervisor);
    egress_answer_reload(supervisor, message->header.id, body->ok ? NULL : IPC_TEXT(body->text));
}

/* One policy of the folder; the first of a load is the first of a new list. */
static void egress_note_named(struct supervisor *supervisor, const struct msg_policy_state *body)
{
    if (!egress_loads.is_listed)
        supervisor->named_count = 0;
    egress_loads.is_listed = true;
    if (supervisor->named_count == LIMIT_POLICY_FILES)
        return;
    struct msg_policy_state *named = &supervisor->named[supervisor->named_count++];
    *named = *body;
    named->name[sizeof(named->name) - 1] = '\0';
    named->text[sizeof(named->text) - 1] = '\0';
    if (named->is_refused)
        log_warn("the policy %s is refused%s: %s", named->name,
                 named->is_in_force ? ", its former version stays in force" : "", named->text);
}

static void egress_on_message(void *ctx, struct ipc_message *message)
{
    struct supervisor *supervisor = ctx;
    if (message->header.type == IPC_SECRET_GET)
        egress_give_secret(supervisor, message);
    else if (message->header.type == IPC_POLICY_LOADED)
        egress_on_loaded(supervisor, message);
    else if (message->header.type == IPC_USAGE)
        spending_add(supervisor, IPC_BODY(message, msg_usage));
    else if (message->header.type == IPC_RULE_COUNT)
        metrics_add(&IPC_BODY(message, msg_rule_count)->counts);
    else if (message->header.type == IPC_AUDIT_FULL)
        audit_turn(supervisor);
    else if (message->header.type == IPC_POLICY_PORTS)
        ports_learn(supervisor, IPC_BODY(message, msg_ports));
    else if (message->header.type == IPC_POLICY_STATE)
        egress_note_named(supervisor, IPC_BODY(message, msg_policy_state));
    else
        child_kill(&supervisor->egress, "it sent a message that makes no sense");
}

static void egress_gone(void *ctx)
{
    struct supervisor *supervisor = ctx;
    supervisor->policy.is_loaded = false;
    supervisor->policy.text[0] = '\0';
    supervisor->named_count = 0;
    egress_loads.is_listed = false;
    egress_answer_reload(supervisor, 0,
                         "The egress gateway has ended; the next one reads the "
                         "policies when it starts");
}

void egress_start(struct supervisor *supervisor)
{
    static const struct child_type type = {"paddock-egress", IPC_EGRESS, egress_make,
                                           egress_on_message, egress_gone};
    child_open(&supervisor->egress, &type, &supervisor->loop, supervisor);
}

static void egress_name(const struct sandbox *sandbox, struct msg_sandbox_attach *ret)
{
    *ret = (struct msg_sandbox_attach){0};
    IPC_SET_TEXT(ret->name, sandbox->meta.name);
    IPC_SET_TEXT(ret->boot_id, sandbox->meta.lease.boot_id);
    IPC_SET_TEXT(ret->policy, settings_policy(sandbox));
    IPC_SET_TEXT(ret->repository, sandbox->meta.repository);
}

static void egress_send_task(struct supervisor *supervisor, const struct sandbox *sandbox,
                             bool is_attached)
{
    const struct meta *meta = &sandbox->meta;
    struct msg_sandbox_task body = {.task = meta->task == TASK_RUNNING ? meta->task_count : 0,
                                    .budget_output_tokens = meta->settings.budget_output_tokens,
                                    .budget_requests = meta->settings.budget_requests,
                                    .is_attached = is_attached,
                                    .output_tokens = meta->usage.output_tokens,
                                    .requests = meta->usage.requests};
    IPC_SET_TEXT(body.name, meta->name);
    channel_send(supervisor->egress.channel, IPC_SANDBOX_TASK, 0, &body, NULL, 0);
}

void egress_attach(struct supervisor *supervisor, const struct sandbox *sandbox)
{
    if (!sandbox->has_listeners || !egress_loads.is_answered)
        return;
    struct msg_sandbox_attach body;
    egress_name(sandbox, &body);
    channel_send(supervisor->egress.channel, IPC_SANDBOX_ATTACH, 0, &body, sandbox->listeners,
                 SANDBOX_LISTENERS);
    egress_set_ports(supervisor, sandbox);
    egress_send_task(supervisor, sandbox, true);
}

void egress_set_ports(struct supervisor *supervisor, const struct sandbox *sandbox)
{
    if (!sandbox->asked_ports || !egress_loads.is_answered)
        return;
    struct msg_sandbox_ports body = {.ports = sandbox->ports};
    IPC_SET_TEXT(body.name, sandbox->meta.name);
    channel_send(supervisor->egress.channel, IPC_SANDBOX_PORTS, 0, &body, sandbox->port_fds,
                 sandbox->ports.count);
}

void egress_tell_task(struct supervisor *supervisor, const struct sandbox *sandbox)
{
    if (sandbox->has_listeners)
        egress_send_task(supervisor, sandbox, false);
}

void egress_set_policy(struct supervisor *supervisor, const struct sandbox *sandbox)
{
    if (!sandbox->has_listeners)
        return;
    struct msg_sandbox_attach body;
    egress_name(sandbox, &body);
    channel_send(supervisor->egress.channel, IPC_SANDBOX_POLICY, 0, &body, NULL, 0);
}

void egress_detach(struct supervisor *supervisor, const struct sandbox *sandbox)
{
    if (!sandbox->has_listeners)
        return;
    struct msg_sandbox_attach body;
    egress_name(sandbox, &body);
    channel_send(supervisor->egress.channel, IPC_SANDBOX_DETACH, 0, &body, NULL, 0);
}

const char *egress_hint(const struct supervisor *supervisor, const char *policy)
{
    bool is_whole = supervisor->policy.is_loaded && supervisor->policy.inactive == 0;
    if (!policy[0] || !supervisor->policy.is_loaded)
        return is_whole ? "" : supervisor->policy.text;
    for (size_t i = 0; i < supervisor->named_count; i++)
        if (strcmp(supervisor->named[i].name, policy) == 0)
            return supervisor->named[i].text;
    return "the policy of this sandbox is not there any more";
}
