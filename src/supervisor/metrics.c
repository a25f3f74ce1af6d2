/* GET /metrics: the text format of Prometheus, version 0.0.4. Counters begin anew with the
 * supervisor, which process_start_time_seconds tells. No label holds a name that a client chose. */
#include <inttypes.h>
#include <string.h>

#include "supervisor/table.h"
#include "util/cleanup.h"
#include "util/fd.h"

struct metric {
    const char *name, *type, *help;
    uint64_t value;
};

static int metrics_append(struct buf *text, const struct metric *metric)
{
    return buf_appendf(text, "# HELP %s %s\n# TYPE %s %s\n%s %" PRIu64 "\n", metric->name,
                       metric->help, metric->name, metric->type, metric->name, metric->value);
}

static int metrics_append_states(struct buf *text, const struct supervisor *supervisor)
{
    size_t counts[SANDBOX_STOPPING + 1] = {0};
    for (const struct sandbox *sandbox = supervisor->sandboxes; sandbox; sandbox = sandbox->next)
        counts[sandbox->state]++;
    int result = buf_append_string(text, "# HELP paddock_sandboxes Sandboxes by state.\n"
                                         "# TYPE paddock_sandboxes gauge\n");
    for (size_t i = 0; i < ARRAY_LEN(counts) && result == 0; i++)
        result = buf_appendf(text, "paddock_sandboxes{state=\"%s\"} %zu\n",
                             document_state_name((enum sandbox_state)i), counts[i]);
    return result;
}

static uint64_t metrics_running_tasks(const struct supervisor *supervisor)
{
    uint64_t count = 0;
    for (const struct sandbox *sandbox = supervisor->sandboxes; sandbox; sandbox = sandbox->next)
        count += sandbox->meta.task == TASK_RUNNING;
    return count;
}

static int metrics_append_all(struct buf *text, const struct supervisor *supervisor)
{
    const struct counters *counters = &supervisor->counters;
    const struct metric metrics[] = {
        {"process_start_time_seconds", "gauge", "When the supervisor was started, in Unix time.",
         (uint64_t)counters->started_ms / 1000},
        {"paddock_policy_loaded", "gauge", "1 when a policy is in force.",
         supervisor->policy.is_loaded},
        {"paddock_policy_inactive_rules", "gauge", "Rules that name something that is not set.",
         supervisor->policy.inactive},
        {"paddock_egress_up", "gauge", "1 while the egress gateway runs.",
         supervisor->egress.channel != NULL},
        {"paddock_api_starts_total", "counter", "Starts of paddock-api.",
         supervisor->api_generation},
        {"paddock_sandbox_starts_total", "counter", "Instances that were ready.", counters->ready},
        {"paddock_sandbox_start_failures_total", "counter", "Starts that were refused or failed.",
         counters->not_started},
        {"paddock_tasks_running", "gauge", "Tasks that run.", metrics_running_tasks(supervisor)},
        {"paddock_tasks_ended_total", "counter", "Tasks that ended, however they did.",
         counters->tasks_ended},
        {"paddock_tasks_lost_total", "counter", "Tasks whose instance died before their end.",
         counters->tasks_lost},
    };
    int result =
        buf_appendf(text,
                    "# HELP paddock_build_info The version.\n# TYPE paddock_build_info gauge\n"
                    "paddock_build_info{version=\"%s\"} 1\n",
                    PADDOCK_VERSION);
    for (size_t i = 0; i < ARRAY_LEN(metrics) && result == 0; i++)
        result = metrics_append(text, &metrics[i]);
    return result < 0 ? result : metrics_append_states(text, supervisor);
}

int document_metrics(struct supervisor *supervisor, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    int result = metrics_append_all(&text, supervisor);
    if (result < 0)
        return err_errno(err, -result, "cannot write the metrics");
    return fd_sealed("metrics", text.data, text.len, err);
}
