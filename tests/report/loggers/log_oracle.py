"""Reads our loggers' files with Python's TensorBoard, pandas and wandb, also after the writer was killed.

Usage: log_oracle.py WRITE_LOGS      (exit code 77: a package is missing, which is named)
"""
import hashlib
import html.parser
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

try:
    import numpy
    import pandas
    import tensorboard  # noqa: F401
    import wandb
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard import plugin_util
    from tensorboard.plugins.hparams import plugin_data_pb2
    from tensorboard.util import tensor_util
    from wandb.proto import wandb_internal_pb2
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import wandb_double

STEPS = 300
OWN_CLIENT_SECONDS = 60
MARKED = [100, 200, 300]  # steps with an accuracy, a histogram, an image and a table
LABELS = ["cat", 'a|b, "<i>*c*']
FILE_LOGGERS = ["csv", "jsonl", "tensorboard", "wandb"]
PARAMETERS = {"lr": 0.1, "global_batch": 128, "nesterov": True, "strategy": "ddp"}


def run_folder(logs):
    folder, = logs.glob("oracle-*")
    return folder


def wandb_folder(logs):
    folder, = (logs / "wandb").glob("offline-run-*")
    return folder


def read_csv(logs):
    return pandas.read_csv(run_folder(logs) / "metrics.csv")


def read_jsonl(logs):
    return pandas.read_json(run_folder(logs) / "metrics.jsonl", lines=True, precise_float=True)


def check_table(table, steps):
    loss = table["train/loss"].dropna()
    assert list(table.loc[loss.index, "step"]) == list(range(1, steps + 1)), table
    assert list(loss) == [1 / step for step in range(1, steps + 1)], "to the last bit"
    assert (table["train/learning_rate"].dropna() == 0.1).all()
    marked = table["test/accuracy"].dropna()
    assert list(table.loc[marked.index, "step"]) == [step for step in MARKED if step <= steps]
    assert list(marked) == [step / 400 for step in MARKED if step <= steps]


def check_csv(logs):
    table = read_csv(logs)
    assert list(table.columns) == ["step", "time", "train/loss", "train/learning_rate", "test/accuracy"], table.columns
    check_table(table, STEPS)
    assert (table["time"].diff().dropna() >= 0).all()
    assert json.loads((run_folder(logs) / "hyper_parameters.json").read_text()) == PARAMETERS
    tables = pandas.read_csv(run_folder(logs) / "tables.csv")
    assert sorted(set(tables["step"])) == MARKED and set(tables["name"]) == {"test/confusion"}, tables
    for step in MARKED:
        table = tables[tables["step"] == step].pivot(index="row", columns="column", values="value")
        table = table.loc[LABELS, LABELS]
        numpy.testing.assert_array_equal(table.to_numpy(), [[step, 0.25], [numpy.nan, 100000]])


def check_jsonl(logs):
    table = read_jsonl(logs)
    check_table(table, STEPS)
    histogram = table["weights/conv1"].dropna().iloc[0]
    assert histogram == {"edges": [-1, -0.5, 0, 0.5, 1], "counts": [1, 1, 2, 3]}, histogram
    tables = table["test/confusion"].dropna()
    assert list(table.loc[tables.index, "step"]) == MARKED
    assert list(tables) == [{"labels": LABELS, "rows": [[step, 0.25], [None, 100000]]} for step in MARKED], tables


def accumulated(logs):
    return EventAccumulator(str(run_folder(logs)), size_guidance={"scalars": 0, "histograms": 0, "images": 0}).Reload()


def check_scalars(events, name, expected):
    scalars = events.Scalars(name)
    assert [each.step for each in scalars] == list(expected), name
    numpy.testing.assert_allclose([each.value for each in scalars], list(expected.values()), rtol=1e-7)


def check_tensorboard(logs):
    events = accumulated(logs)
    tags = events.Tags()
    assert sorted(tags["scalars"]) == ["test/accuracy", "train/learning_rate", "train/loss"], tags
    check_scalars(events, "train/loss", {step: 1 / step for step in range(1, STEPS + 1)})
    check_scalars(events, "test/accuracy", {step: step / 400 for step in MARKED})
    histograms = events.Histograms("weights/conv1")
    assert [each.step for each in histograms] == MARKED
    value = histograms[0].histogram_value
    assert (value.min, value.max, value.num, value.sum, value.sum_squares) == (-1, 1, 7, 0.75, 2.8125), value
    assert list(value.bucket_limit) == [-1, -0.5, 0, 0.5, 1] and list(value.bucket) == [0, 1, 1, 2, 3], value
    image = events.Images("bands")[0]
    assert (image.width, image.height) == (16, 16)
    assert image.encoded_image_string.startswith(b"\x89PNG\r\n\x1a\n")
    check_markdown(events)
    check_hyper_parameters(events)


class Cells(html.parser.HTMLParser):
    """Collects the texts of a page's table cells, row by row."""

    def __init__(self, page):
        super().__init__()
        self.rows = []
        self.inside = False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.inside = True
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self.inside &= tag not in ("th", "td")

    def handle_data(self, text):
        if self.inside:
            self.rows[-1][-1] += text


def check_markdown(events):
    """Checks what TensorBoard's page TEXT shows for a table."""
    texts = events.Tensors("test/confusion")
    assert [each.step for each in texts] == MARKED
    for step, text in zip(MARKED, texts):
        markdown, = tensor_util.make_ndarray(text.tensor_proto).tolist()
        page = plugin_util.markdown_to_safe_html(markdown)
        assert Cells(page).rows == [["test/confusion", *LABELS], [LABELS[0], str(step), "0.25"],
                                    [LABELS[1], "nan", "100000"]], page


def check_hyper_parameters(events):
    contents = events.PluginTagToContent("hparams")
    start = plugin_data_pb2.HParamsPluginData.FromString(contents["_hparams_/session_start_info"]).session_start_info
    found = {name: getattr(value, value.WhichOneof("kind")) for name, value in start.hparams.items()}
    assert found == PARAMETERS, found
    end = plugin_data_pb2.HParamsPluginData.FromString(contents["_hparams_/session_end_info"]).session_end_info
    assert end.status == 1 and end.end_time_secs >= start.start_time_secs, end


def wandb_records(logs):
    """Returns the records that wandb's own reader finds, by kind. An incomplete record at the end is left out, as
    `wandb sync` does."""
    from wandb.sdk.internal import datastore
    wandb._assert_is_internal_process = True
    file, = wandb_folder(logs).glob("run-*.wandb")
    store = datastore.DataStore()
    store.open_for_scan(str(file))
    records = []
    while True:
        try:
            data = store.scan_data()
        except AssertionError:
            assert store.in_last_block(), "only the end may be incomplete"
            break
        if data is None:
            break
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        records.append(record)
    assert [record.num for record in records] == list(range(1, len(records) + 1))
    return records


def values_of(items):
    """Returns the values by name. wandb's own client writes nested values as several items, with one key per
    level."""
    values = {}
    for item in items:
        *outer, last = item.nested_key or [item.key]
        into = values
        for key in outer:
            into = into.setdefault(key, {})
        into[last] = json.loads(item.value_json)
    return values


def rows_of(records):
    return [values_of(record.history.item) for record in records if record.WhichOneof("record_type") == "history"]


def summary_of(records):
    return {name: value for record in records for name, value in values_of(record.summary.update).items()}


def check_wandb(logs):
    records = wandb_records(logs)
    kinds = [record.WhichOneof("record_type") for record in records]
    assert kinds[:3] == ["header", "run", "config"] and kinds[-3:] == ["exit", "final", "footer"], kinds
    folder = wandb_folder(logs)
    run = records[1].run
    assert folder.name.endswith("-" + run.run_id) and run.project == "lockstep" and run.start_time.seconds > 1e9, run
    assert {item.key: json.loads(item.value_json) for item in records[2].config.update} == PARAMETERS
    rows = rows_of(records)
    assert [row["_step"] for row in rows] == list(range(1, STEPS + 1))
    assert [record.history.step.num for record in records if record.HasField("history")] == list(range(1, STEPS + 1))
    assert all(row["train/loss"] == 1 / row["_step"] and row["_runtime"] >= 0 for row in rows)
    last = rows[-1]
    assert last["test/accuracy"] == 0.75, last
    assert last["weights/conv1"] == {"_type": "histogram", "values": [1, 1, 2, 3], "bins": [-1, -0.5, 0, 0.5, 1]}
    image = last["bands"]
    assert image["_type"] == "image-file" and (folder / "files" / image["path"]).stat().st_size == image["size"]
    assert image["path"] in [each.path for record in records for each in record.files.files]
    summary = summary_of(records)
    assert summary == {"train/loss": 1 / STEPS, "train/learning_rate": 0.1, "test/accuracy": 0.75,
                       "test/confusion": last["test/confusion"]}, summary
    assert records[-3].exit.exit_code == 0
    check_wandb_table(folder, last["test/confusion"], [each.path for record in records for each in record.files.files])
    for command in ("sync", "beta sync"):
        check_wandb_sync(command, folder, rows, summary)


def records_of_own_client(logs):
    """Returns the records of a run that wandb's own client has finished. Its service may write the last ones after
    finish() has returned."""
    deadline = time.monotonic() + OWN_CLIENT_SECONDS
    while True:
        records = wandb_records(logs)
        if any(record.WhichOneof("record_type") == "exit" for record in records) or time.monotonic() > deadline:
            return records
        time.sleep(0.1)


def wandb_own_table(columns, data):
    """Writes a wandb.Table in an offline run. Returns the value in the row, and the file's contents."""
    with tempfile.TemporaryDirectory() as name:
        settings = wandb.Settings(console="off", silent=True)
        with wandb.init(mode="offline", dir=name, project="lockstep", settings=settings) as run:
            run.log({"test/confusion": wandb.Table(columns=columns, data=data)})
        logs = pathlib.Path(name)
        records = records_of_own_client(logs)
        value = rows_of(records)[-1]["test/confusion"]
        assert summary_of(records)["test/confusion"] == value, "the summary has the table, too"
        return value, json.loads((wandb_folder(logs) / "files" / value["path"]).read_text())


def check_wandb_table(folder, value, uploads):
    """Checks that the table is as wandb's own client writes it, except for the artifact that the client adds."""
    content = (folder / "files" / value["path"]).read_bytes()
    assert value["size"] == len(content) and value["sha256"] == hashlib.sha256(content).hexdigest(), value
    assert value["path"] in uploads, uploads
    file = json.loads(content)
    assert file == {"columns": ["test/confusion", *LABELS],
                    "data": [[LABELS[0], STEPS, 0.25], [LABELS[1], None, 100000]]}, file
    own_value, own_file = wandb_own_table(file["columns"], file["data"])
    assert own_file == file, own_file
    named = set(own_value) - {"artifact_path", "_latest_artifact_path"}
    assert set(value) == named, own_value
    same = named - {"path", "sha256", "size"}
    assert {name: value[name] for name in same} == {name: own_value[name] for name in same}, own_value
    assert pathlib.Path(value["path"]).parent == pathlib.Path(own_value["path"]).parent, own_value


def check_wandb_sync(command, folder, rows, summary):
    """Checks that the server receives all rows, the summary and the files of an uploaded run."""
    with tempfile.TemporaryDirectory() as name:
        copy = pathlib.Path(shutil.copytree(folder, pathlib.Path(name) / folder.name))  # sync marks the folder
        server = wandb_double.sync(command, copy)
    assert server.rows() == rows, f"{len(server.rows())} rows have arrived"
    assert {name: server.summary[name] for name in summary} == summary, server.summary
    assert server.exit_code == 0 and server.run["project"] == "lockstep", server.run
    config = json.loads(server.run["config"])
    assert {name: config[name]["value"] for name in PARAMETERS} == PARAMETERS, config
    for key, media in ((key, row[key]) for row in rows for key in ("bands", "test/confusion") if key in row):
        assert server.files[media["path"]] == (folder / "files" / media["path"]).read_bytes(), key
    print(f"wandb {command}: the server has {len(rows)} rows and {len(server.files)} files")


def check_killed(program):
    """Checks that each reader finds everything that the killed writer had reported as logged."""
    with tempfile.TemporaryDirectory() as name:
        logs = pathlib.Path(name)
        writer = subprocess.Popen([program, logs, "endless", *FILE_LOGGERS], stdout=subprocess.PIPE, text=True)
        logged = 0
        while logged < 250:
            logged = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        logged = max(logged, *map(int, writer.stdout.read().split("\n")[:-1] or [0]))
        assert writer.wait() == -signal.SIGKILL
        for table in (read_csv(logs), read_jsonl(logs)):
            assert table["step"].max() >= logged
        assert accumulated(logs).Scalars("train/loss")[-1].step >= logged
        records = wandb_records(logs)
        assert rows_of(records)[-1]["_step"] >= logged - 1, "the last row waits for more values"
        assert not any(record.HasField("exit") for record in records)
        for command, exit_code in (("sync", 0), ("beta sync", 1)):  # as documented in docs/logging.md
            server = wandb_double.sync(command, wandb_folder(logs))
            assert server.rows() == rows_of(records) and server.exit_code == exit_code, (command, server.exit_code)
        print(f"killed after step {logged}: all readers find it")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        logs = pathlib.Path(name)
        subprocess.run([program, logs, "once", *FILE_LOGGERS], check=True)
        for check in (check_csv, check_jsonl, check_tensorboard, check_wandb):
            check(logs)
            print(f"{check.__name__}: as logged")
    check_killed(program)
    print(f"tensorboard {tensorboard.__version__}, pandas {pandas.__version__}, wandb {wandb.__version__}")


if __name__ == "__main__":
    main()
