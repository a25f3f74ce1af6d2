/* What an image's archive says: the JSON of its manifests, names of its files, accounts. The first
 * byte chooses which; whatever is accepted keeps the promises that the import relies on. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "image/import_parse.h"
#include "util/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_part(const struct import_part *part)
{
    char clean[LIMIT_IMPORT_PATH_BYTES + 1];
    assert(memchr(part->member, '\0', sizeof(part->member)));
    assert(memchr(part->digest, '\0', sizeof(part->digest)));
    assert(import_clean_path(part->member, clean, NULL) == 0 && strcmp(clean, part->member) == 0);
}

static void check_image(const struct import_image *image)
{
    check_part(&image->config);
    assert(image->layer_count <= LIMIT_IMPORT_LAYERS);
    for (size_t i = 0; i < image->layer_count; i++)
        check_part(&image->layers[i]);
}

static void fuzz_manifests(char kind, const char *text, size_t len)
{
    struct err err = {0};
    struct import_part part;
    bool is_index;
    cleanup_free struct import_image *image = calloc(1, sizeof(*image));
    assert(image);
    int result = 0;
    if (kind == 'i') {
        result = import_parse_index(text, len, &part, &is_index, &err);
        if (result == 0)
            check_part(&part);
    } else {
        result = kind == 'm' ? import_parse_manifest(text, len, image, &err)
                             : import_parse_docker(text, len, image, &err);
        if (result == 0)
            check_image(image);
    }
    assert(result == 0 || err.message[0]);
}

static void fuzz_config(const char *text, size_t len)
{
    struct err err = {0};
    cleanup_free struct import_config *config = calloc(1, sizeof(*config));
    assert(config);
    if (import_parse_config(text, len, config, &err) < 0)
        assert(err.message[0]);
    else
        assert(image_config_is_valid(&config->kept) && config->layer_count <= LIMIT_IMPORT_LAYERS);
}

/* A user, then passwd, then group, with a NUL between them. */
static void fuzz_user(const char *text)
{
    struct err err = {0};
    cleanup_free struct image_config *config = calloc(1, sizeof(*config));
    assert(config);
    const char *passwd = text + strlen(text) + 1;
    if (strlen(text) >= sizeof(config->user))
        return;
    memcpy(config->user, text, strlen(text) + 1);
    if (!image_config_is_valid(config))
        return;
    if (import_find_user(config, passwd, passwd + strlen(passwd) + 1, &err) < 0)
        assert(err.message[0]);
    else
        assert(image_config_is_valid(config));
}

static void fuzz_path(const char *text)
{
    char clean[LIMIT_IMPORT_PATH_BYTES + 1];
    if (import_clean_path(text, clean, NULL) < 0)
        return;
    assert(clean[0] != '/' && !strstr(clean, "//") && strcmp(clean, "..") != 0);
    assert(strncmp(clean, "../", 3) != 0 && !strstr(clean, "/../"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    cleanup_free char *text = calloc(1, size + 3); /* three texts end in it, whatever is there */
    assert(text);
    memcpy(text, data + 1, size - 1);
    switch (data[0]) {
    case 'c':
        fuzz_config(text, size - 1);
        break;
    case 'u':
        fuzz_user(text);
        break;
    case 'p':
        fuzz_path(text);
        break;
    default:
        fuzz_manifests((char)data[0], text, size - 1);
    }
    return 0;
}
