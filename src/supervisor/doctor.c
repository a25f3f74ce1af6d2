/*
 * The doctor; see doctor.h. It only looks: nothing of STATE is made or changed, and no daemon that
 * runs is disturbed.
 */
#include "supervisor/doctor_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "image/image.h"
#include "task/spec.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "util/places.h"
#include "json/findings.h"

#define WHOLE "install Paddock whole, or build it whole (ninja -C build)"

static void doctor_tell(void *ctx, const struct sandbox_finding *finding)
{
    struct doctor *doctor = ctx;
    if (doctor->count < DOCTOR_MAX)
        doctor->findings[doctor->count++] = *finding;
}

struct sandbox_finding *doctor_add(struct doctor *doctor, const char *name,
                                   enum finding_level level)
{
    struct sandbox_finding *finding = &doctor->findings[doctor->count];
    if (doctor->count < DOCTOR_MAX - 1)
        doctor->count++;
    *finding = (struct sandbox_finding){.name = name};
    finding->level = level;
    return finding;
}

static void doctor_user(struct doctor *doctor)
{
    struct row row = {0};
    struct err err = {0};
    int result = row_find(&row, &err);
    bool is_worse = row.kind == ROW_SINGLE || row.shared_with[0];
    enum finding_level level = is_worse ? FINDING_WARN : FINDING_OK;
    struct sandbox_finding *finding = doctor_add(doctor, "user", result < 0 ? FINDING_FAIL : level);
    if (result < 0)
        SAY(finding->text, "%.300s", err.message);
    else if (row.kind == ROW_ROOT)
        SAY(finding->text, "runs as root");
    else if (row.kind == ROW_SUBORDINATE)
        SAY(finding->text, "runs as uid %u with %u subordinate ids from %u on", row.uid, row.count,
            row.first_uid);
    else
        SAY(finding->text, "runs as uid %u with a single id: %s", row.uid, row.why);
    if (level == FINDING_OK)
        return;
    if (row.shared_with[0]) {
        SAY(finding->lost, "%s has some of these ids too, and may end what runs in the sandboxes",
            row.shared_with);
        SAY(finding->cure, "give each user in /etc/subuid and /etc/subgid a range of its own");
        return;
    }
    SAY(finding->lost, "no package can be installed in a sandbox, and no image be built");
    SAY(finding->cure, "%s", row.cure);
}

static void doctor_ids(struct doctor *doctor)
{
    struct ids *ids = NULL;
    struct err err = {0};
    if (!places_is_host_root())
        return; /* a user's daemon uses none of them */
    int result = ids_new((uint32_t)doctor->config->ids_base, (uint32_t)doctor->config->ids_count,
                         &ids, &err);
    struct sandbox_finding *finding =
        doctor_add(doctor, "ids", result < 0 ? FINDING_FAIL : FINDING_OK);
    SAY(finding->text, "%lld ids from %lld%s%.300s", (long long)doctor->config->ids_count,
        (long long)doctor->config->ids_base, result < 0 ? ": " : "", err.message);
    if (result == 0) {
        ids_free(ids);
        return;
    }
    SAY(finding->lost, "the daemon does not start: sandboxes would share ids with somebody");
    SAY(finding->cure, "set ids.base in the configuration to a range that nobody uses");
}

static void doctor_programs(struct doctor *doctor)
{
    const struct paths *paths = doctor->paths;
    const struct {
        const char *path;
        enum finding_level level;
        const char *lost, *cure;
    } programs[] = {
        {paths->api, FINDING_FAIL, "the daemon does not work", WHOLE},
        {paths->egress, FINDING_FAIL, "sandboxes reach nothing", WHOLE},
        {paths->init, FINDING_FAIL, "the daemon does not start", WHOLE},
        {paths->jail, FINDING_FAIL, "no diff, nothing is removed", WHOLE},
        {paths->image_build, FINDING_WARN, "no image can be built", WHOLE},
        {"/usr/bin/git", FINDING_FAIL, "no clone and no diff", "apt-get install git"},
        {"/usr/bin/mmdebstrap", FINDING_WARN, "no image can be built",
         "apt-get install mmdebstrap"},
    };
    bool are_all = true;
    for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
        if (access(programs[i].path, X_OK) == 0)
            continue;
        struct sandbox_finding *finding = doctor_add(doctor, "programs", programs[i].level);
        SAY(finding->text, "%.300s cannot be executed", programs[i].path);
        SAY(finding->lost, "%s", programs[i].lost);
        SAY(finding->cure, "%s", programs[i].cure);
        are_all = false;
    }
    if (are_all)
        SAY(doctor_add(doctor, "programs", FINDING_OK)->text, "all are there");
}

/* Every policy of policy_prefixes lies beside the daemon's own; the first that does not is told. */
static void doctor_prefixes(struct doctor *doctor)
{
    const struct config *config = doctor->config;
    int folder_len = (int)(strrchr(config->policy, '/') - config->policy);
    for (size_t i = 0; i < config->prefix_count; i++) {
        char path[PATH_MAX];
        const char *policy = config->prefixes[i].value;
        int len = snprintf(path, sizeof(path), "%.*s/%s.json", folder_len, config->policy, policy);
        if (len < (int)sizeof(path) && access(path, R_OK) == 0)
            continue;
        struct sandbox_finding *finding = doctor_add(doctor, "policy-prefixes", FINDING_FAIL);
        SAY(finding->text, "policy_prefixes.%s: %.300s cannot be read", config->prefixes[i].name,
            path);
        SAY(finding->lost, "sandboxes whose names begin with %s reach nothing",
            config->prefixes[i].name);
        SAY(finding->cure, "make that file, or correct \"policy_prefixes\" in the configuration");
        return;
    }
}

static void doctor_policy(struct doctor *doctor)
{
    const char *path = doctor->config->policy;
    bool is_good = access(path, R_OK) == 0;
    struct sandbox_finding *finding =
        doctor_add(doctor, "policy", is_good ? FINDING_OK : FINDING_FAIL);
    SAY(finding->text, "%.300s%s", path, is_good ? "" : " cannot be read");
    if (is_good)
        return;
    SAY(finding->lost, "sandboxes reach nothing");
    SAY(finding->cure, "set \"policy\" in the configuration to a policy file");
}

static void doctor_gateway(struct doctor *doctor)
{
    struct err err = {0};
    const char *account = config_var(doctor->config, "AI_GATEWAY_ACCOUNT_ID");
    cleanup_fd int token =
        secrets_open(doctor->secrets, doctor->config->secrets_dir, "AI_GATEWAY_TOKEN", &err);
    bool is_good = account && token >= 0;
    struct sandbox_finding *finding =
        doctor_add(doctor, "gateway", is_good ? FINDING_OK : FINDING_WARN);
    if (is_good) {
        SAY(finding->text, "account id and token are set");
        return;
    }
    SAY(finding->text, "%.300s", account ? err.message : "AI_GATEWAY_ACCOUNT_ID is not set");
    SAY(finding->lost, "agents reach no model");
    if (!account)
        SAY(finding->cure, "set AI_GATEWAY_ACCOUNT_ID in \"vars\" of the configuration");
    else
        SAY(finding->cure, "put the token into %.200s/AI_GATEWAY_TOKEN with mode 0600",
            doctor->config->secrets_dir);
}

static void doctor_image(struct doctor *doctor, const char *image)
{
    struct image_info info;
    bool is_there =
        doctor->state_fd >= 0 && image_info_read(doctor->state_fd, image, &info, NULL) == 0;
    struct sandbox_finding *finding =
        doctor_add(doctor, "image", is_there ? FINDING_OK : FINDING_WARN);
    SAY(finding->text, "image %s is %s", image, is_there ? "built" : "not built yet");
    if (is_there)
        return;
    SAY(finding->lost, "no sandbox of the default agent can be started");
    SAY(finding->cure, "paddock image build %s", image);
}

static const char *doctor_var(void *ctx, const char *name)
{
    return config_var(ctx, name);
}

/* The URL in the agent's environment. */
static void doctor_find_gateway(struct doctor *doctor, const struct agent *agent)
{
    union { /* config_var reads alone; the context of a look-up is not const */
        const struct config *in;
        void *out;
    } config = {.in = doctor->config};
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    struct spec spec;
    if (agent_encode_spec(agent, doctor_var, config.out, &text, NULL) < 0 ||
        spec_decode(text.data, text.len, &spec, NULL) < 0)
        return;
    for (uint32_t i = 0; i < spec.envc; i++) {
        const char *value = strchr(spec.envp[i], '=');
        if (value && strncmp(value + 1, "https://", 8) == 0)
            SAY(doctor->gateway, "%s", value + 1);
    }
}

/* The default agent's recipe, and the image that it names. */
static void doctor_agent(struct doctor *doctor)
{
    char path[2 * LIMIT_CONFIG_TEXT_BYTES];
    struct agent *agent = NULL;
    struct err err = {0};
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    SAY(path, "%s/%s/agent.json", doctor->config->recipes_dir, doctor->config->default_agent);
    int result = fd_read_file(AT_FDCWD, path, &text, &err);
    if (result == 0)
        result = agent_parse(path, buf_text(&text), text.len, &agent, &err);
    struct sandbox_finding *finding =
        doctor_add(doctor, "agent", result < 0 ? FINDING_FAIL : FINDING_OK);
    SAY(finding->text, "%.300s", result < 0 ? err.message : path);
    if (result < 0)
        SAY(finding->lost, "no sandbox can be made");
    if (result < 0)
        SAY(finding->cure, "set \"default_agent\" to a folder of recipes_dir with an agent.json");
    else
        doctor_image(doctor, agent_image(agent));
    if (result == 0)
        doctor_find_gateway(doctor, agent);
    agent_free(agent);
}

static void doctor_look(struct doctor *doctor)
{
    doctor_user(doctor);
    doctor_state(doctor);
    doctor_ids(doctor);
    doctor_programs(doctor);
    sandbox_host_doctor(doctor->place_fd, doctor_tell, doctor);
    doctor_policy(doctor);
    doctor_prefixes(doctor);
    doctor_gateway(doctor);
    doctor_agent(doctor);
}

static const char *doctor_level(const struct sandbox_finding *finding)
{
    static const char *const names[] = {
        [FINDING_OK] = "ok", [FINDING_WARN] = "warn", [FINDING_FAIL] = "fail"};
    return names[finding->level];
}

/* Where clients find the daemon of this configuration: as --url of the command line. */
static void doctor_write_url(struct json_writer *writer, const struct config *config)
{
    char url[LIMIT_CONFIG_TEXT_BYTES + 16];
    if (!config->listen_count)
        return;
    const char *listen = config->listen[0]; /* the Unix socket, when there is one */
    for (size_t i = 0; i < config->listen_count; i++)
        if (strncmp(config->listen[i], "unix:", 5) == 0)
            listen = config->listen[i];
    bool is_tcp = strncmp(listen, "tcp:", 4) == 0;
    SAY(url, "%s%s", is_tcp ? "http://" : "", listen + (is_tcp ? 4 : 0));
    json_write_pair_string(writer, "url", url);
}

static void doctor_print_json(const struct doctor *doctor, bool is_good)
{
    char audit[LIMIT_CONFIG_TEXT_BYTES + 16];
    struct json_finding list[DOCTOR_MAX];
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    struct json_writer *writer = json_writer_new(&text, true);
    if (!writer)
        return;
    for (size_t i = 0; i < doctor->count; i++) {
        const struct sandbox_finding *finding = &doctor->findings[i];
        list[i] = (struct json_finding){finding->name, doctor_level(finding), finding->text,
                                        finding->lost, finding->cure};
    }
    SAY(audit, "%s/audit.jsonl", doctor->config->state_dir);
    json_write_object_begin(writer);
    json_write_findings(writer, is_good, list, doctor->count);
    if (doctor->gateway[0])
        json_write_pair_string(writer, "gateway", doctor->gateway);
    json_write_pair_string(writer, "audit", audit);
    doctor_write_url(writer, doctor->config);
    json_write_object_end(writer);
    if (json_writer_end(writer) == 0)
        printf("%s\n", buf_text(&text));
}

static void doctor_print_text(const struct doctor *doctor)
{
    for (size_t i = 0; i < doctor->count; i++) {
        const struct sandbox_finding *finding = &doctor->findings[i];
        printf("%-4s %-16s %s\n", doctor_level(finding), finding->name, finding->text);
        if (finding->lost[0])
            printf("     %-16s lost: %s\n", "", finding->lost);
        if (finding->cure[0])
            printf("     %-16s cure: %s\n", "", finding->cure);
    }
}

static int doctor_open_place(const char *state_dir)
{
    char path[LIMIT_CONFIG_TEXT_BYTES + 1];
    SAY(path, "%s", state_dir);
    for (;;) {
        int fd = open(path[0] ? path : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        char *slash = strrchr(path, '/');
        if (fd >= 0 || !slash)
            return fd;
        *slash = '\0';
    }
}

bool doctor_run(const struct config *config, const struct paths *paths,
                const struct secrets *secrets, bool as_json)
{
    cleanup_fd int state = open(config->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_fd int place = doctor_open_place(config->state_dir);
    struct doctor *doctor = calloc(1, sizeof(*doctor));
    if (!doctor)
        return false;
    doctor->config = config;
    doctor->paths = paths;
    doctor->secrets = secrets;
    doctor->state_fd = state;
    doctor->place_fd = place;
    doctor_look(doctor);
    bool is_good = true;
    for (size_t i = 0; i < doctor->count; i++)
        is_good = is_good && doctor->findings[i].level != FINDING_FAIL;
    if (as_json)
        doctor_print_json(doctor, is_good);
    else
        doctor_print_text(doctor);
    free(doctor);
    return is_good;
}
