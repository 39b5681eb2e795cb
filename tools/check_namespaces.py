#!/usr/bin/env python3
"""Checks that internal names stay out of namespace lockstep, which belongs to users.

Usage: check_namespaces.py [ROOT]     (default: the project that this file belongs to)

A header that is not installed may only declare in a nested namespace, such as lockstep::comm in lockstep/comm/. In
namespace lockstep itself it may do no more than announce classes of installed headers (`class ProcessGroup;`). The room
core is the exception: all rooms speak its vocabulary (docs/adr/026-internal-names-in-namespaces-of-rooms.md).

An installed header uses lockstep::detail for internal names and opens no room's namespace: after `using namespace lockstep`
a program's own function train() and lockstep::train would be ambiguous.

Prints a line for each violation and exits with 1 if there is one.
"""
import pathlib
import re
import sys

sys.dont_write_bytecode = True
from namespace_lines import namespace_lines  # noqa: E402
from public_headers import public_headers  # noqa: E402

EXEMPT = "lockstep/core/"
DECLARATION = re.compile(r"^(?:\w|\[\[|::)")  # clang-format puts those at namespace scope at the beginning of a line
ALLOWED = re.compile(r"(?:class|struct|enum class) \w+(?: : [\w:]+)?;$|(?:class|struct) \w+::\w+|(?:public|private|protected):|[A-Z][A-Z_]+\(")


def violations(name, text):
    """Yields a line for each declaration of the header in namespace lockstep itself."""
    for spaces, number, line in namespace_lines(text):
        if spaces[-1:] == ("lockstep",) and DECLARATION.match(line) and not ALLOWED.match(line):
            yield f"{name}:{number}: this header is not installed, so that its names belong into namespace lockstep::{name.split('/')[1]}: {line}"


def opened_rooms(root, name, text):
    """Yields a line for each namespace of a room that the installed header opens."""
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"namespace lockstep::(\w+)", line)
        if match and (root / "lockstep" / match[1]).is_dir():
            yield f"{name}:{number}: this header is installed, so that its internal names belong into namespace lockstep::detail: {line}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    headers = {str(path.relative_to(root)) for path in (root / "lockstep").rglob("*.h")}
    internal = sorted(name for name in headers - public_headers(root) if not name.startswith(EXEMPT))
    if not internal:
        raise SystemExit(f"error: no internal headers under {root}")
    failed = [line for name in internal for line in violations(name, (root / name).read_text(encoding="utf-8"))]
    for name in sorted(public_headers(root)):
        failed += opened_rooms(root, name, (root / name).read_text(encoding="utf-8"))
    for line in failed:
        print(line)
    if failed:
        raise SystemExit(f"error: {len(failed)} internal name{'s' if len(failed) > 1 else ''} in the wrong namespace")
    print(f"namespaces: {len(internal)} internal headers keep out of namespace lockstep")


if __name__ == "__main__":
    main()
