"""Starts programs for the benchmarks, and reads the options that several benchmarks of programs have."""
import argparse
import pathlib
import subprocess

from provenance import ROOT


def parser_of(page, **numbers):
    """Returns a parser of --build and of an option for each number, whose default it is; `page` is the help."""
    parser = argparse.ArgumentParser(description=page, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"default {default:g}")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    return parser


def add_limit(parser, seconds, limited):
    """Adds --limit, the seconds after which run() ends what is `limited`."""
    parser.add_argument("--limit", type=float, default=seconds, help=f"seconds of {limited}, default {seconds:g}")


def run(command, seconds):
    """Returns what the command prints."""
    words = [str(word) for word in command]
    try:
        result = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"error: did not end in {seconds:g} s (--limit): {' '.join(words)}") from None
    if result.returncode:
        raise SystemExit(f"error: ended with {result.returncode}: {' '.join(words)}: {result.stderr.strip()[-500:]}")
    return result.stdout
