/* The agents that sandboxes may have: the folders of recipes_dir with an agent.json. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "supervisor/supervisor.h"
#include "util/cleanup.h"
#include "util/name.h"
#include "json/json.h"

static int agents_compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

void agents_list(const struct supervisor *supervisor, struct agents *ret)
{
    ret->count = 0;
    int fd = supervisor->recipes_fd < 0
                 ? -1
                 : openat(supervisor->recipes_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0)
        close(fd);
    for (const struct dirent *entry;
         dir && ret->count < ARRAY_LEN(ret->names) && (entry = readdir(dir));) {
        char path[sizeof(entry->d_name) + 16];
        snprintf(path, sizeof(path), "%s/agent.json", entry->d_name);
        if (!name_is_valid(entry->d_name, strlen(entry->d_name)) ||
            faccessat(supervisor->recipes_fd, path, F_OK, 0) < 0)
            continue;
        snprintf(ret->names[ret->count++], sizeof(ret->names[0]), "%.63s", entry->d_name);
    }
    if (dir)
        closedir(dir);
    qsort(ret->names, ret->count, sizeof(ret->names[0]), agents_compare);
}

void agents_write(struct json_writer *writer, struct supervisor *supervisor)
{
    struct agents agents;
    agents_list(supervisor, &agents);
    json_write_array_begin(writer);
    for (size_t i = 0; i < agents.count; i++) {
        const char *name = agents.names[i];
        struct agent *agent = NULL;
        struct err err = {0};
        int result = supervisor_read_agent(supervisor, name, &agent, &err);
        json_write_object_begin(writer);
        json_write_pair_string(writer, "name", name);
        json_write_pair_bool(writer, "default",
                             strcmp(name, supervisor->config->default_agent) == 0);
        if (result == 0)
            json_write_pair_string(writer, "image", agent_image(agent));
        else
            json_write_pair_string(writer, "error", err.message);
        json_write_object_end(writer);
        agent_free(agent);
    }
    json_write_array_end(writer);
}
