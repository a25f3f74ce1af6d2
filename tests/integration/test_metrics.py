"""GET /metrics, read by Prometheus's own parser and compared with what happened."""
import os
import signal

from prometheus_client.parser import text_string_to_metric_families

import pytest

import harness

pytestmark = pytest.mark.portable


def read(daemon):
    answer = daemon.get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    values = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.documentation and family.type in ("gauge", "counter"), family
        for sample in family.samples:
            key = sample.name + "".join(sorted(sample.labels.values()))
            assert key not in values
            values[key] = sample.value
    return values


def test_metrics_count_what_happened(make_daemon):
    daemon = make_daemon(default_agent="sh", max_running=2)
    harness.wait_for(lambda: read(daemon)["paddock_policy_loaded"] == 1, 20, "the policy")
    before = read(daemon)
    assert before["paddock_sandboxesrunning"] == before["paddock_sandbox_starts_total"] == 0
    assert before["paddock_egress_up"] == 1
    first, second = daemon.sandbox("secret-name"), daemon.sandbox("second")
    assert first.clone().status == 200
    assert first.run_task("echo done")["state"] == "succeeded"
    assert second.clone().status == 200
    assert second.start_task("sleep 600").status == 202
    assert daemon.sandbox("third").clone().status == 503
    values = read(daemon)
    assert values["paddock_sandboxesrunning"] == values["paddock_sandbox_starts_total"] == 2
    assert values["paddock_sandbox_start_failures_total"] == 1
    assert (values["paddock_tasks_running"], values["paddock_tasks_ended_total"]) == (1, 1)
    assert "secret-name" not in daemon.get("/metrics").text
    os.kill(second.init_pid(), signal.SIGKILL)
    harness.wait_for(lambda: read(daemon)["paddock_tasks_lost_total"] == 1, 20, "the lost task")
    assert read(daemon)["paddock_sandboxesstopped"] == 1
    daemon.stop()
    daemon.start()
    again = read(daemon)
    assert again["paddock_tasks_ended_total"] == 0
    assert again["paddock_sandboxesrunning"] == 1 and again["paddock_sandbox_starts_total"] == 0
    assert again["process_start_time_seconds"] >= values["process_start_time_seconds"]
    daemon.close()
