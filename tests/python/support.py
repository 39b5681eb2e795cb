"""Shared by the tests of the Python package: runs the ranks of a test as forked processes.

Usage: NAME_test.py FOLDER_OF_THE_PACKAGE [unittest's arguments]
"""
import contextlib
import datetime
import multiprocessing
import os
import pathlib
import shutil
import sys
import tempfile
import time
import traceback
import unittest

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]):
    sys.path.insert(0, sys.argv.pop(1))
import lockstep_c10d  # noqa: F401 (registers the backend)

# Set before any tensor is computed on: OpenMP's threads do not survive a fork.
torch.set_num_threads(1)


def _rank_main(function, rank, world, meeting, backend, timeout, arguments, pipe):
    try:
        if backend:
            dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=world,
                                    timeout=datetime.timedelta(seconds=timeout))
        result = function(rank, world, *arguments)
        if backend and dist.is_initialized():
            dist.destroy_process_group()
        pipe.send((True, result))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
    finally:
        pipe.close()


class Ranks(unittest.TestCase):
    """Checks after each test that nothing stays in /dev/shm."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-python-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        # The folder for flight recorder dumps. Tests that run at the same time must not share it.
        os.environ["LOCKSTEP_FLIGHT_RECORDER"] = str(self.folder / "flight")
        self.shared_before = set(os.listdir("/dev/shm"))

    def tearDown(self):
        left = {name for name in set(os.listdir("/dev/shm")) - self.shared_before if "lockstep" in name}
        self.assertEqual(left, set(), "left in /dev/shm")

    def start(self, function, world, *arguments, backend="lockstep", timeout=30):
        """Forks the ranks and returns [(process, pipe)]. Without a backend, `function` must make the group itself."""
        handle, name = tempfile.mkstemp(dir=self.folder)
        os.close(handle)
        os.unlink(name)  # the store creates the file itself
        context = multiprocessing.get_context("fork")
        ranks = []
        for rank in range(world):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_rank_main, args=(function, rank, world, f"file://{name}", backend,
                                                               timeout, arguments, theirs))
            process.start()
            theirs.close()
            ranks.append((process, ours))
        self.addCleanup(self._end, ranks)
        return ranks

    def result(self, rank, seconds=60):
        """Returns what `function` returned in the process. If it raised, raises an AssertionError with its traceback."""
        process, pipe = rank
        if not pipe.poll(seconds):
            raise AssertionError(f"a rank has not ended after {seconds} s")
        try:
            ok, value = pipe.recv()
        except EOFError:
            process.join(10)
            raise AssertionError(f"a rank ended without a result, exit code {process.exitcode}") from None
        if not ok:
            raise AssertionError(f"a rank failed:\n{value}")
        return value

    def run_ranks(self, function, world, *arguments, **options):
        """Runs `function(rank, world, *arguments)` on all ranks and returns the list of their results."""
        ranks = self.start(function, world, *arguments, **options)
        results = [self.result(rank) for rank in ranks]
        for process, _ in ranks:
            process.join(20)
            self.assertEqual(process.exitcode, 0)
        return results

    @staticmethod
    def _end(ranks):
        for process, pipe in ranks:
            if process.is_alive():
                process.kill()
            process.join()
            pipe.close()


@contextlib.contextmanager
def raises(kind, *texts):
    """Expects an error of this type with a one-line message that contains all texts. For ranks, which have no TestCase."""
    try:
        yield
    except kind as error:
        line = str(error)
        assert "\n" not in line.strip(), f"more than one line: {line}"
        for text in texts:
            assert text in line, f"{text!r} is not in {line!r}"
    else:
        raise AssertionError(f"no {kind.__name__}, expected one with {texts}")


__all__ = ["Ranks", "contextlib", "datetime", "dist", "os", "pathlib", "raises", "sys", "time", "torch", "unittest"]
