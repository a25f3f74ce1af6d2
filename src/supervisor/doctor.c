/*
 * The doctor; see doctor.h. It only looks: nothing of STATE is made or changed, and no daemon that
 * runs is disturbed.
 */
#include "supervisor/doctor.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "agent/agent.h"
#include "image/image.h"
#include "sandbox/host.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "json/json.h"

#define DOCTOR_MAX 64

struct doctor {
    const struct config *config;
    const struct paths *paths;
    const struct secrets *secrets;
    int state_fd; /* -1: there is no state yet */
    int place_fd; /* the state, or the nearest folder above it that is there */
    struct sandbox_finding findings[DOCTOR_MAX];
    size_t count;
};

static void doctor_tell(void *ctx, const struct sandbox_finding *finding)
{
    struct doctor *doctor = ctx;
    if (doctor->count < DOCTOR_MAX)
        doctor->findings[doctor->count++] = *finding;
}

/* Adds a finding; the caller fills in texts. */
static struct sandbox_finding *doctor_add(struct doctor *doctor, const char *name, int level)
{
    struct sandbox_finding *finding = &doctor->findings[doctor->count];
    if (doctor->count < DOCTOR_MAX - 1)
        doctor->count++;
    *finding = (struct sandbox_finding){.name = name};
    finding->level = level;
    return finding;
}

#define SAY(field, ...) snprintf((field), sizeof(field), __VA_ARGS__)

static void doctor_user(struct doctor *doctor)
{
    bool is_root = geteuid() == 0;
    struct sandbox_finding *finding =
        doctor_add(doctor, "user", is_root ? FINDING_OK : FINDING_FAIL);
    SAY(finding->text, "runs as uid %u", geteuid());
    if (!is_root)
        SAY(finding->cure, "start paddockd as root: sudo paddockd");
}

static void doctor_state(struct doctor *doctor)
{
    const char *path = doctor->config->state_dir;
    struct statfs fs;
    if (doctor->state_fd < 0) {
        struct sandbox_finding *finding = doctor_add(doctor, "state", FINDING_OK);
        SAY(finding->text, "%.200s is not there yet; the daemon makes it", path);
        return;
    }
    if (fstatfs(doctor->state_fd, &fs) < 0)
        return;
    uint64_t free_mib = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize / (1024 * 1024);
    bool is_tight = free_mib < 2048;
    struct sandbox_finding *finding =
        doctor_add(doctor, "state", is_tight ? FINDING_WARN : FINDING_OK);
    SAY(finding->text, "%.200s, file system type 0x%lx, %llu MiB free", path, (long)fs.f_type,
        (unsigned long long)free_mib);
    if (is_tight)
        SAY(finding->cure, "free some space, or set state_dir to a larger file system");
}

static void doctor_ids(struct doctor *doctor)
{
    struct ids *ids = NULL;
    struct err err = {0};
    int result = ids_new((uint32_t)doctor->config->ids_base, (uint32_t)doctor->config->ids_count,
                         &ids, &err);
    struct sandbox_finding *finding =
        doctor_add(doctor, "ids", result < 0 ? FINDING_FAIL : FINDING_OK);
    SAY(finding->text, "%lld ids from %lld%s%.300s", (long long)doctor->config->ids_count,
        (long long)doctor->config->ids_base, result < 0 ? ": " : "", err.message);
    if (result < 0)
        SAY(finding->cure, "set ids.base in the configuration to a range that nobody uses");
    else
        ids_free(ids);
}

static void doctor_programs(struct doctor *doctor)
{
    const struct paths *paths = doctor->paths;
    const char *const programs[] = {paths->api, paths->egress, paths->init, paths->jail,
                                    paths->image_build};
    for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
        if (access(programs[i], X_OK) == 0)
            continue;
        struct sandbox_finding *finding = doctor_add(doctor, "programs", FINDING_FAIL);
        SAY(finding->text, "%.300s cannot be executed", programs[i]);
        SAY(finding->cure, "install Paddock whole, or build it whole (ninja -C build)");
        return;
    }
    doctor_add(doctor, "programs", FINDING_OK);
    SAY(doctor->findings[doctor->count - 1].text, "all are there");
}

static void doctor_policy(struct doctor *doctor)
{
    const char *path = doctor->config->policy;
    bool is_good = access(path, R_OK) == 0;
    struct sandbox_finding *finding =
        doctor_add(doctor, "policy", is_good ? FINDING_OK : FINDING_FAIL);
    SAY(finding->text, "%.300s%s", path,
        is_good ? "" : " cannot be read: sandboxes could reach nothing");
    if (!is_good)
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
    if (is_good)
        SAY(finding->text, "account id and token are set");
    else if (!account)
        SAY(finding->text, "AI_GATEWAY_ACCOUNT_ID is not set: agents reach no model");
    else
        SAY(finding->text, "agents reach no model: %.300s", err.message);
    if (!account)
        SAY(finding->cure, "set AI_GATEWAY_ACCOUNT_ID in \"vars\" of the configuration");
    else if (!is_good)
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
    if (!is_there)
        SAY(finding->cure, "paddock image build %s", image);
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
        SAY(finding->cure, "set \"default_agent\" to a folder of recipes_dir with an agent.json");
    else
        doctor_image(doctor, agent_image(agent));
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
    doctor_gateway(doctor);
    doctor_agent(doctor);
}

static const char *doctor_level(const struct sandbox_finding *finding)
{
    static const char *const names[] = {
        [FINDING_OK] = "ok", [FINDING_WARN] = "warn", [FINDING_FAIL] = "fail"};
    return names[finding->level];
}

static void doctor_print_json(const struct doctor *doctor, bool is_good)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    struct json_writer *writer = json_writer_new(&text, true);
    if (!writer)
        return;
    json_write_object_begin(writer);
    json_write_pair_bool(writer, "ok", is_good);
    json_write_key(writer, "findings");
    json_write_array_begin(writer);
    for (size_t i = 0; i < doctor->count; i++) {
        const struct sandbox_finding *finding = &doctor->findings[i];
        json_write_object_begin(writer);
        json_write_pair_string(writer, "name", finding->name);
        json_write_pair_string(writer, "level", doctor_level(finding));
        json_write_pair_string(writer, "text", finding->text);
        json_write_pair_string(writer, "cure", finding->cure);
        json_write_object_end(writer);
    }
    json_write_array_end(writer);
    json_write_object_end(writer);
    if (json_writer_end(writer) == 0)
        printf("%s\n", buf_text(&text));
}

static void doctor_print_text(const struct doctor *doctor)
{
    for (size_t i = 0; i < doctor->count; i++) {
        const struct sandbox_finding *finding = &doctor->findings[i];
        printf("%-4s %-16s %s\n", doctor_level(finding), finding->name, finding->text);
        if (finding->cure[0])
            printf("     %-16s -> %s\n", "", finding->cure);
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
