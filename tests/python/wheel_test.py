"""Runs PyTorch's own tests of torch.distributed from the installed wheel, with our backend in place of Gloo.

Usage: wheel_test.py FOLDER_OF_THE_PACKAGE WORLD_SIZE [--gloo] [--all] [-v] [TEST...]

Runs the tests that wheel_tests.txt names, every one on ranks that are forked for it. Fails if one does not pass that is
not in DIFFERENCES, and if one that is passes. --gloo runs them on Gloo instead, --all runs all that there are.
"""
import argparse
import os
import pathlib
import sys
import tempfile
import time
import types
import unittest

NAMES = pathlib.Path(__file__).with_name("wheel_tests.txt")
NEEDS_MORE_RANKS = "Skipped due to small world size."  # every other skip is a failure

# PyTorch's tests that fail on the lockstep backend and pass on Gloo, and why this is correct.
DIFFERENCES = {
    "test_ddp_logging_data_cpu": "reads what DDP's logger has noted, which is switched off here",
}


class Renamed:
    """A profiler's event, renamed as a test for Gloo expects it."""

    def __init__(self, event, name):
        self.event, self.name = event, name

    def __getattr__(self, attribute):
        return getattr(self.event, attribute)


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("package")
    parser.add_argument("world_size", type=int)
    parser.add_argument("--gloo", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("tests", nargs="*")
    return parser.parse_intermixed_args()


def put_in_gloos_place(package, distributed_test):
    """Makes PyTorch create our backend wherever it would create Gloo's. Profiler events then have our backend's name."""
    sys.path.insert(0, package)
    import lockstep_c10d
    from torch._C._distributed_c10d import Backend, Logger
    from torch.distributed import distributed_c10d

    class InGloosPlace(type):
        def __instancecheck__(cls, instance):
            return isinstance(instance, Backend)

        def __call__(cls, store, rank, size, timeout, **_):  # since 2.14 also enable_reconfigure
            options = distributed_c10d._DistributedBackendOptions()
            options.store, options.timeout = store, timeout
            options.group_rank, options.group_size = rank, size
            return lockstep_c10d._create(options, None)

    distributed_c10d.ProcessGroupGloo = InGloosPlace("ProcessGroupGloo", (), {})
    # PyTorch writes group names into the options.
    Backend.options = property(lambda self: types.SimpleNamespace())
    # DDP's logger assumes that a backend named Gloo is PyTorch's class, and crashes on any other.
    Logger.set_construction_data_and_log = lambda *_: None

    get_profiling_event = distributed_test.get_profiling_event

    def renamed(name, *rest, **options):
        ours = name.replace("gloo:", "lockstep:")
        return [Renamed(event, name) for event in get_profiling_event(ours, *rest, **options)]

    distributed_test.get_profiling_event = renamed


class Outcomes(unittest.TestResult):
    def __init__(self, verbose):
        super().__init__()
        self.verbose = verbose
        self.passed, self.failed, self.too_few = [], {}, []

    def startTest(self, test):
        super().startTest(test)
        self.begin = time.monotonic()

    def note(self, test, outcome):
        if self.verbose:
            print(f"{test._testMethodName}: {outcome} ({time.monotonic() - self.begin:.1f} s)", flush=True)

    def addSuccess(self, test):
        self.passed.append(test._testMethodName)
        self.note(test, "passed")

    def addSkip(self, test, reason):
        if reason == NEEDS_MORE_RANKS:
            self.too_few.append(test._testMethodName)
        else:
            self.failed[test._testMethodName] = f"skipped: {reason}"
        self.note(test, f"skipped, {reason}")

    def addError(self, test, error):
        self.failed[test._testMethodName] = self._exc_info_to_string(error, test)
        self.note(test, "failed")

    addFailure = addError


def main():
    arguments = parsed()
    sys.argv[1:] = []
    with tempfile.TemporaryDirectory(prefix="lockstep-wheel-") as folder:
        os.environ.update(BACKEND="gloo", WORLD_SIZE=str(arguments.world_size), TEMP_DIR=folder,
                          LOCKSTEP_FLIGHT_RECORDER=f"{folder}/flight")
        try:
            import torch
            from torch.testing._internal.distributed import distributed_test
        except ImportError as error:
            print(f"skipped: {error}")
            sys.exit(77)
        sys.exit(run(arguments, torch, distributed_test))


def run(arguments, torch, distributed_test):
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    if not arguments.gloo:
        put_in_gloos_place(arguments.package, distributed_test)

    class Tests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    listed = [line for line in NAMES.read_text().splitlines() if not line.startswith("#")]
    names = arguments.tests or (unittest.TestLoader().getTestCaseNames(Tests) if arguments.all else listed)
    outcomes = Outcomes(arguments.verbose)
    unittest.TestSuite(Tests(name) for name in names).run(outcomes)
    return report(arguments, outcomes)


def report(arguments, outcomes):
    expected = {} if arguments.gloo else DIFFERENCES
    unexpected = {name: text for name, text in outcomes.failed.items() if name not in expected}
    healed = [name for name in expected if name in outcomes.passed]
    for name, text in unexpected.items():
        print(f"--- {name}\n{text}")
    for name in healed:
        print(f"--- {name} passes: take it out of DIFFERENCES")
    print(f"{len(outcomes.passed)} passed, {len(outcomes.failed) - len(unexpected)} differ as listed, "
          f"{len(outcomes.too_few)} need more ranks, {len(unexpected) + len(healed)} unexpected")
    return 1 if unexpected or healed or not outcomes.passed else 0


if __name__ == "__main__":
    main()
