#!/usr/bin/env python3
"""Runs ctest, and repeats failed tests of whole systems once.

Usage: run_tests.py FOLDER [--beside COMMAND LOG] [ctest's arguments]

With --beside, a shell command runs in the time that the tests leave the processors idle, and its output goes to the
file LOG. If it fails, its output is printed, and the run fails.

A test that starts processes, kills them or keeps deadlines can lose a race on a machine that is busy with something
else. If at most MOST_REPEATED tests failed, and each is of this kind, they run once more, one at a time. Crashes,
reports of a sanitizer and all other tests fail at once, because a rare failure there is still a defect. That includes
tests of what collectives and pipelines compute.

The summary at the end names each test that passed only in its second run. Exits with 0 if every test passed.
"""
import contextlib
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree

MOST_REPEATED = 5
WHOLE_SYSTEMS = re.compile(
    r"((address|thread):)?((launch|cli\w*|python|system|install)\.|report\.\w+_oracle$|(comm\w*\.(\w+/)?\w*("
    r"Absence|Connect|Death|Doorbell|Fail|Fault|Footprint|Idle|InitProcessGroup|Kill|Meeting|Network|Processes|"
    r"Rendezvous|RollCall|Stall|Stop|Store|Watchdog)|(parallel|pipeline|report|train)\w*\.(\w+/)?\w*("
    r"Death|Failure|MlflowLogger)|\w+\.(\w+/)?\w*(Deadline|Timing))\w*(\.|(/\d+)?$))")
REPORT = re.compile(r"(WARNING|ERROR|FATAL): \w*Sanitizer|: runtime error: |Segmentation fault|"
                    r"killed by signal (4|6|7|8|11)\b")
# A line of ctest's final list: a test, and how it failed. Any word that is not in WITHOUT_CRASH stands for a crash.
FAILURE = re.compile(r"\s+\d+ - (.+?) \((\w[^)]*)\)")
COUNT = re.compile(r"\d+% tests passed, (\d+) tests failed out of \d+")
WITHOUT_CRASH = {"Failed", "Timeout"}


PR_SET_PDEATHSIG = 1


def leave_group():
    """Called in the child that becomes ctest: gives it a process group of its own, and ends it if run_tests.py is killed.

    Some tests stop a process, and others start processes whose parent is in another process group, as the ranks of
    `lockstep run` are. In a background job whose shell has ended, the kernel would send SIGHUP to all processes of the
    job when a process of the second kind ends while one of the first kind is stopped (POSIX: an orphaned process group).
    A group whose leader's parent is in another group of the session is not orphaned.
    """
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def leave_group_and_yield():
    leave_group()
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


@contextlib.contextmanager
def signals_passed_on(group):
    """Passes signals that ask run_tests.py to end on to a process group, which they do not reach by themselves.

    Can be nested: then each of the groups gets the signal.
    """
    def pass_on(number, frame):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)
        if callable(before[number]) and before[number] is not signal.default_int_handler:
            before[number](number, frame)
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, pass_on)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(folder, arguments, report):
    """Returns ctest's status and the tests that failed: [(name, ctest's word for the failure, output)].

    The tests are None if ctest's list of them was not understood.
    """
    report.unlink(missing_ok=True)
    background = not os.isatty(0)  # in a terminal, Ctrl-C and Ctrl-Z shall reach the tests
    ctest = subprocess.Popen(["ctest", "--test-dir", str(folder), "--output-on-failure", "--no-tests=error",
                              "--output-junit", str(report), *arguments], stdout=subprocess.PIPE, text=True,
                             errors="replace", preexec_fn=leave_group if background else None)
    how = {}
    in_list, count = False, None
    with signals_passed_on(ctest.pid) if background else contextlib.nullcontext():
        for line in ctest.stdout:
            print(line, end="", flush=True)
            in_list = in_list or line.startswith("The following tests FAILED")
            if found := COUNT.match(line):
                count = int(found[1])
            if in_list and (failure := FAILURE.match(line.rstrip())):
                how[failure[1]] = failure[2]
        status = ctest.wait()
    if count != len(how):
        return status or 1, None
    output = {}
    if report.exists():
        for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
            output[case.get("name")] = case.findtext("system-out") or ""
    return status, [(name, word, output.get(name, "")) for name, word in how.items()]


def may_run_again(name, how, output):
    return WHOLE_SYSTEMS.match(name) is not None and how in WITHOUT_CRASH and REPORT.search(output) is None


def run_beside(command, log, tests):
    """Returns the status of tests(), which runs while the shell command does, or 1 if only the command failed."""
    with open(log, "w", encoding="utf-8") as output:
        process = subprocess.Popen(command, shell=True, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   preexec_fn=leave_group_and_yield)
    with signals_passed_on(process.pid):
        status = tests()
        failed = process.wait() != 0
    if failed:
        print(pathlib.Path(log).read_text(encoding="utf-8", errors="replace"))
        print(f"failed beside the tests: {command}")
    return status or int(failed)


def main(folder, *arguments):
    if arguments[:1] == ("--beside",):
        _, command, log, *arguments = arguments
        return run_beside(command, log, lambda: main(folder, *arguments))
    folder = pathlib.Path(folder).resolve()
    # Several tests share the processors. OpenMP's idle threads, which would otherwise spin for milliseconds, would
    # take a sixth of the time.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    status, failed = run(folder, arguments, folder / "tests.xml")
    if status == 0 or failed is None or not 0 < len(failed) <= MOST_REPEATED or not all(may_run_again(*each) for each in failed):
        return status
    names = [name for name, _, _ in failed]
    print(f"\nSecond run of {len(names)} of the tests that start processes or keep deadlines:\n", flush=True)
    exactly = "^(" + "|".join(re.escape(name) for name in names) + ")$"
    status, again = run(folder, ["-R", exactly], folder / "tests-again.xml")
    still = {name for name, _, _ in again} if again is not None else names
    print("\nOf two runs:")
    for name in names:
        print(f"  {name} " + ("failed in both runs" if name in still else "is flaky: it passed in the second run"))
    return status


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
