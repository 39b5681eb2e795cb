#!/usr/bin/env python3
"""Checks that every type is defined once: two types of one name in one namespace violate the one-definition rule.

Usage: check_definitions.py [ROOT]     (default: the project that this file belongs to)

Reads the types, inline functions and variables at namespace scope in lockstep/ and python/src/, which clang-format
puts at the beginning of a line. Unnamed namespaces do not count, because they belong to one translation unit. The
linker reports duplicates of other functions, but silently picks one of two types, inline functions or templates.

Prints a line for each name with several definitions, and exits with 1 if there is one.
"""
import pathlib
import re
import sys

sys.dont_write_bytecode = True
from namespace_lines import namespace_lines  # noqa: E402

TREES = ["lockstep", "python/src"]
TYPE = re.compile(r"^(?:struct|class|union|enum(?: class| struct)?) (?:\[\[\w+\]\] |alignas\([^)]*\) )?(?:LOCKSTEP_API )?(\w+)(?: final)?(?: :[^;]*| )\{")
INLINE = re.compile(r"^(?:inline|constexpr)\b.*?[ *&](\w+)(?:(\([^){]*).*|(?: =|\{).*;)$")


def definitions(text):
    """Yields ((namespace, name), line number) for each definition. Overloads differ in their parameters."""
    for spaces, number, line in namespace_lines(text):
        if spaces and "" not in spaces and (match := TYPE.match(line) or INLINE.match(line)):
            parameters = match[2] or "" if match.re is INLINE else ""
            yield ("::".join(spaces), match[1] + parameters), number


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    places = {}
    for tree in TREES:
        for path in sorted((root / tree).rglob("*")):
            if path.suffix in {".h", ".cpp", ".cu"} and not path.stem.endswith("-inl"):
                for name, number in definitions(path.read_text(encoding="utf-8")):
                    places.setdefault(name, []).append(f"{path.relative_to(root)}:{number}")
    if not places:
        raise SystemExit(f"error: no definitions under {root}")
    failed = {name: where for name, where in places.items() if len(where) > 1}
    for (space, name), where in sorted(failed.items()):
        print(f"{space}::{name} is defined {len(where)} times: {', '.join(where)}")
    if failed:
        raise SystemExit(f"error: {len(failed)} name{'s' if len(failed) > 1 else ''} with several definitions")
    print(f"definitions: {len(places)} names, each defined once")


if __name__ == "__main__":
    main()
