#!/usr/bin/env python3
"""Checks that every type is defined once: two types of one name in one namespace violate the one-definition rule.

Usage: check_definitions.py [ROOT]     (default: the project that this file belongs to)

Reads the types, concepts, templates, inline functions and variables at namespace scope, and the members of classes that
are defined there as templates or inline, in the TREES. clang-format puts all of them at the beginning of a line. Unnamed
namespaces do not count, because they belong to one translation unit. The linker reports duplicates of other functions,
but silently picks one of two types, inline functions or templates.

Sources are checked as if they were all parts of one program. Those of tests/ and benchmarks/ are not, but a name that
two of them define would make it an error to link them together, and is confusing anyway.

Prints a line for each name with several definitions, and exits with 1 if there is one.
"""
import pathlib
import re
import sys

sys.dont_write_bytecode = True
from namespace_lines import namespace_lines  # noqa: E402

TREES = ["lockstep", "python/src", "tests", "benchmarks"]
BEGINS = re.compile(r"^(?:template\b|inline\b|constexpr\b|(?:struct|class|union|enum)\b)")
TYPE = re.compile(r"^(?:struct|class|union|enum(?: class| struct)?) (?:\[\[\w+\]\] |alignas\([^)]*\) )?(?:LOCKSTEP_API )?(\w+)(?: final)?(?: :.*)?$")
FUNCTION = re.compile(r"(?:^|[ *&])((?:\w+(?:<[^()]*?>)?::)*~?(?:operator ?[^\s\w(]+|operator\(\)|\w+))(\(.*)$")
VARIABLE = re.compile(r"(?:^|[ *&])((?:\w+::)*\w+)(?: =.*|\[.*)?$")
REQUIRES = re.compile(r"\brequires *(?:\([^()]*\) *)?$")
NO_NAMES = re.compile(r"\b(?:requires|decltype|noexcept|alignas|explicit|__attribute__) ?\((?:[^()]|\([^()]*\))*\)")


def normalized(text):
    return " ".join(text.split()).replace("( ", "(")


def head_of(lines):
    """Returns (the text of a declaration up to its body, its initializer in braces or its end; what it requires of a
    template's arguments in braces; the character at the end)."""
    text, required, parentheses, braces = "", "", 0, 0
    for line in lines:
        line = line.split("//")[0].strip()
        for letter in line:
            if braces:  # those of `requires (T x) { ... }`
                braces += (letter == "{") - (letter == "}")
                required += letter
            elif letter == "{" and REQUIRES.search(text):
                braces = 1
            elif letter in "{;" and not parentheses:
                return normalized(text), required, letter
            else:
                parentheses += (letter == "(") - (letter == ")")
                text += letter
        text += " "
    return normalized(text), required, ""


def without_template(head):
    """Returns (template<...> with what it requires, the rest of the head)."""
    before = ""
    while head.startswith("template"):
        depth = 0
        for end, letter in enumerate(head):
            depth += (letter == "<") - (letter == ">" and head[end - 1] not in "-=")
            if letter == ">" and depth == 0:
                break
        before, head = before + head[: end + 1], head[end + 1 :].strip()
    return before, head


def name_in(head, required, end):
    """Returns the name that a head defines, for a function with what its overloads differ in: the parameters, and for a
    template the whole head. None if it only declares a name, or specializes a template."""
    before, head = without_template(head)
    if before.replace(" ", "").endswith("template<>") or before == "template":
        return None
    if match := re.match(r"concept (\w+)", head):
        return match[1]
    if re.match(r"(?:using|friend|extern|static_assert)\b", head):
        return None
    if re.match(r"(?:struct|class|union|enum)\b", head):
        if end == "{" and (match := TYPE.match(head)):
            return match[1]
        if end != "{" or "(" not in head:
            return None
    if not before and not re.match(r"(?:inline|constexpr)\b", head):
        return None
    variable = VARIABLE.search(NO_NAMES.sub("", head.split(" = ")[0]).strip())
    if "(" not in head.split(" = ")[0]:
        return variable[1] if variable and (end == "{" or " = " in head) else None
    match = FUNCTION.search(NO_NAMES.sub("", head))
    if end != "{" or not match:
        return None
    return match[1] + match[2] + (f" [{before} {head} {required}]" if before else "")


def definitions(text):
    """Yields ((namespace, name), line number) for each definition."""
    lines = text.splitlines()
    after_template = False
    for spaces, number, line in namespace_lines(text):
        begins = BEGINS.match(line)
        if begins and not after_template and spaces and "" not in spaces:
            if name := name_in(*head_of(lines[number - 1 : number + 30])):
                yield ("::".join(spaces), name), number
        # The lines of a template before its declaration are a part of the same head.
        after_template = bool(begins) and line.startswith("template") and not re.search(r"[{;]$", line)


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
