"""Sends one of our runs to a real MLflow server and reads it back.

Usage: mlflow_oracle.py WRITE_LOGS      (exit code 77: MLflow is missing)

Must be run with a Python that has MLflow. The server listens on a free port of the loopback interface, keeps its runs
in a temporary folder, and is ended together with all processes that it started.
"""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

try:
    import mlflow
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

STEPS = 300
START_SECONDS = 120


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """`mlflow server` in its own session, which is ended as a whole."""

    def __init__(self, folder):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = open(folder / "server.log", "wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
             "--backend-store-uri", f"sqlite:///{folder / 'runs.db'}",
             "--default-artifact-root", (folder / "artifacts").as_uri()],
            stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True, cwd=folder)

    def __enter__(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5) as answer:
                    if answer.status == 200:
                        return self
            except (urllib.error.URLError, OSError):
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.2)
        self.stop()
        raise SystemExit("the MLflow server does not start:\n" + pathlib.Path(self.log.name).read_text()[-4000:])

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.log.close()


def main():
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with Server(folder) as server:
            logs = folder / "logs"
            subprocess.run([sys.argv[1], logs, server.url, "mlflow"], check=True)
            check_run(mlflow.tracking.MlflowClient(server.url))
            assert not logs.exists(), "nothing was left over"
    print(f"mlflow {mlflow.__version__}: the run is as logged")


def check_run(client):
    experiment = client.get_experiment_by_name("lockstep")
    run, = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED" and run.info.end_time >= run.info.start_time, run.info
    assert run.info.run_name == "oracle", run.info
    assert run.data.params == {"lr": "0.1", "global_batch": "128", "nesterov": "true", "strategy": "ddp"}, run.data
    history = sorted(client.get_metric_history(run.info.run_id, "train/loss"), key=lambda metric: metric.step)
    assert [metric.step for metric in history] == list(range(1, STEPS + 1))
    assert all(metric.value == 1 / metric.step for metric in history)
    table = json.loads(run.data.tags["test/confusion"])
    assert table == {"step": 300, "labels": ["cat", 'a|b, "<i>*c*'], "rows": [[300, 0.25], [None, 100000]]}, table
    accuracy = client.get_metric_history(run.info.run_id, "test/accuracy")
    assert sorted((metric.step, metric.value) for metric in accuracy) == [(100, 0.25), (200, 0.5), (300, 0.75)]


if __name__ == "__main__":
    main()
