/*
 * paddockd: the supervisor. Reads its configuration, then serves until SIGTERM; see
 * supervisor/supervisor.h. Runs as root, or as the user whose daemon it is; single-threaded.
 */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervisor/config.h"
#include "supervisor/daemon_options.h"
#include "supervisor/doctor.h"
#include "supervisor/supervisor.h"
#include "util/cleanup.h"
#include "util/log.h"
#include "util/places.h"

struct options {
    const char *config;
    bool doctor, json, help, version;
};

static void print_help(void)
{
    puts("usage: paddockd [--config FILE] [--doctor [--json]]\n");
    for (size_t i = 0; i < ARRAY_LEN(daemon_options); i++)
        printf("  %-14s %s\n", daemon_options[i].name, daemon_options[i].help);
    putchar('\n');
    for (size_t i = 0; i < ARRAY_LEN(daemon_signals); i++)
        printf("%s %s.\n", daemon_signals[i].name, daemon_signals[i].help);
    puts("\nThe configuration is JSON with comments; a.b is the key b of the object a. Its keys,\n"
         "with [defaults]; policy/ and images/ are the folders that Paddock comes with:\n");
    config_print_keys(stdout);
}

static bool parse_options(int argc, char **argv, struct options *ret)
{
    *ret = (struct options){0};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            ret->config = argv[++i];
        else if (strcmp(argv[i], "--doctor") == 0)
            ret->doctor = true;
        else if (strcmp(argv[i], "--json") == 0)
            ret->json = true;
        else if (strcmp(argv[i], "--help") == 0)
            ret->help = true;
        else if (strcmp(argv[i], "--version") == 0)
            ret->version = true;
        else
            return false;
    }
    return !ret->json || ret->doctor;
}

/* What is told before the configuration is read comes as text. */
static void choose_log_style(const struct config *config)
{
    log_set_style(
        (struct log_style){.is_json = config->log_format && strcmp(config->log_format, "json") == 0,
                           .has_priority = log_is_journal(secrets_variable("JOURNAL_STREAM"))});
}

static int load_config(const struct options *options, const struct paths *paths, struct config *ret,
                       struct err *err)
{
    struct places places;
    const char *file = options->config;
    if (!places_find(!places_is_host_root(), secrets_variable, &places) && !file)
        return err_set(err, EINVAL,
                       "HOME is not set: without it there is no default for state_dir and the "
                       "socket; set HOME, or state_dir and listen in a file given by --config");
    if (!file && access(places.config, F_OK) == 0)
        file = places.config;
    int result = config_load(file, paths->data, &places, ret, err);
    if (result < 0)
        return result;
    result = config_add_environment(ret, secrets_variable);
    return result < 0 ? err_set(err, -result, "\"vars\" has too many variables") : 0;
}

int main(int argc, char **argv)
{
    struct secrets *secrets = secrets_take(environ);
    struct options options;
    struct paths paths = {0};
    struct config config = {0};
    struct err err = {0};
    log_init("paddockd", LOG_INFO);
    prctl(PR_SET_DUMPABLE, 0);
    umask(0022);
    if (!secrets || !parse_options(argc, argv, &options)) {
        fprintf(stderr, "paddockd: these arguments make no sense; see paddockd --help\n");
        return 2;
    }
    if (options.help || options.version) {
        if (options.help)
            print_help();
        else
            puts("paddockd " PADDOCK_VERSION);
        return 0;
    }
    int result = paths_find(&paths, &err);
    if (result == 0)
        result = load_config(&options, &paths, &config, &err);
    choose_log_style(&config);
    if (result == 0 && options.doctor)
        result = doctor_run(&config, &paths, secrets, options.json) ? 0 : -EPERM;
    else if (result == 0)
        result = supervisor_run(&config, &paths, secrets, &err);
    if (result < 0 && err.message[0])
        log_error("%s", err.message);
    config_free(&config);
    secrets_free(secrets);
    return result < 0 ? 1 : 0;
}
