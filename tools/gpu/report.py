"""The report of `make gpu` as Markdown."""
import collections

import gpu_tests


def versions(report):
    machine, torch, kit = report["machine"], report["torch"], report["kit"]
    gpus = ", ".join(f"{gpu['name']} ({gpu['memory_bytes'] / 2**30:.0f} GiB, compute capability {gpu['capability']})"
                     for gpu in torch["gpus"]) or "none"
    return [("GPUs", gpus), ("driver", machine["driver"] or "none"),
            ("processor", f"{machine['cores']} cores of {machine['processor']}, {machine['sockets']} socket"
             + "s" * (machine["sockets"] > 1)),
            ("memory", f"{machine['memory_gib']} GiB"), ("system", machine["system"]),
            ("torch", f"{torch['torch']}, CUDA {torch['cuda']}, cuDNN {torch['cudnn']}, NCCL {torch['nccl']}, "
             f"Python {machine['python']}"),
            ("Lockstep", f"commit {kit['commit']}"), ("begun", report["begun"]), ("took", f"{report['seconds']:.0f} s")]


def number(value):
    if value is None:
        return ""
    if not isinstance(value, (int, float)):
        return str(value)
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def table(heading, rows, text_columns=1):
    lines = ["| " + " | ".join(heading) + " |", "|---" * text_columns + "|---:" * (len(heading) - text_columns) + "|"]
    return lines + ["| " + " | ".join(map(cell, row)) + " |" for row in rows]


def benchmark_lines(benchmark):
    lines = [f"### {benchmark['title']}", ""]
    if benchmark["status"] == "skipped":
        return [*lines, f"Skipped: {benchmark['reason']}.", ""]
    rows = benchmark["rows"]
    figures = list(dict.fromkeys(name for row in rows for name in row["figures"]))
    has_parts = any(row["part"] for row in rows)
    if rows:
        rows = sorted(rows, key=lambda row: [each["part"] for each in rows].index(row["part"]))
        lines += table(["", *["of"] * has_parts, *figures],
                       [[row["label"], *[row["part"]] * has_parts, *(number(row["figures"].get(name)) for name in figures)]
                        for row in rows], 1 + has_parts)
        most = max(row["rounds"] for row in rows)
        lines += ["", f"{'Medians of ' + str(most) + ' rounds in turn' if most > 1 else 'One round'}; "
                  f"{benchmark['seconds']:.0f} s.", ""]
    return lines + [f"- {problem}" for problem in benchmark["problems"]] + [""] * bool(benchmark["problems"])


def tests_lines(tests):
    lines = ["## Tests", "", gpu_tests.summary(tests) + ".", ""]
    bad = [test for test in tests if test.result in gpu_tests.BAD]
    if bad:
        lines += [*table(["test", "result", "message"],
                         [[f"{test.program} {test.name}", test.result, test.message] for test in bad], 3), ""]
    reasons = collections.Counter(test.message for test in tests if test.result == "skipped")
    return lines + [f"- skipped {count}: {reason}" for reason, count in reasons.most_common()] + [""] * bool(reasons)


def markdown(report, tests):
    lines = ["# GPU tests and benchmarks on this machine", ""]
    if not report.get("complete", True):
        lines += ["The run had not ended when this was written. The report covers what had run by then.", ""]
    lines += [*table(["", ""], versions(report), 2), "", *tests_lines(tests), "## Benchmarks", ""]
    if report["made_up_data"]:
        lines += [f"The images of {' and '.join(report['made_up_data'])} are random: LOCKSTEP_DATA named no folder with the "
                  "real ones. The times do not depend on the images.", ""]
    for benchmark in report["benchmarks"]:
        lines += benchmark_lines(benchmark)
    return "\n".join(lines).rstrip() + "\n"
