/* A state folder, an image of one static program, and the supervisor's side of the messages: what
 * the tests of instances share. */
#pragma once

#include "ipc/ipc.h"
#include "sandbox/instance.h"

struct rig {
    char folder[64];
    char token[16]; /* names its control groups */
    int image_fd, common_fd, folder_fd;
    struct sandbox_host *host;
    uint32_t block;
    struct sandbox_instance instance;
    int listeners[4];
};

void rig_open(struct rig *rig, const char *init_path, const char *probe_path);
void rig_start(struct rig *rig, const char *name);
void rig_stop(struct rig *rig);  /* kills, waits, cleans up */
void rig_close(struct rig *rig); /* and removes the folder */

/* A start whose first message is of this type; the text of a failed one in *err. Cleans up after a
 * failed one. */
int rig_start_message(struct rig *rig, const char *name, enum ipc_type type, struct err *err);

/* The next message, waited for 10 s at most. */
void rig_receive(struct rig *rig, enum ipc_type type, struct ipc_message *ret);
int rig_spec(const char *const *argv, const char *cwd);

struct rig_result {
    struct task_end end;
    char out[16384];
    char err[4096];
};
/* Runs /bin/probe with the arguments, as the user, and waits for the end. */
void rig_exec(struct rig *rig, uint32_t user, const char *const *argv, struct rig_result *ret);
/* Starts /bin/probe as the task; an argument "PROMPT" becomes the prompt. */
void rig_task(struct rig *rig, const char *const *argv, const char *prompt, int64_t deadline_ms);
bool rig_group_is_empty(struct rig *rig, const char *group);
