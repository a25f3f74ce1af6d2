/* GET /metrics: the text format of Prometheus, version 0.0.4. Counters begin anew with the
 * supervisor, which process_start_time_seconds tells. No label holds a name that a
 * client chose: rules are the policies'. */
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

static int metrics_append_hits(struct buf *text, const struct supervisor *supervisor)
{
    int result = buf_append_string(text, "# HELP paddock_limit_hits_total Ends of tasks and "
                                         "programs in whose time a limit of their sandbox was "
                                         "hit, and stops of one over its limit of files.\n# TYPE "
                                         "paddock_limit_hits_total counter\n");
    for (enum hit i = 0; i < HIT_KINDS && result == 0; i++)
        result = buf_appendf(text, "paddock_limit_hits_total{limit=\"%s\"} %" PRIu64 "\n",
                             hits_name(i), supervisor->counters.hits[i]);
    return result;
}

static uint64_t metrics_running_tasks(const struct supervisor *supervisor)
{
    uint64_t count = 0;
    for (const struct sandbox *sandbox = supervisor->sandboxes; sandbox; sandbox = sandbox->next)
        count += sandbox->meta.task == TASK_RUNNING;
    return count;
}

/* ------------------------------------------------------------------------------- rules */

static struct rule_table metrics = {.count = 1};

void metrics_add(const struct rule_counts *more)
{
    struct rule_counts one = *more;
    one.rule[sizeof(one.rule) - 1] = '\0';
    one.usage.model[0] = '\0';
    rule_table_add(&metrics, &one);
}

/* A label's value: a rule's name is printable ASCII. */
static void metrics_escape(const char *text, char ret[2 * LIMIT_POLICY_NAME_BYTES + 1])
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            *ret++ = '\\';
        *ret++ = *text;
    }
    *ret = '\0';
}

struct metrics_family {
    const char *name, *help, *label;
    size_t count;
    uint64_t (*value)(const struct rule_counts *rule, size_t index);
    const char *words[8];
};

static uint64_t metrics_requests(const struct rule_counts *rule, size_t index)
{
    return rule->decisions[index];
}

static uint64_t metrics_bytes(const struct rule_counts *rule, size_t index)
{
    return index ? rule->bytes_in : rule->bytes_out;
}

static uint64_t metrics_model_requests(const struct rule_counts *rule, size_t index)
{
    const struct model_usage *usage = &rule->usage;
    const int64_t values[] = {usage->requests - usage->errors - usage->unread, usage->errors,
                              usage->unread};
    return (uint64_t)values[index];
}

static uint64_t metrics_tokens(const struct rule_counts *rule, size_t index)
{
    const struct model_usage *usage = &rule->usage;
    const int64_t values[] = {usage->input_tokens, usage->output_tokens, usage->cache_read_tokens,
                              usage->cache_creation_tokens};
    return (uint64_t)values[index];
}

#define WORD(word) #word,
static const struct metrics_family metrics_families[] = {
    {"paddock_egress_requests_total",
     "Requests of sandboxes by rule.",
     "decision",
     COUNT_DECISION_COUNT,
     metrics_requests,
     {COUNT_DECISIONS(WORD)}},
    {"paddock_egress_bytes_total",
     "Bytes of bodies, to and from upstreams.",
     "direction",
     2,
     metrics_bytes,
     {"out", "in"}},
    {"paddock_model_requests_total",
     "Requests of rules with usage.",
     "result",
     3,
     metrics_model_requests,
     {"read", "error", "unread"}},
    {"paddock_model_tokens_total",
     "Tokens that models' answers told of.",
     "kind",
     4,
     metrics_tokens,
     {"input", "output", "cache_read", "cache_creation"}},
};

static int metrics_append_family(struct buf *text, const struct metrics_family *family)
{
    char rule[2 * LIMIT_POLICY_NAME_BYTES + 1];
    int result = buf_appendf(text, "# HELP %s %s\n# TYPE %s counter\n", family->name, family->help,
                             family->name);
    for (size_t i = 0; i < metrics.count; i++) {
        metrics_escape(metrics.rules[i].rule, rule);
        for (size_t j = 0; j < family->count && result == 0; j++) {
            uint64_t value = family->value(&metrics.rules[i], j);
            if (value)
                result = buf_appendf(text, "%s{rule=\"%s\",%s=\"%s\"} %" PRIu64 "\n", family->name,
                                     rule, family->label, family->words[j], value);
        }
    }
    return result;
}

static int metrics_append_failures(struct buf *text)
{
    static const char *const words[] = {COUNT_FAILURES(WORD)};
    int result = buf_append_string(text, "# HELP paddock_egress_upstream_failures_total Requests "
                                         "that failed at their upstream.\n# TYPE "
                                         "paddock_egress_upstream_failures_total counter\n");
    for (size_t i = 1; i < ARRAY_LEN(words) && result == 0; i++) {
        uint64_t sum = 0;
        for (size_t j = 0; j < metrics.count; j++)
            sum += metrics.rules[j].failures[i];
        result =
            buf_appendf(text, "paddock_egress_upstream_failures_total{kind=\"%s\"} %" PRIu64 "\n",
                        words[i], sum);
    }
    return result;
}
#undef WORD

static int metrics_append_rules(struct buf *text)
{
    int result = metrics_append_failures(text);
    for (size_t i = 0; i < ARRAY_LEN(metrics_families) && result == 0; i++)
        result = metrics_append_family(text, &metrics_families[i]);
    return result;
}

static int metrics_append_all(struct buf *text, const struct supervisor *supervisor)
{
    const struct counters *counters = &supervisor->counters;
    const struct metric list[] = {
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
    for (size_t i = 0; i < ARRAY_LEN(list) && result == 0; i++)
        result = metrics_append(text, &list[i]);
    if (result == 0)
        result = metrics_append_states(text, supervisor);
    if (result == 0)
        result = metrics_append_hits(text, supervisor);
    return result == 0 ? metrics_append_rules(text) : result;
}

int document_metrics(struct supervisor *supervisor, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    int result = metrics_append_all(&text, supervisor);
    if (result < 0)
        return err_errno(err, -result, "cannot write the metrics");
    return fd_sealed("metrics", text.data, text.len, err);
}
