#!/usr/bin/env python3
"""Checks that the installed headers mark what liblockstep.so must export with LOCKSTEP_API (lockstep/core/export.h).

Usage: check_exports.py [ROOT]     (default: the project that this file belongs to)

Every class, function and variable that a header declares at namespace scope in namespace lockstep needs a mark, even a
class without functions, because it may get one later. clang-format puts such a declaration at the beginning of a line,
which is how this script finds it. Templates, inline functions, constants, enumerations, aliases and forward declarations
need no mark. A header with marks includes <lockstep/core/export.h> itself.

Without this check, a missing mark would be noticed only when a program that needs it is linked to the shared library.

Prints a line for each violation and exits with 1 if there is one.
"""
import pathlib
import re
import sys

sys.dont_write_bytecode = True
from namespace_lines import namespace_lines  # noqa: E402
from public_headers import public_headers  # noqa: E402

MARK = "LOCKSTEP_API"
MARKS = "lockstep/core/export.h"
DECLARATION = re.compile(r"^(?:\w|\[\[|::)")
NEEDS_NONE = re.compile(r'(?:inline|constexpr|using|enum|typedef|public|private|protected)\b|extern "C"|[A-Z_]+\(|(?:class|struct|union) \w+;')


def declarations(text):
    """Yields (line number, line) for each declaration that needs a mark."""
    template = False
    for spaces, number, line in namespace_lines(text):
        if spaces and spaces[0].startswith("lockstep") and DECLARATION.match(line):
            if line.startswith("template"):
                template = True
            elif template:  # the declaration that belongs to the template<...> of the line before
                template = False
            elif not NEEDS_NONE.match(line):
                yield number, line


def violations(name, text):
    """Yields what is wrong with a header."""
    needed = list(declarations(text))
    for number, line in needed:
        if not re.search(rf"\b{MARK}\b", line):
            yield f"{name}:{number}: liblockstep.so does not export this without {MARK}: {line}"
    if needed and f"#include <{MARKS}>" not in text:
        yield f"{name}: does not include <{MARKS}>"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    headers = {name: (root / name).read_text(encoding="utf-8") for name in sorted(public_headers(root))}
    failed = [line for name, text in headers.items() for line in violations(name, text)]
    for line in failed:
        print(line)
    if failed:
        raise SystemExit(f"error: {len(failed)} problem{'s' if len(failed) > 1 else ''} with the exports of the shared library")
    marked = sum(len(list(declarations(text))) for text in headers.values())
    if not marked:
        raise SystemExit(f"error: nothing to export under {root}")
    print(f"exports: {marked} declarations are marked")


if __name__ == "__main__":
    main()
