#!/usr/bin/env python3
"""Runs every GPU test, then every GPU benchmark, and writes a report: this is `make gpu`.

Usage: run.py [--kit build/gpu-kit] [--output gpu-report] [--python PYTHON] [--seconds 590] [--only tests,benchmarks]
              [--match PATTERN]
       or, from inside a kit, where nothing can be built: python3 gpu-kit/tools/gpu/run.py

Needs only a Python with the torch for CUDA for which the kit was made. LOCKSTEP_DATA names the folder with mnist/ and
cifar10/; without it the images are random. If the kit was made from a commit other than the checkout's, a warning
says so. The tests and then the benchmarks share --seconds. Each of them has a limit, the most important come first,
beginning with the tests of several ranks, and a failure does not stop the others. Without a GPU the tests are skipped,
all for one reason, only the benchmarks of the processors run, in a short form, and everything ends within two minutes.

Writes report.json, report.md and log.txt to --output, and updates the report after each test program and each
benchmark, so that a run that ends early, by SIGTERM or Ctrl-C, leaves a report on what has run. An earlier report there
is replaced once a kit and a Python have been found. Exits with 1 if a test or a benchmark failed, with 143 after SIGTERM
and 130 after Ctrl-C, otherwise with 0.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import sys

import benchmarks
import gpu_tests
import machine
import measure
import processes
import report
from kit import ROOT, Kit, KitProblem, commit_of, find_python

TEST_LIMIT_SECONDS = 60   # per test
TESTS_SHARE = 0.5         # the tests' largest share of all seconds, unless only they run
END_SECONDS = 6           # reserved for ending programs and writing the report
WITH_GPU, WITHOUT_GPU = 590, 112
LEAST_SECONDS = 20
NEEDS_GPU = re.compile(r"needs (a|one|two|three|four|\d+) GPU")  # why tests are skipped


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    inside = (ROOT / "kit.json").exists()
    parser.add_argument("--kit", type=pathlib.Path, default=ROOT if inside else ROOT / "build/gpu-kit",
                        help="the folder that `make gpu-kit` makes (default: this one, or build/gpu-kit of the checkout)")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("gpu-report"),
                        help="the folder for the report (default: gpu-report in the current folder)")
    parser.add_argument("--python", help="Python with a torch for CUDA (default: the first that is found)")
    parser.add_argument("--seconds", type=float,
                        help=f"limit for the whole run (default: {WITH_GPU}, without a GPU {WITHOUT_GPU})")
    parser.add_argument("--only", default="tests,benchmarks",
                        help="what to run: tests, benchmarks, or both, separated by a comma (the default)")
    parser.add_argument("--match", default="", metavar="PATTERN",
                        help="run only benchmarks whose name contains a match of this regular expression, such as 'cifar10|mnist'")
    options = parser.parse_args()
    options.only = options.only.split(",")
    if not set(options.only) <= {"tests", "benchmarks"}:
        parser.error("--only must be tests, benchmarks, or both, separated by a comma")
    try:
        options.match = re.compile(options.match)
    except re.error as error:
        parser.error(f"--match {options.match!r} is not a regular expression: {error}")
    if options.seconds is not None and not options.seconds >= LEAST_SECONDS:
        parser.error(f"--seconds must be at least {LEAST_SECONDS}, got {options.seconds:g}")
    return options


def find_kit(options, output):
    if not (options.kit / "kit.json").exists():
        raise KitProblem(f"{options.kit} holds no kit.json; `make gpu-kit` makes a kit where one can be built")
    python, torch = find_python(options.python)
    if output.exists() and not output.is_dir():
        raise KitProblem(f"--output {output} is not a folder")
    output.mkdir(parents=True, exist_ok=True)
    found = Kit(options.kit.resolve(), python, torch, output)
    found.check_version()
    return found


def say_what_runs(kit, seconds):
    """Prints the machine, the kit's commit beside the checkout's, and warnings about what the user may not expect."""
    print(f"{len(kit.gpus)} GPU{'s' * (len(kit.gpus) != 1)}, {kit.cores} cores, torch {kit.torch['torch']}; "
          f"at most {seconds:.0f} s")
    if not kit.gpus:
        print(f"{benchmarks.NO_GPU}: the tests and benchmarks that need one are skipped")
    made_from, checkout = kit.description["commit"], commit_of(ROOT)
    print(f"kit: commit {made_from}" + (f"; checkout: commit {checkout}" if checkout else ""))
    if checkout and made_from != checkout:
        print(f"warning: the kit was made from commit {made_from}, not from this checkout's {checkout}; `make gpu-kit` makes "
              "a new one")
    data = os.environ.get("LOCKSTEP_DATA")
    if data and not os.path.isdir(data):
        print(f"warning: LOCKSTEP_DATA is {data}, which is not a folder; set it to the folder that holds mnist/ and cifar10/")
    sys.stdout.flush()


def end_at_signals():
    """Makes SIGTERM and Ctrl-C raise an exception like an error, so that no started program survives."""
    def end(number, _):
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, end)


def with_one_reason(kit, tests):
    """Without a GPU, gives the tests that need one the reason of the benchmarks in place of their own."""
    needs_it = lambda test: not kit.gpus and test.result == "skipped" and NEEDS_GPU.match(test.message)  # noqa: E731
    return [test._replace(message=benchmarks.NO_GPU) if needs_it(test) else test for test in tests]


def run_tests(kit, seconds, log, tell):
    programs = [kit.program(name) for name in kit.description["tests"]]
    environment = {**kit.environment, **({} if kit.has_dali else {"LOCKSTEP_TEST_WITHOUT_DALI": "1"})}
    tests = gpu_tests.run_all(programs, seconds, TEST_LIMIT_SECONDS, log, environment,
                              lambda so_far: tell(with_one_reason(kit, so_far)))
    return with_one_reason(kit, tests)


def write_whole(file, text):
    """Replaces the file atomically: readers see either the previous or the new text."""
    new = file.with_name(file.name + ".new")
    new.write_text(text)
    os.replace(new, file)


def write(output, result, tests):
    tests_too = {**result, "tests": [test._asdict() for test in tests]}
    write_whole(output / "report.json", json.dumps(tests_too, indent=2) + "\n")
    write_whole(output / "report.md", report.markdown(result, tests))


class Progress:
    """Reports on what has run so far."""

    def __init__(self, output, kit, begun):
        self.output, self.kit, self.begun, self.tests = output, kit, begun, []
        self.result = {"begun": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                       "machine": machine.describe(), "torch": kit.torch, "kit": kit.description, "benchmarks": []}

    def write(self, is_complete=False):
        self.result |= {"made_up_data": self.kit.made_up_data, "seconds": self.begun.used(), "complete": is_complete}
        write(self.output, self.result, self.tests)

    def add_tests(self, tests):
        self.tests = tests
        self.write()

    def add_benchmarks(self, reports):
        self.result["benchmarks"] = reports
        self.write()


def chosen(kit, pattern, log):
    """Returns the benchmarks whose names match."""
    known = benchmarks.all_benchmarks(benchmarks.Runner(kit, log))
    found = [each for each in known if pattern.search(each.name)]
    if not found:
        raise SystemExit(f"error: --match {pattern.pattern!r} matches none of the benchmarks: "
                         f"{', '.join(each.name for each in known)}")
    return found


def run_all(kit, options, budget, log, progress):
    to_measure = chosen(kit, options.match, log) if "benchmarks" in options.only else []  # a misspelt name ends here
    if "tests" in options.only:
        share = TESTS_SHARE if to_measure else 1
        progress.add_tests(run_tests(kit, share * budget.left(), log, progress.add_tests))
    measure.measure_all(to_measure, budget, progress.add_benchmarks)


def main():
    begun, options = processes.Budget(0), parse_arguments()
    end_at_signals()
    output = options.output.resolve()
    log = output / "log.txt"
    try:
        kit = find_kit(options, output)
    except KitProblem as problem:
        raise SystemExit(f"error: {problem}") from None
    seconds = options.seconds or (WITH_GPU if kit.gpus else WITHOUT_GPU)
    budget = processes.Budget(seconds - begun.used() - END_SECONDS)
    say_what_runs(kit, seconds)
    log.write_text("")
    progress = Progress(output, kit, begun)
    progress.write()  # in place of an earlier run's report
    try:
        run_all(kit, options, budget, log, progress)
    except SystemExit:
        print(f"ended; the report on what has run is {output}/report.md", flush=True)
        raise
    finally:
        shutil.rmtree(output / "data", ignore_errors=True)
    progress.write(is_complete=True)
    result, tests = progress.result, progress.tests
    failed = [test for test in tests if test.result in gpu_tests.BAD]
    failed += [each for each in result["benchmarks"] if each["status"] in ("failed", "incomplete")]
    print(f"tests: {gpu_tests.summary(tests)}; {result['seconds']:.0f} s; {output}/report.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
