#!/usr/bin/env python3
"""Runs every GPU test and then every GPU benchmark, and writes a report: what `make gpu` does.

Usage: run.py [--kit build/gpu-kit] [--output gpu-report] [--python PYTHON] [--seconds 590] [--only tests,benchmarks]
       or, from inside a kit, where nothing can be built: python3 gpu-kit/tools/gpu/run.py

Needs a Python with the torch for CUDA that the kit was made with, and nothing else. LOCKSTEP_DATA names the folder with
mnist/ and cifar10/; without it the images are random. The tests and then the benchmarks share --seconds; each has a limit,
the most important come first, and a failure stops nothing. Without a GPU the tests skip, of the benchmarks only those of
the processors run, shortened, and all ends within two minutes.

Writes report.json, report.md and log.txt to --output. Ends with 1 if a test failed or a benchmark did, else with 0.
"""
import argparse
import datetime
import json
import pathlib
import shutil
import sys

import benchmarks
import gpu_tests
import machine
import measure
import processes
import report
from kit import ROOT, Kit, KitProblem, find_python

TEST_LIMIT_SECONDS = 60   # of one test
TESTS_SHARE = 0.4         # of all seconds, at most
END_SECONDS = 6           # for ending programs and writing the report
WITH_GPU, WITHOUT_GPU = 590, 112


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    inside = (ROOT / "kit.json").exists()
    parser.add_argument("--kit", type=pathlib.Path, default=ROOT if inside else ROOT / "build/gpu-kit")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("gpu-report"))
    parser.add_argument("--python", help="with torch for CUDA (default: the first that has it)")
    parser.add_argument("--seconds", type=float, help=f"of all (default: {WITH_GPU}, without a GPU {WITHOUT_GPU})")
    parser.add_argument("--only", default="tests,benchmarks")
    options = parser.parse_args()
    options.only = options.only.split(",")
    if not set(options.only) <= {"tests", "benchmarks"}:
        parser.error("--only is tests, benchmarks or both with a comma")
    return options


def find_kit(options, output):
    if not (options.kit / "kit.json").exists():
        raise KitProblem(f"{options.kit} holds no kit.json; `make gpu-kit` makes a kit where one can be built")
    python, torch = find_python(options.python)
    found = Kit(options.kit.resolve(), python, torch, output)
    found.check_version()
    return found


def run_tests(kit, seconds, log):
    programs = [kit.program(name) for name in kit.description["tests"]]
    return gpu_tests.run_all(programs, seconds, TEST_LIMIT_SECONDS, log, kit.environment)


def write(output, text, tests, result):
    (output / "report.json").write_text(json.dumps({**result, "tests": [test._asdict() for test in tests]}, indent=2) + "\n")
    (output / "report.md").write_text(text)


def main():
    begun, options = processes.Budget(0), parse_arguments()
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    log = output / "log.txt"
    log.write_text("")
    try:
        kit = find_kit(options, output)
    except KitProblem as problem:
        raise SystemExit(f"error: {problem}") from None
    seconds = options.seconds or (WITH_GPU if kit.gpus else WITHOUT_GPU)
    budget = processes.Budget(seconds - begun.used() - END_SECONDS)
    result = {"begun": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "machine": machine.describe(), "torch": kit.torch, "kit": kit.description, "benchmarks": []}
    print(f"{len(kit.gpus)} GPU{'s' * (len(kit.gpus) != 1)}, {kit.cores} cores, torch {kit.torch['torch']}; "
          f"at most {seconds:.0f} s", flush=True)
    tests = run_tests(kit, TESTS_SHARE * budget.left(), log) if "tests" in options.only else []
    if "benchmarks" in options.only:
        result["benchmarks"] = measure.measure_all(benchmarks.all_benchmarks(benchmarks.Runner(kit, log)), budget)
    shutil.rmtree(output / "data", ignore_errors=True)
    result |= {"made_up_data": kit.made_up_data, "seconds": begun.used()}
    write(output, report.markdown(result, tests), tests, result)
    failed = [test for test in tests if test.result in gpu_tests.BAD]
    failed += [each for each in result["benchmarks"] if each["status"] in ("failed", "incomplete")]
    print(f"tests: {gpu_tests.summary(tests)}; {result['seconds']:.0f} s; {output}/report.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
