/* Loading of policies; see policies.h. Runs in paddock-egress. A load is a small machine: files ->
 * first parse (every secret taken as there, to learn their names) -> SECRET_GET, one at a time ->
 * second parse -> in force. A newer load takes the place of one that still waits. */
#include "egress/policies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "egress/secrets.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "util/log.h"
#include "util/name.h"

struct policy_text {
    char name[256];
    struct buf data;
};

/* The files of one load. */
struct policy_folder {
    struct policy_text *files;
    size_t count;
    struct err failure; /* of the first file that could not be held: the load will be refused */
};

struct policy_load {
    bool is_waiting; /* for a secret */
    uint64_t id;     /* of POLICY_LOAD */
    char name[256];
    struct policy_folder folder;
    struct egress_secrets secrets;
    size_t next;        /* index of the secret that was asked for */
    uint64_t secret_id; /* of that SECRET_GET */
};

struct egress_policies {
    int sock;
    struct egress *egress;
    struct json *vars;
    struct policy_folder arriving;
    struct policy_load load;
    struct egress_secrets secrets; /* in force */
    uint64_t last_id;
};

static void folder_free(struct policy_folder *folder)
{
    for (size_t i = 0; i < folder->count; i++)
        buf_free(&folder->files[i].data);
    free(folder->files);
    *folder = (struct policy_folder){0};
}

static const struct policy_text *folder_find(const struct policy_folder *folder, const char *name)
{
    for (size_t i = 0; i < folder->count; i++)
        if (strcmp(folder->files[i].name, name) == 0)
            return &folder->files[i];
    return NULL;
}

static void named_free(struct egress_named_policy *named, size_t count)
{
    for (size_t i = 0; i < count; i++)
        policy_unref(named[i].policy);
    free(named);
}

static void load_free(struct policy_load *load)
{
    folder_free(&load->folder);
    egress_secrets_free(&load->secrets);
    *load = (struct policy_load){0};
}

int egress_policies_open(int sock, struct egress *egress, struct json *vars,
                         struct egress_policies **ret, struct err *err)
{
    struct egress_policies *policies = calloc(1, sizeof(*policies));
    if (!policies) {
        json_free(vars);
        return err_errno(err, ENOMEM, "cannot hold policies");
    }
    policies->sock = sock;
    policies->egress = egress;
    policies->vars = vars;
    *ret = policies;
    return 0;
}

void egress_policies_close(struct egress_policies *policies)
{
    if (!policies)
        return;
    folder_free(&policies->arriving);
    load_free(&policies->load);
    egress_secrets_free(&policies->secrets);
    policy_unref(policies->egress->policy);
    policies->egress->policy = NULL;
    named_free(policies->egress->named, policies->egress->named_count);
    policies->egress->named = NULL;
    policies->egress->named_count = 0;
    json_free(policies->vars);
    free(policies);
}

const struct secret *egress_policies_secret(const struct egress_policies *policies,
                                            const char *name)
{
    const struct egress_secret *found = egress_secrets_find(&policies->secrets, name);
    return found && found->value.data ? &found->value : NULL;
}

/* Adds an empty file. NULL: no room. */
static struct policy_text *folder_add(struct policy_folder *folder, const char *name)
{
    if (folder->count >= LIMIT_POLICY_FILES)
        return NULL;
    struct policy_text *grown =
        reallocarray(folder->files, folder->count + 1, sizeof(*folder->files));
    if (!grown)
        return NULL;
    folder->files = grown;
    struct policy_text *added = &grown[folder->count++];
    *added = (struct policy_text){.data = BUF_INIT(LIMIT_CONFIG_BYTES)};
    ipc_set_text(added->name, sizeof(added->name), name);
    return added;
}

int egress_policies_on_file(struct egress_policies *policies, struct ipc_message *message,
                            struct err *err)
{
    const char *name = IPC_TEXT(IPC_BODY(message, msg_policy_file)->name);
    struct policy_folder *folder = &policies->arriving;
    cleanup_fd int fd = ipc_take_fd(message, 0);
    if (fd < 0 || !name[0])
        return err_set(err, EPROTO, "POLICY_FILE without a file");
    struct policy_text *file = folder_add(folder, name);
    int result = file ? fd_read_all(fd, &file->data) : -EMSGSIZE;
    if (result < 0 && !folder->failure.message[0])
        err_errno(&folder->failure, -result, "%s cannot be held in memory", name);
    return 0;
}

/* ------------------------------------------------------------------- what a parse may ask for */

static const char *env_variable(void *ctx, const char *name)
{
    const struct egress_policies *policies = ctx;
    return json_text(json_get(policies->vars, name));
}

static const char *env_every_secret(void *ctx, const char *name)
{
    (void)ctx, (void)name;
    return NULL;
}

static const char *env_fetched_secret(void *ctx, const char *name)
{
    const struct egress_policies *policies = ctx;
    const struct egress_secret *found = egress_secrets_find(&policies->load.secrets, name);
    return found && found->value.data ? NULL : found ? found->reason : "";
}

static int env_file(void *ctx, const char *name, struct buf *ret)
{
    const struct egress_policies *policies = ctx;
    const struct policy_text *file = folder_find(&policies->load.folder, name);
    return file ? buf_append(ret, buf_text(&file->data), file->data.len) : -ENOENT;
}

typedef const char *secret_lack_fn(void *ctx, const char *name);

static int load_parse(struct egress_policies *policies, const char *name,
                      secret_lack_fn *secret_lack, struct policy **ret, struct err *err)
{
    const struct policy_load *load = &policies->load;
    const struct policy_env env = {
        .ctx = policies, .variable = env_variable, .secret_lack = secret_lack, .file = env_file};
    if (load->folder.failure.message[0])
        return err_set(err, EINVAL, "%s", load->folder.failure.message);
    const struct policy_text *file = folder_find(&load->folder, name);
    if (!file)
        return err_set(err, ENOENT, "%s: there is no such file in the policy's folder", name);
    return policy_parse(name, buf_text(&file->data), file->data.len, &env, ret, err);
}

/* ------------------------------------------------------------------------------- answers */

static int load_refuse(struct egress_policies *policies, const char *reason, struct err *err)
{
    struct msg_policy_loaded answer = {.ok = 0};
    IPC_SET_TEXT(answer.text, reason);
    log_error("the policy is refused: %s", reason);
    if (!policies->egress->policy)
        IPC_SET_TEXT(policies->egress->policy_refusal, reason);
    uint64_t id = policies->load.id;
    load_free(&policies->load);
    return ipc_send(policies->sock, IPC_POLICY_LOADED, id, &answer, NULL, 0, err);
}

/* A sentence per inactive rule, as many as there is room for; returns how many are inactive. */
static uint32_t describe_inactive(const struct policy *policy, char *ret, size_t size)
{
    cleanup_buf struct buf text = BUF_INIT(size - 1);
    uint32_t inactive = 0;
    for (size_t i = 0; i < policy_rule_count(policy); i++) {
        const struct policy_rule *rule = policy_rule_at(policy, i);
        const char *reason = policy_rule_inactive(rule);
        if (!reason)
            continue;
        inactive++;
        (void)buf_appendf(&text, "%srule %s is inactive: %s", text.len ? ". " : "",
                          policy_rule_name(rule), reason);
    }
    ipc_set_text(ret, size, buf_text(&text));
    return inactive;
}

/* ------------------------------------------------------------- the policies of the folder */

/* "strict" of "strict.json"; false: it is no policy that a sandbox could have. */
static bool named_of_file(const char *file, char ret[LIMIT_NAME_BYTES + 1])
{
    size_t len = strlen(file);
    if (len < 6 || strcmp(file + len - 5, ".json") != 0 || !name_is_valid(file, len - 5))
        return false;
    snprintf(ret, LIMIT_NAME_BYTES + 1, "%.*s", (int)(len - 5), file);
    return true;
}

/* The policy of this name that is in force, referenced, or NULL. */
static struct policy *named_ref(const struct egress *egress, const char *name)
{
    for (size_t i = 0; i < egress->named_count; i++)
        if (strcmp(egress->named[i].name, name) == 0)
            return egress->named[i].policy ? policy_ref(egress->named[i].policy) : NULL;
    return NULL;
}

/* Parses one file; when it is refused, its former version stays. What became of it is told. */
static int named_load(struct egress_policies *policies, const char *file,
                      struct egress_named_policy *ret, struct err *err)
{
    struct msg_policy_state state = {0};
    struct err reason = {0};
    int result = load_parse(policies, file, env_fetched_secret, &ret->policy, &reason);
    if (result < 0) {
        ret->policy = named_ref(policies->egress, ret->name);
        IPC_SET_TEXT(state.text, reason.message);
        IPC_SET_TEXT(ret->reason, reason.message);
    } else {
        state.rules = (uint32_t)policy_rule_count(ret->policy);
        state.inactive = describe_inactive(ret->policy, state.text, sizeof(state.text));
    }
    IPC_SET_TEXT(state.name, ret->name);
    state.is_refused = result < 0;
    state.is_in_force = ret->policy != NULL;
    return ipc_send(policies->sock, IPC_POLICY_STATE, policies->load.id, &state, NULL, 0, err);
}

/* All policies of the folder, each by itself, take the place of those before. */
static int named_load_all(struct egress_policies *policies, struct err *err)
{
    const struct policy_folder *folder = &policies->load.folder;
    struct egress *egress = policies->egress;
    struct egress_named_policy *named = calloc(folder->count, sizeof(*named));
    size_t count = 0;
    int result = 0;
    if (!named)
        return err_set(err, ENOMEM, "no memory for policies");
    for (size_t i = 0; result == 0 && i < folder->count; i++) {
        struct egress_named_policy *next = &named[count];
        if (!named_of_file(folder->files[i].name, next->name))
            continue;
        result = named_load(policies, folder->files[i].name, next, err);
        count++;
    }
    if (result < 0) {
        named_free(named, count);
        return result;
    }
    named_free(egress->named, egress->named_count);
    egress->named = named;
    egress->named_count = count;
    return 0;
}

static void add_ports(const struct policy *policy, struct msg_ports *ports)
{
    struct policy_port found[POLICY_PORTS_MAX];
    size_t count = policy ? policy_ports(policy, found) : 0;
    for (size_t i = 0; i < count; i++) {
        bool is_new = true;
        for (uint32_t j = 0; j < ports->count; j++)
            is_new = is_new && ports->ports[j] != found[i].port;
        if (is_new && ports->count == MSG_PORTS)
            log_warn("the policies of the folder name more than %d ports: %u is left out",
                     MSG_PORTS, found[i].port);
        else if (is_new)
            ports->ports[ports->count++] = found[i].port;
    }
}

/* Those of all policies in force: a sandbox may come under any of them. */
static int tell_ports(struct egress_policies *policies, struct err *err)
{
    const struct egress *egress = policies->egress;
    struct msg_ports ports = {0};
    add_ports(egress->policy, &ports);
    for (size_t i = 0; i < egress->named_count; i++)
        add_ports(egress->named[i].policy, &ports);
    return ipc_send(policies->sock, IPC_POLICY_PORTS, policies->load.id, &ports, NULL, 0, err);
}

/* Second parse, and into force: policy and secrets change together, between two requests. */
static int load_finish(struct egress_policies *policies, struct err *err)
{
    struct policy_load *load = &policies->load;
    struct policy *policy = NULL;
    struct err reason = {0};
    if (load_parse(policies, load->name, env_fetched_secret, &policy, &reason) < 0)
        return load_refuse(policies, reason.message, err);
    int result = named_load_all(policies, err);
    if (result < 0) {
        policy_unref(policy);
        return result;
    }
    struct msg_policy_loaded answer = {.ok = 1};
    answer.inactive = describe_inactive(policy, answer.text, sizeof(answer.text));
    policy_unref(policies->egress->policy);
    policies->egress->policy = policy;
    egress_secrets_free(&policies->secrets);
    policies->secrets = load->secrets;
    load->secrets = (struct egress_secrets){0};
    log_info("the policy %s is in force: %zu rules, %u of them inactive", load->name,
             policy_rule_count(policy), answer.inactive);
    result = tell_ports(policies, err);
    if (result < 0)
        return result;
    uint64_t id = load->id;
    load_free(load);
    policies->egress->policy_changed(policies->egress);
    return ipc_send(policies->sock, IPC_POLICY_LOADED, id, &answer, NULL, 0, err);
}

/* ------------------------------------------------------------------------------- secrets */

static int load_ask_next(struct egress_policies *policies, struct err *err)
{
    struct policy_load *load = &policies->load;
    if (load->next == load->secrets.count)
        return load_finish(policies, err);
    struct msg_secret_get body = {0};
    IPC_SET_TEXT(body.name, load->secrets.items[load->next].name);
    load->is_waiting = true;
    load->secret_id = ++policies->last_id;
    return ipc_send(policies->sock, IPC_SECRET_GET, load->secret_id, &body, NULL, 0, err);
}

struct secret_names {
    struct egress_secrets *secrets;
    int result;
};

static void add_secret_name(void *ctx, const char *name)
{
    struct secret_names *names = ctx;
    int result = egress_secrets_add(names->secrets, name);
    if (result < 0)
        names->result = result;
}

static void add_secrets(const struct policy *policy, struct secret_names *names)
{
    for (size_t i = 0; i < policy_rule_count(policy); i++)
        policy_rule_secrets(policy_rule_at(policy, i), add_secret_name, names);
}

/* The secrets of the policy, and of the others of the folder; where one cannot be read, those of
 * its former version, which may stay in force. */
static int load_secret_names(struct egress_policies *policies, const struct policy *policy)
{
    struct policy_load *load = &policies->load;
    struct secret_names names = {&load->secrets, 0};
    char name[LIMIT_NAME_BYTES + 1];
    add_secrets(policy, &names);
    for (size_t i = 0; i < load->folder.count; i++) {
        struct policy *other = NULL;
        const char *file = load->folder.files[i].name;
        if (!named_of_file(file, name))
            continue;
        if (load_parse(policies, file, env_every_secret, &other, NULL) < 0)
            other = named_ref(policies->egress, name);
        if (other)
            add_secrets(other, &names);
        policy_unref(other);
    }
    return names.result;
}

int egress_policies_on_load(struct egress_policies *policies, const struct ipc_message *message,
                            struct err *err)
{
    struct policy_load *load = &policies->load;
    int result = 0;
    if (load->is_waiting)
        result = load_refuse(policies, "a newer policy came while its secrets were fetched", err);
    if (result < 0)
        return result;
    load->id = message->header.id;
    IPC_SET_TEXT(load->name, IPC_TEXT(IPC_BODY(message, msg_policy_load)->name));
    load->folder = policies->arriving;
    policies->arriving = (struct policy_folder){0};
    struct policy *policy = NULL;
    struct err reason = {0};
    if (load_parse(policies, load->name, env_every_secret, &policy, &reason) < 0)
        return load_refuse(policies, reason.message, err);
    result = load_secret_names(policies, policy);
    policy_unref(policy);
    if (result < 0)
        return load_refuse(policies, "it names too many secrets", err);
    return load_ask_next(policies, err);
}

int egress_policies_on_secret(struct egress_policies *policies, struct ipc_message *message,
                              struct err *err)
{
    struct policy_load *load = &policies->load;
    cleanup_fd int fd = ipc_take_fd(message, 0);
    if (!load->is_waiting || message->header.id != load->secret_id)
        return 0; /* of a load that was replaced */
    struct egress_secret *secret = &load->secrets.items[load->next];
    struct err reason = {0};
    if (message->header.type == IPC_STATUS) {
        const struct msg_status *status = IPC_BODY(message, msg_status);
        if (status->code != IPC_STATUS_NOT_FOUND)
            IPC_SET_TEXT(secret->reason, IPC_TEXT(status->text));
    } else if (fd < 0) {
        return err_set(err, EPROTO, "SECRET without a descriptor");
    } else if (egress_secrets_read(secret, fd, &reason) < 0) {
        IPC_SET_TEXT(secret->reason, reason.message);
    }
    load->is_waiting = false;
    load->next++;
    return load_ask_next(policies, err);
}
