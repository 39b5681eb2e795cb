"""Python's TensorBoard, pandas and wandb read what our loggers wrote, also after the writer was killed.

Usage: log_oracle.py WRITE_LOGS      (exit code 77: a package is missing, and its name)
"""
import json
import pathlib
import signal
import subprocess
import sys
import tempfile

try:
    import numpy
    import pandas
    import tensorboard  # noqa: F401
    import wandb
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2
    from wandb.proto import wandb_internal_pb2
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

STEPS = 300
MARKED = [100, 200, 300]  # steps with an accuracy, a histogram and an image
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


def check_jsonl(logs):
    table = read_jsonl(logs)
    check_table(table, STEPS)
    histogram = table["weights/conv1"].dropna().iloc[0]
    assert histogram == {"edges": [-1, -0.5, 0, 0.5, 1], "counts": [1, 1, 2, 3]}, histogram


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
    check_hyper_parameters(events)


def check_hyper_parameters(events):
    contents = events.PluginTagToContent("hparams")
    start = plugin_data_pb2.HParamsPluginData.FromString(contents["_hparams_/session_start_info"]).session_start_info
    found = {name: getattr(value, value.WhichOneof("kind")) for name, value in start.hparams.items()}
    assert found == PARAMETERS, found
    end = plugin_data_pb2.HParamsPluginData.FromString(contents["_hparams_/session_end_info"]).session_end_info
    assert end.status == 1 and end.end_time_secs >= start.start_time_secs, end


def wandb_records(logs):
    """The records that wandb's own reader finds, by kind; those of an incomplete end are left out, as by `wandb sync`."""
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


def rows_of(records):
    return [{item.key: json.loads(item.value_json) for item in record.history.item}
            for record in records if record.WhichOneof("record_type") == "history"]


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
    summary = {}
    for record in records:
        summary.update({item.key: json.loads(item.value_json) for item in record.summary.update})
    assert summary == {"train/loss": 1 / STEPS, "train/learning_rate": 0.1, "test/accuracy": 0.75}, summary
    assert records[-3].exit.exit_code == 0


def check_killed(program):
    """All that the writer had said to have logged is there, by each reader."""
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
