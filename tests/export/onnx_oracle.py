"""Checks exported models with onnx.checker, and compares their outputs in onnxruntime with LibTorch's.

Usage: onnx_oracle.py EXPORT_MODELS operators|modules|nets|large|types [--opsets OPSET,...]
                      [--page FILE | --check-page FILE] [--headers FOLDER]

EXPORT_MODELS is the program of export_models.cpp. Each model runs with batches of 1, 2 and 7. Floats must agree
within the case's tolerance, relative to each element (or to the largest, for cases that add terms that may cancel out;
or to the case's negligible size, if that is larger), and everything else exactly. For a net's outputs [batch,
classes], the largest class must be the same. The export of ResNet-50 has a limit of processor time. The large model
must have external data beyond 32-bit offsets. With "types", the operators are exported for each type of elements: each
of these models must be right, or be refused with the name of the operator; the numbers of both are printed. --page
writes the table of operators or of modules into FILE, between the marks "<!-- operators:begin -->" and
"<!-- operators:end -->"; --check-page fails if the table there names other operators or opsets, or other modules or
refusals. With --headers, LibTorch's headers, the table must have every module of torch::nn. Fails if onnx or
onnxruntime is missing; exits with 77 if the memory for the large model is.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

OPSETS = (17, 18, 19, 20)
# The export of ResNet-50 has images of 224x224 and a dynamic batch. Its target of 3 s is checked by
# benchmarks/onnx_table.py; a CI machine may take several times longer than the machine of that table.
MOST_PROCESSOR_SECONDS = {"resnet50_from_one_image": 30}
LARGE_NEEDS_BYTES = 12e9  # LibTorch's or onnxruntime's weights, and the file in the page cache
HEADS = {
    "operators": "| operator | opsets | largest error | dynamic batch |\n|---|---|---|---|\n",
    "modules": "| module | options | opsets, or why it is refused |\n|---|---|---|\n"}


def read_safetensors(path, numpy):
    """Returns ({name: array}, metadata)."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    types = {"F32": numpy.float32, "F64": numpy.float64, "F16": numpy.float16, "I64": numpy.int64,
             "I32": numpy.int32, "I16": numpy.int16, "I8": numpy.int8, "U8": numpy.uint8, "BOOL": numpy.bool_}
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        tensors[name] = numpy.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


def numbered(tensors, prefix):
    names = [name for name in tensors if name.startswith(prefix)]
    return [tensors[name] for name in sorted(names, key=lambda name: int(name.rsplit(".", 1)[1]))]


def difference(numpy, got, expected, metadata):
    """The largest difference of an element relative to its size. Only floats may differ at all."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise AssertionError(f"got {got.dtype} {list(got.shape)}, expected {expected.dtype} {list(expected.shape)}")
    if not numpy.issubdtype(expected.dtype, numpy.floating):
        if not numpy.array_equal(got, expected):
            raise AssertionError(f"{int((got != expected).sum())} of {expected.size} values differ")
        return 0.0
    if metadata["half"] == "yes":
        # Beyond its range, float16 has infinity. Operators that the export keeps in float32 have the number.
        beyond = (numpy.abs(expected) > numpy.finfo(numpy.float16).max) & (got == numpy.copysign(numpy.inf, expected))
        got = numpy.where(beyond, expected, got)
    finite = numpy.isfinite(expected)
    if not numpy.array_equal(got[~finite], expected[~finite], equal_nan=True):
        raise AssertionError("infinities or NaNs differ")
    zero = expected == 0
    if metadata["signed_zeros"] == "yes" and not numpy.array_equal(numpy.signbit(got[zero]),
                                                                   numpy.signbit(expected[zero])):
        raise AssertionError("signs of zeros differ")
    tiny = numpy.finfo(expected.dtype).tiny  # smaller numbers have fewer digits
    got, expected = got[finite].astype(numpy.float64), expected[finite].astype(numpy.float64)
    if not expected.size:
        return 0.0
    size = numpy.abs(expected)
    if metadata["relative_to"] == "largest":
        size = size.max()
    wrong = numpy.abs(got - expected) / numpy.maximum(size, max(tiny, float(metadata["negligible"])))
    return float(wrong.max())


class Oracle:
    def __init__(self, folder, onnx, runtime, numpy):
        self.folder, self.onnx, self.runtime, self.numpy = folder, onnx, runtime, numpy
        self.failures, self.right = [], []
        self.models = 0
        self.rows = collections.defaultdict(lambda: {"opsets": set(), "error": 0.0, "dynamic": True, "refusals": set()})

    def check_model(self, path, tensors, metadata):
        self.onnx.checker.check_model(str(path), full_check=True)
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        session = self.runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        worst = 0.0
        for prefix in sorted({name.split(".")[0] for name in tensors}):
            inputs = numbered(tensors, prefix + ".input.")
            feed = {each.name: value for each, value in zip(session.get_inputs(), inputs)}
            outputs = session.run(None, feed)
            expected = numbered(tensors, prefix + ".output.")
            if len(outputs) != len(expected):
                raise AssertionError(f"{len(outputs)} outputs, expected {len(expected)}")
            for i, (got, wanted) in enumerate(zip(outputs, expected)):
                try:
                    error = difference(self.numpy, got, wanted, metadata)
                except AssertionError as wrong:
                    raise AssertionError(f"{prefix}, output {i}: {wrong}") from None
                if not error <= float(metadata["tolerance"]):
                    raise AssertionError(f"{prefix}, output {i}: relative error {error:.2g}")
                is_net = not metadata["operator"]
                if is_net and wanted.ndim == 2 and not (got.argmax(1) == wanted.argmax(1)).all():
                    raise AssertionError(f"{prefix}, output {i}: another largest class")
                worst = max(worst, error)
        return worst

    def check_seconds(self, lines):
        """Checks the processor seconds in `lines`, the output of EXPORT_MODELS."""
        seconds = {name.split(".")[0]: float(processor) for name, _, processor in map(str.split, lines)}
        for net, limit in MOST_PROCESSOR_SECONDS.items():
            if net not in seconds:
                self.failures.append(f"{net}: was not exported")
                continue
            print(f"{net}: exported in {seconds[net]:.2f} s of processor time")
            if seconds[net] > limit:
                self.failures.append(f"{net}: its export took {seconds[net]:.2f} s of processor time, at most {limit}")

    def check_offsets(self, path):
        """Checks that some values lie beyond 32-bit offsets."""
        model = self.onnx.load(str(path), load_external_data=False)
        offsets = [int(entry.value) for tensor in model.graph.initializer for entry in tensor.external_data
                   if entry.key == "offset"]
        if max(offsets, default=0) < 2**32:
            self.failures.append(f"{path.name}: no initializer begins beyond 32 bits, but at {offsets}")

    def count_types(self, exported):
        """Prints the numbers of right, refused and wrong models for each type and opset."""
        cells = collections.defaultdict(lambda: {"right": 0, "refused": 0, "wrong": 0})
        for name in self.right:
            cells[tuple(name.split(".")[1:3])]["right"] += 1
        for failure in self.failures:
            kind, opset = (failure.split(":")[0].split(".") + ["?", "?"])[1:3]
            cells[kind, opset]["wrong"] += 1
        for line in exported.splitlines():
            if not line.startswith("refused "):
                continue
            name, message = line.removeprefix("refused ").split(": ", 1)
            cells[tuple(name.split(".")[1:3])]["refused"] += 1
            if not message.startswith("export_onnx: "):
                self.failures.append(f"{name}: refused without a reason: {message}")
        total = collections.Counter()
        for (kind, opset), counts in sorted(cells.items()):
            total.update(counts)
            print(f"{kind} {opset}: {counts['right']} right, {counts['refused']} refused, {counts['wrong']} wrong")
        print(f"all: {total['right']} right, {total['refused']} refused, {total['wrong']} wrong")

    def check_case(self, path):
        tensors, metadata = read_safetensors(path, self.numpy)
        row = self.rows[row_name(metadata) or path.stem]
        row["dynamic"] = row["dynamic"] and metadata["dynamic_batch"] == "yes"
        if metadata["refusal"]:
            row["refusals"].add(short_reason(metadata["refusal"]))
        for opset in OPSETS:
            model = self.folder / f"{path.stem}.opset{opset}.onnx"
            if not model.exists():
                continue
            self.models += 1
            try:
                row["error"] = max(row["error"], self.check_model(model, tensors, metadata))
                row["opsets"].add(opset)
                self.right.append(model.name)
            except Exception as error:  # from the checker or the runtime; the other cases are still checked
                self.failures.append(f"{model.name}: {str(error).splitlines()[0][:300]}")


def row_name(metadata):
    """Operators have a row each; modules one for each set of options."""
    is_module = metadata["is_module"] == "yes"
    return f"{metadata['operator']}|{metadata['module_options']}" if is_module else metadata["operator"]


def position_of(path):
    """Modules are listed in the order of their cases, by the number at the end of the name."""
    number = re.search(r"_(\d+)$", path.stem)
    return (int(number.group(1)) if number else 0, path.stem)


def short_reason(refusal):
    """A refusal without the places in the module: an operator without a lowering is only named."""
    text = re.sub(r"export_onnx: (cannot export \d+ operators?: )?", "", refusal)
    text = re.sub(r" \[[^\]]*\]", "", text)
    return text.split("; ")[0].replace("|", "\\|")


def missing_modules(rows, headers):
    """The modules of LibTorch's headers that have no row."""
    names = set()
    for path in (headers / "torch/csrc/api/include/torch/nn/modules").rglob("*.h"):
        names.update(re.findall(r"^TORCH_MODULE\((\w+)\)", path.read_text(), re.MULTILINE))
    return sorted(names - {name.split("|")[0] for name in rows})


def available_bytes():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return 0


def opsets_of(row):
    return f"{min(row['opsets'])} to {max(row['opsets'])}" if row["opsets"] else "none"


def operator_lines(rows):
    lines = []
    for name, row in sorted(rows.items()):
        error = f"{row['error']:.0e}" if row["error"] else "0"
        lines.append(f"| `{name}` | {opsets_of(row)} | {error} | {'yes' if row['dynamic'] else 'no'} |")
    return lines


def module_lines(rows):
    lines = []
    for key, row in rows.items():
        name, options = key.split("|", 1)
        is_code = "(" in options
        options = f"`{options}`" if is_code else options
        reason = "refused: " + "; ".join(sorted(row["refusals"]))
        lines.append(f"| `{name}` | {options} | {reason if row['refusals'] else opsets_of(row)} |")
    return lines


LINES = {"operators": operator_lines, "modules": module_lines}


def table_in(page, what):
    """The text before the table of a page, the table, and the text behind it."""
    begin, end = f"<!-- {what}:begin -->\n", f"<!-- {what}:end -->"
    before, rest = page.split(begin, 1)
    table, behind = rest.split(end, 1)
    return before + begin, table, end + behind


def without_errors(lines):
    """Removes the operators' errors, which differ between processors."""
    rows = [[cell.strip() for cell in line.split("|")] for line in lines if line.startswith("| `")]
    return [cells[:3] + cells[4:] for cells in rows if len(cells) > 5] or rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("what", choices=["operators", "modules", "nets", "large", "types"])
    parser.add_argument("--opsets", default=",".join(map(str, OPSETS)))
    parser.add_argument("--page", type=pathlib.Path)
    parser.add_argument("--check-page", type=pathlib.Path)
    parser.add_argument("--headers", type=pathlib.Path)
    arguments = parser.parse_args()
    try:
        import numpy
        import onnx
        import onnxruntime
    except ImportError as error:
        sys.exit(f"{error}: run `tools/bootstrap.sh oracles`, which installs it")
    if arguments.what == "large" and available_bytes() < LARGE_NEEDS_BYTES:
        print(f"skipped: {available_bytes() / 1e9:.1f} GB of memory are free, and a model of 4.4 GB needs "
              f"{LARGE_NEEDS_BYTES / 1e9:.0f}")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        # OpenMP would spin while it waits for a second thread whose processor is busy, which is not work of the
        # export.
        exported = subprocess.run([arguments.program, folder, arguments.what, *arguments.opsets.split(",")], capture_output=True, text=True,
                                  env={**os.environ, "OMP_NUM_THREADS": "1"})
        oracle = Oracle(pathlib.Path(folder), onnx, onnxruntime, numpy)
        # Lines that are not LibTorch's warnings.
        oracle.failures += [line for line in exported.stderr.splitlines() if not line.startswith("[W")]
        for path in sorted(pathlib.Path(folder).glob("*.safetensors"), key=position_of):
            oracle.check_case(path)
        if arguments.what == "nets":
            oracle.check_seconds(exported.stdout.splitlines())
        if arguments.what == "types":
            oracle.count_types(exported.stdout)
        if arguments.what == "large":
            for path in pathlib.Path(folder).glob("*.onnx"):
                oracle.check_offsets(path)
    for failure in oracle.failures:
        print(failure)
    if arguments.headers:
        for name in missing_modules(oracle.rows, arguments.headers):
            oracle.failures.append(name)
            print(f"{name}: has no case in tests/export/modules/")
    lines = LINES[arguments.what](oracle.rows) if arguments.what in LINES else []
    if arguments.page:
        before, _, behind = table_in(arguments.page.read_text(), arguments.what)
        arguments.page.write_text(before + HEADS[arguments.what] + "\n".join(lines) + "\n" + behind)
    if arguments.check_page and without_errors(lines) != without_errors(
            table_in(arguments.check_page.read_text(), arguments.what)[1].splitlines()):
        oracle.failures.append("page")
        print(f"{arguments.check_page} is not up to date: write it with --page")
    worst = max((row["error"] for row in oracle.rows.values()), default=0)
    print(f"{len(oracle.rows)} {arguments.what}, {oracle.models} models, largest error {worst:.1e}, "
          f"{len(oracle.failures)} failures")
    sys.exit(1 if oracle.failures or exported.returncode or not oracle.models else 0)


if __name__ == "__main__":
    main()
