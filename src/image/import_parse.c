/* The JSON of image archives; see import_parse.h. In the jail, on foreign bytes. Invariant: a
 * member's name is only ever looked up among the names of the archive; it never becomes a path of a
 * file system. */
#include "image/import_parse.h"

#include <stdio.h>
#include <string.h>

#include "util/cleanup.h"
#include "json/json.h"

#define HEX "0123456789abcdef"

const char *import_arch(void)
{
#if defined(__x86_64__)
    return "amd64";
#elif defined(__aarch64__)
    return "arm64";
#else
#error "Paddock runs on x86-64 and arm64"
#endif
}

/* "sha256:" and 64 lower-case hex digits, or "sha512:" and 128. */
static bool is_digest(const char *text)
{
    if (!text)
        return false;
    size_t digits = strncmp(text, "sha256:", 7) == 0 ? 64 : 128;
    return (digits == 64 || strncmp(text, "sha512:", 7) == 0) && strlen(text) == 7 + digits &&
           strspn(text + 7, HEX) == digits;
}

static int parse(const char *what, const char *data, size_t len, struct json **ret, struct err *err)
{
    struct err inner = {0};
    int result = json_parse(data, len, JSON_STRICT, ret, &inner);
    return result < 0 ? err_set(err, -result, "%s:%s", what, inner.message) : 0;
}

/* A descriptor (OCI image-spec, descriptor.md) as the blob that it stands for. */
static int read_descriptor(const char *what, const struct json *descriptor, struct import_part *ret,
                           struct err *err)
{
    const char *digest = json_text(json_get(descriptor, "digest"));
    if (!is_digest(digest))
        return err_set(err, EINVAL, "%s has no digest of SHA-256 or SHA-512", what);
    snprintf(ret->digest, sizeof(ret->digest), "%s", digest);
    snprintf(ret->member, sizeof(ret->member), "blobs/%.6s/%s", digest, digest + 7);
    return 0;
}

/* ------------------------------------------------------------------------------- the index */

static bool has_type(const struct json *descriptor, const char *const *types)
{
    const char *type = json_text(json_get(descriptor, "mediaType"));
    for (; type && *types; types++)
        if (strcmp(type, *types) == 0)
            return true;
    return false;
}

static bool is_index(const struct json *descriptor)
{
    static const char *const types[] = {"application/vnd.oci.image.index.v1+json",
                                        "application/vnd.docker.distribution.manifest.list.v2+json",
                                        NULL};
    return has_type(descriptor, types);
}

static bool is_manifest(const struct json *descriptor)
{
    static const char *const types[] = {"application/vnd.oci.image.manifest.v1+json",
                                        "application/vnd.docker.distribution.manifest.v2+json",
                                        NULL};
    return has_type(descriptor, types);
}

/* For this machine, or for any: what says no platform is judged by its configuration. */
static bool is_for_us(const struct json *descriptor)
{
    const struct json *platform = json_get(descriptor, "platform");
    const char *os = json_text(json_get(platform, "os"));
    const char *arch = json_text(json_get(platform, "architecture"));
    return !platform ||
           (os && arch && strcmp(os, "linux") == 0 && strcmp(arch, import_arch()) == 0);
}

int import_parse_index(const char *data, size_t len, struct import_part *ret, bool *ret_is_index,
                       struct err *err)
{
    cleanup_json struct json *json = NULL;
    int result = parse("index.json", data, len, &json, err);
    if (result < 0)
        return result;
    const struct json *list = json_get(json, "manifests");
    struct import_part found = {.member = ""};
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *descriptor = json_at(list, i);
        struct import_part part;
        if ((!is_index(descriptor) && !is_manifest(descriptor)) || !is_for_us(descriptor))
            continue;
        result = read_descriptor("a manifest of index.json", descriptor, &part, err);
        if (result < 0)
            return result;
        if (found.member[0] && strcmp(found.digest, part.digest) != 0)
            return err_set(err, EEXIST,
                           "the archive holds several images for this machine: save one alone");
        found = part;
        *ret_is_index = is_index(descriptor);
    }
    if (!found.member[0])
        return err_set(err, ENOENT, "the archive holds no image for linux/%s", import_arch());
    *ret = found;
    return 0;
}

/* --------------------------------------------------------------------------- the manifests */

static int check_layer_count(size_t count, struct err *err)
{
    return count > LIMIT_IMPORT_LAYERS
               ? err_set(err, EMSGSIZE, "the image has %zu layers, and %d are the most", count,
                         LIMIT_IMPORT_LAYERS)
               : 0;
}

int import_parse_manifest(const char *data, size_t len, struct import_image *ret, struct err *err)
{
    cleanup_json struct json *json = NULL;
    int result = parse("the image's manifest", data, len, &json, err);
    if (result < 0)
        return result;
    const struct json *layers = json_get(json, "layers");
    ret->layer_count = json_count(layers);
    if (json_type(layers) != JSON_ARRAY)
        return err_set(err, EINVAL, "the image's manifest has no list of layers");
    result = check_layer_count(ret->layer_count, err);
    if (result == 0)
        result = read_descriptor("the configuration", json_get(json, "config"), &ret->config, err);
    for (size_t i = 0; i < ret->layer_count && result == 0; i++)
        result = read_descriptor("a layer", json_at(layers, i), &ret->layers[i], err);
    return result;
}

/* A name in manifest.json, cleaned as those of the archive are. */
static int read_member(const struct json *name, char ret[IMPORT_MEMBER_SIZE], struct err *err)
{
    char clean[LIMIT_IMPORT_PATH_BYTES + 1];
    const char *text = json_text(name);
    if (!text || import_clean_path(text, clean, NULL) < 0 || !clean[0] ||
        strlen(clean) >= IMPORT_MEMBER_SIZE)
        return err_set(err, EINVAL, "manifest.json names a file that no archive can hold");
    snprintf(ret, IMPORT_MEMBER_SIZE, "%.*s", IMPORT_MEMBER_SIZE - 1, clean);
    return 0;
}

/* The configuration is named after its digest, which vouches for the layers' in turn. */
static void learn_digest(struct import_part *config)
{
    const char *name = strrchr(config->member, '/');
    name = name ? name + 1 : config->member;
    size_t digits = strspn(name, HEX);
    if (digits == 64 && (name[64] == '\0' || strcmp(name + 64, ".json") == 0))
        snprintf(config->digest, sizeof(config->digest), "sha256:%.64s", name);
}

int import_parse_docker(const char *data, size_t len, struct import_image *ret, struct err *err)
{
    cleanup_json struct json *json = NULL;
    int result = parse("manifest.json", data, len, &json, err);
    if (result < 0)
        return result;
    if (json_type(json) != JSON_ARRAY || json_count(json) == 0)
        return err_set(err, EINVAL, "manifest.json holds no image");
    if (json_count(json) > 1)
        return err_set(err, EEXIST, "the archive holds several images: save one alone");
    const struct json *layers = json_get(json_at(json, 0), "Layers");
    ret->layer_count = json_count(layers);
    result = check_layer_count(ret->layer_count, err);
    ret->config.digest[0] = '\0';
    if (result == 0)
        result = read_member(json_get(json_at(json, 0), "Config"), ret->config.member, err);
    if (result == 0)
        learn_digest(&ret->config);
    for (size_t i = 0; i < ret->layer_count && result == 0; i++) {
        ret->layers[i].digest[0] = '\0';
        result = read_member(json_at(layers, i), ret->layers[i].member, err);
    }
    return result;
}

/* ------------------------------------------------------------------------ the configuration */

static int read_diff_ids(const struct json *json, struct import_config *ret, struct err *err)
{
    const struct json *ids = json_get(json_get(json, "rootfs"), "diff_ids");
    ret->layer_count = json_count(ids);
    int result = check_layer_count(ret->layer_count, err);
    for (size_t i = 0; i < ret->layer_count && result == 0; i++) {
        const char *digest = json_text(json_at(ids, i));
        if (!is_digest(digest))
            return err_set(err, EINVAL, "the image's configuration has a diff_id that is none");
        snprintf(ret->diff_ids[i], IMPORT_DIGEST_SIZE, "%s", digest);
    }
    return result;
}

static int check_platform(const struct json *json, struct err *err)
{
    const char *os = json_text(json_get(json, "os"));
    const char *arch = json_text(json_get(json, "architecture"));
    if (!os || !arch)
        return err_set(err, EINVAL,
                       "the image's configuration does not say for which machine it is");
    if (strcmp(os, "linux") != 0 || strcmp(arch, import_arch()) != 0)
        return err_set(err, ENOEXEC, "the image is for %.32s/%.32s, this machine is linux/%s", os,
                       arch, import_arch());
    return 0;
}

/* An empty string, or none, is nothing. */
static int copy_text(const struct json *value, const char *what, char *ret, size_t size,
                     struct err *err)
{
    const char *text = json_text(value);
    if (json_type(value) == JSON_NULL)
        text = "";
    if (!text || strlen(text) >= size)
        return err_set(err, EINVAL, "the image's %s is not a text of at most %zu bytes", what,
                       size - 1);
    snprintf(ret, size, "%s", text);
    return 0;
}

static int read_kept(const struct json *json, struct image_config *ret, struct err *err)
{
    const struct json *env = json_get(json, "Env");
    int result = copy_text(json_get(json, "User"), "user", ret->user, sizeof(ret->user), err);
    if (result == 0)
        result = copy_text(json_get(json, "WorkingDir"), "working directory", ret->workdir,
                           sizeof(ret->workdir), err);
    for (size_t i = 0; i < json_count(env) && result == 0; i++) {
        const char *entry = json_text(json_at(env, i));
        result = image_config_env_add(ret, entry ? entry : "", err);
    }
    if (result == 0 && !image_config_is_valid(ret))
        result = err_set(err, EINVAL,
                         "the image's user or working directory is not what it must be: a name, "
                         "an absolute path");
    return result;
}

int import_parse_config(const char *data, size_t len, struct import_config *ret, struct err *err)
{
    cleanup_json struct json *json = NULL;
    ret->layer_count = 0;
    ret->kept = (struct image_config){0};
    int result = parse("the image's configuration", data, len, &json, err);
    if (result == 0)
        result = check_platform(json, err);
    if (result == 0)
        result = read_diff_ids(json, ret, err);
    return result < 0 ? result : read_kept(json_get(json, "config"), &ret->kept, err);
}
