#!/usr/bin/env python3
"""Checks that internal names stay out of namespace lockstep, which belongs to users.

Usage: check_namespaces.py [ROOT]     (default: the project that this file belongs to)

A header that is not installed may only declare in a nested namespace, such as lockstep::comm in lockstep/comm/. In
namespace lockstep itself it may do no more than announce classes of installed headers (`class ProcessGroup;`). The room
core is the exception: all rooms speak its vocabulary (docs/adr/026-internal-names-in-namespaces-of-rooms.md).

The installed headers open the namespaces of INSTALLED, and no others: after `using namespace lockstep` a program's own
function train() and lockstep::train would be ambiguous.

Prints a line for each violation and exits with 1 if there is one.
"""
import pathlib
import re
import sys

sys.dont_write_bytecode = True
from namespace_lines import namespace_lines  # noqa: E402
from public_headers import public_headers  # noqa: E402

EXEMPT = "lockstep/core/"
# The namespaces that installed headers open. The first two have names for users, the others are internal.
INSTALLED = ["lockstep", "lockstep::pipeline",
             "lockstep::detail", "lockstep::detail::batch_structure", "lockstep::detail::data_parallel",
             "lockstep::pipeline::detail"]
DECLARATION = re.compile(r"^(?:\w|\[\[|::)")  # clang-format puts those at namespace scope at the beginning of a line
ALLOWED = re.compile(r"(?:class|struct|enum class) \w+(?: : [\w:]+)?;$|(?:class|struct) \w+::\w+|(?:public|private|protected):|[A-Z][A-Z_]+\(")


def violations(name, text):
    """Yields a line for each declaration of the header in namespace lockstep itself."""
    for spaces, number, line in namespace_lines(text):
        if spaces[-1:] == ("lockstep",) and DECLARATION.match(line) and not ALLOWED.match(line):
            yield f"{name}:{number}: this header is not installed, so that its names belong into namespace lockstep::{name.split('/')[1]}: {line}"


def opened(text):
    """Returns {namespace of Lockstep that the header opens: the first line in it}."""
    found = {}
    for spaces, number, _ in namespace_lines(text):
        if spaces and spaces[0].split("::")[0] == "lockstep" and "" not in spaces:
            found.setdefault("::".join(spaces), number)
    return found


def wrong_namespaces(root):
    """Yields a line for each namespace that an installed header opens and INSTALLED lacks, or the other way round."""
    unused = dict.fromkeys(INSTALLED)
    for name in sorted(public_headers(root)):
        for space, number in opened((root / name).read_text(encoding="utf-8")).items():
            unused.pop(space, None)
            if space not in INSTALLED:
                yield f"{name}:{number}: this header is installed, so that its internal names belong into namespace lockstep::detail, not {space}"
    for space in unused:
        yield f"no installed header opens namespace {space}: remove it from INSTALLED in tools/check_namespaces.py and from ADR 026"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    headers = {str(path.relative_to(root)) for path in (root / "lockstep").rglob("*.h")}
    internal = sorted(name for name in headers - public_headers(root) if not name.startswith(EXEMPT))
    if not internal:
        raise SystemExit(f"error: no internal headers under {root}")
    failed = [line for name in internal for line in violations(name, (root / name).read_text(encoding="utf-8"))]
    failed += wrong_namespaces(root)
    for line in failed:
        print(line)
    if failed:
        raise SystemExit(f"error: {len(failed)} mistake{'s' if len(failed) > 1 else ''} in namespaces")
    print(f"namespaces: {len(internal)} internal headers keep out of namespace lockstep, the others open {len(INSTALLED)} namespaces")


if __name__ == "__main__":
    main()
