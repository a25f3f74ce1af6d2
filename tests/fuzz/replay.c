/*
 * Runs a fuzz target over every file of a corpus folder, as a regression test without libFuzzer.
 * A folder that is missing or empty is a failure: a test that reads nothing proves nothing.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static int replay_file(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rbe");
    if (!file) {
        perror(path);
        return -1;
    }
    static uint8_t data[1 << 20];
    size_t len = fread(data, 1, sizeof(data), file);
    fclose(file);
    /* An exact-size copy, so that a read past the end is seen by ASan. */
    uint8_t *copy = malloc(len ? len : 1);
    if (!copy)
        return -1;
    for (size_t i = 0; i < len; i++)
        copy[i] = data[i];
    LLVMFuzzerTestOneInput(copy, len);
    free(copy);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    DIR *dir = opendir(argv[1]);
    if (!dir) {
        perror(argv[1]);
        return 1;
    }
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        if (replay_file(argv[1], entry->d_name) < 0)
            return 1;
        count++;
    }
    closedir(dir);
    printf("%d inputs replayed\n", count);
    return count ? 0 : 1;
}
