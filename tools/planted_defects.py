#!/usr/bin/env python3
"""Plants small defects at lines drawn at random, and tells which of them no test notices.

Usage, in a copy of the repository whose build/release is configured (a Python with tree-sitter and tree-sitter-cpp):
  planted_defects.py plant [--count 300] [--seed 1]   changes the sources of the copy; then build test_programs
  planted_defects.py reach [--jobs 3]                 runs the tests of `make test` and notes which defects they reach
  planted_defects.py try [--count 150] [--seconds 60] runs those tests with one defect at a time

All defects are compiled at once. The variable LOCKSTEP_PLANTED switches one of them on. Constants that the compiler
computes cannot be switched. If the compiler refuses a defect, name its id in --without and plant again. A defect counts
as noticed if a test that reaches it fails twice, or exceeds its time. Those that no test notices have to be read: some
change nothing that a caller could see.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path.cwd()
NOTES = ROOT / "build/planted"
NO_HARDWARE = re.compile(r"cuda|nccl|dali|gpu|avx2|/bench/", re.IGNORECASE)  # this code does not run everywhere
MOST_DEFECTS = 8192
# Where the value must be a constant, or where the text is no expression.
LEFT_ALONE = {
    "template_argument_list", "template_parameter_list", "requires_clause", "requires_expression", "concept_definition",
    "static_assert_declaration", "preproc_if", "preproc_elif", "preproc_def", "preproc_function_def", "enumerator",
    "attribute_declaration", "array_declarator", "alignas_qualifier", "bitfield_clause", "noexcept", "decltype",
    "sizeof_expression", "pure_virtual_clause", "string_literal", "raw_string_literal", "char_literal", "ERROR",
    "friend_declaration", "fold_expression", "gnu_asm_expression"}
INTEGER = re.compile(r"(?:signed|unsigned|short|long|int|char|bool|auto|(?:std::)?(?:u?int\d+_t|size_t|ptrdiff_t)|\s)+")
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
SWITCH = """#pragma once
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <type_traits>
namespace planted_defects {
struct State {
  State() {
    if (const char* id = getenv("LOCKSTEP_PLANTED")) active = atoi(id);
    const char* path = getenv("LOCKSTEP_PLANTED_REACH");
    const int fd = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void* memory = mmap(nullptr, %d, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory != MAP_FAILED) reached = static_cast<unsigned char*>(memory);
  }
  int active = -1;
  unsigned char* reached = nullptr;
};
inline const State& state() {
  static const State state;
  return state;
}
inline const State& read_before_main = state();  // a test may replace the environment
inline bool is_active(int id) {
  if (state().reached != nullptr) state().reached[id] = 1;
  return state().active == id;
}
constexpr bool on(int id) { return !std::is_constant_evaluated() && is_active(id); }
}  // namespace planted_defects
""" % MOST_DEFECTS


def text_of(node):
    return node.text.decode()


def defects_of(node):
    """Yields (node to replace, description, replacement) for one node; {on} stands for the switch."""
    kind, text = node.type, text_of(node)
    if kind == "if_statement" and not any(child.type == "constexpr" for child in node.children):
        clause = node.child_by_field_name("condition")
        value = clause.child_by_field_name("value") if clause is not None else None
        if value is not None and "declaration" not in value.type:
            for truth in ("false", "true"):
                yield value, f"if {truth}", f"({{on}} ? {truth} : bool({text_of(value)}))"
    if kind == "conditional_expression":
        value = node.child_by_field_name("condition")
        yield value, "?: false", f"(!{{on}} && bool({text_of(value)}))"
        yield value, "?: true", f"({{on}} || bool({text_of(value)}))"
    if kind == "binary_expression":
        sign = text_of(node.child_by_field_name("operator"))
        left, right = text_of(node.child_by_field_name("left")), text_of(node.child_by_field_name("right"))
        if sign in COMPARISONS:
            other = COMPARISONS[sign]
            yield node, f"{sign} becomes {other}", f"({{on}} ? (({left}) {other} ({right})) : (({left}) {sign} ({right})))"
        elif sign in ("&&", "||"):
            leave_out = "{on} ||" if sign == "&&" else "!{on} &&"
            yield node, f"{sign} without its left side", f"(({leave_out} bool({left})) {sign} bool({right}))"
            yield node, f"{sign} without its right side", f"(bool({left}) {sign} ({leave_out} bool({right})))"
    if kind == "number_literal" and (whole := re.fullmatch(r"(0|[1-9][0-9']*)([uUlL]*)", text)):
        number = int(whole[1].replace("'", ""))
        other = number + 1 if number < 20 else 2 * number
        yield node, f"{text} becomes {other}", f"({{on}} ? {other}{whole[2]} : {text})"
    if kind == "number_literal" and re.fullmatch(r"[0-9]+\.[0-9]*([eE][-+]?[0-9]+)?[fF]?", text):
        yield node, f"{text} doubled", f"({{on}} ? 2 * {text} : {text})"
    if kind in ("true", "false"):
        yield node, f"{kind} inverted", f"({{on}} != {text})"
    if kind == "call_expression" and (name := text_of(node.child_by_field_name("function"))) in ("std::min", "std::max"):
        other = "std::max" if name == "std::min" else "std::min"
        yield node, f"{name} becomes {other}", f"({{on}} ? {other}{text[len(name):]} : {text})"
    if kind == "expression_statement" and node.named_children and node.parent.type != "case_statement":
        if node.named_children[0].type in ("call_expression", "assignment_expression", "update_expression"):
            yield node, "deleted", "{ if (!{on}) { {text} } }"


def is_literal(node):
    """Whether all operands of an initializer are literals."""
    if node.type in ("unary_expression", "binary_expression", "conditional_expression", "parenthesized_expression",
                     "initializer_list"):
        return all(is_literal(child) for child in node.named_children)
    return node.type in ("number_literal", "char_literal", "true", "false")


def is_constant(node):
    """Whether the compiler computes the values of a declaration, where {on} is always false. It also computes const
    integers with constant initializers."""
    if node.type not in ("declaration", "field_declaration"):
        return False
    words = [child.text for child in node.children]
    if any(word in (b"constexpr", b"constinit", b"consteval") for word in words):
        return True
    if b"const" not in words or not INTEGER.fullmatch(text_of(node.child_by_field_name("type"))):
        return False
    if (value := node.child_by_field_name("default_value")) is not None:
        return b"static" in words and is_literal(value)
    declared = node.children_by_field_name("declarator")
    return all(each.type == "init_declarator" and each.child_by_field_name("declarator").type == "identifier" and
               is_literal(each.child_by_field_name("value")) for each in declared)


def defects_in(node, data, in_header, in_body=False):
    if node.type in LEFT_ALONE or is_constant(node):
        return
    in_body = in_body or node.type == "compound_statement"
    # In a header, a default value is one of `name = value;` that is not the `= 0` of a pure virtual function.
    line = data[data.rfind(b"\n", 0, node.start_byte) + 1:data.find(b"\n", node.end_byte)]
    if in_body or not in_header or re.fullmatch(rb"\s*[\w:<>]+ \w+ = [\w.']+;.*", line):
        yield from defects_of(node)
    skipped = node.child_by_field_name("value") if node.type == "case_statement" else None
    if node.type == "if_statement" and any(child.type == "constexpr" for child in node.children):
        skipped = node.child_by_field_name("condition")
    for child in node.children:
        if child != skipped:
            yield from defects_in(child, data, in_header, in_body)


def plant(options):
    import tree_sitter
    import tree_sitter_cpp
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))
    files = subprocess.check_output(["git", "ls-files", "lockstep"], text=True).split()
    subprocess.check_call(["git", "checkout", "-q", "lockstep"])
    by_line = {}
    for name in files:
        if not name.endswith((".cpp", ".h")) or NO_HARDWARE.search(name):
            continue
        data = (ROOT / name).read_bytes()
        for node, what, replacement in defects_in(parser.parse(data).root_node, data, name.endswith(".h")):
            place = (name, node.start_byte, node.end_byte)
            by_line.setdefault((name, node.start_point[0] + 1), []).append((place, what, replacement, text_of(node)))
    generator = random.Random(options.seed)
    lines = sorted(by_line)
    generator.shuffle(lines)
    chosen, taken = [], {}
    for line in lines:
        if len(chosen) == min(options.count, MOST_DEFECTS - 1):
            break
        (name, begin, end), what, replacement, text = generator.choice(by_line[line])
        if all(end <= other_begin or begin >= other_end for other_begin, other_end in taken.get(name, [])):
            taken.setdefault(name, []).append((begin, end))
            chosen.append((name, begin, end, line[1], what, replacement, text))
    notes, by_file = [], {}
    for number, (name, begin, end, line, what, replacement, text) in enumerate(chosen, 1):
        if number not in options.without:
            by_file.setdefault(name, []).append((begin, end, replacement, text, number))
            notes.append({"id": number, "place": f"{name}:{line}", "what": what, "text": " ".join(text.split())[:80]})
    for name, places in by_file.items():
        data = (ROOT / name).read_bytes()
        for begin, end, replacement, text, number in sorted(places, reverse=True):
            new = replacement.replace("{on}", f"::planted_defects::on({number})").replace("{text}", text)
            data = data[:begin] + new.encode() + data[end:]
        (ROOT / name).write_bytes(b'#include "planted_defects.h"\n' + data)
    (ROOT / "planted_defects.h").write_text(SWITCH)
    NOTES.mkdir(parents=True, exist_ok=True)
    (NOTES / "defects.json").write_text(json.dumps(notes, indent=1))
    print(f"{len(notes)} defects in {len(by_file)} files")


def tests():
    shown = json.loads(subprocess.check_output(["ctest", "--show-only=json-v1"], cwd=ROOT / "build/release"))
    for test in shown["tests"]:
        properties = {each["name"]: each["value"] for each in test["properties"]}
        if "command" in test and "all" not in properties.get("LABELS", []):
            yield test["name"], test["command"], properties


def run(command, properties, variables, limit):
    """Returns the exit status of a test, or None if it exceeded the limit."""
    given = dict(each.split("=", 1) for each in properties.get("ENVIRONMENT", []))
    test = subprocess.Popen(command, cwd=properties["WORKING_DIRECTORY"], env={**os.environ, **given, **variables},
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            start_new_session=True)
    try:
        return test.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(test.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        test.wait()


def reach(options):
    def one(test):
        name, command, properties = test
        log = NOTES / f"reach-{name.replace('/', '_')}"
        log.write_bytes(bytes(MOST_DEFECTS))
        begin = time.monotonic()
        status = run(command, properties, {"LOCKSTEP_PLANTED_REACH": str(log)}, properties.get("TIMEOUT", 300))
        seconds = time.monotonic() - begin
        found = [number for number, byte in enumerate(log.read_bytes()) if byte]
        log.unlink()
        if status not in (0, 77):
            print(f"{name} fails without a defect and is not used", flush=True)
        return name, {"passes": status == 0, "seconds": seconds, "reaches": found}

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = dict(pool.map(one, list(tests())))
    (NOTES / "reach.json").write_text(json.dumps(results))
    defects = json.loads((NOTES / "defects.json").read_text())
    reached = set().union(*(each["reaches"] for each in results.values() if each["passes"]))
    print(f"{len(results)} tests reach {len(reached)} of {len(defects)} defects")


def try_defects(options):
    defects = json.loads((NOTES / "defects.json").read_text())[:options.count]
    results = json.loads((NOTES / "reach.json").read_text())
    commands = {name: (command, properties) for name, command, properties in tests()}

    def one(defect):
        variables = {"LOCKSTEP_PLANTED": str(defect["id"])}
        room = defect["place"].split("/")[1]
        reaching = [name for name, each in results.items() if each["passes"] and defect["id"] in each["reaches"]]
        reaching.sort(key=lambda name: (room not in name.split(".")[0], results[name]["seconds"]))
        begin, tried = time.monotonic(), 0
        for name in reaching:
            if time.monotonic() - begin > options.seconds:
                break
            tried += 1
            limit = max(15, 6 * results[name]["seconds"])
            status = run(*commands[name], variables, limit)
            if status is None or (status not in (0, 77) and run(*commands[name], variables, limit) not in (0, 77)):
                return True
        print(f"{defect['id']} {defect['place']}: {defect['what']}: {defect['text']} "
              f"[{tried} of {len(reaching)} tests]", flush=True)
        return False

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        noticed = sum(pool.map(one, defects))
    print(f"{noticed} of {len(defects)} defects are noticed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["plant", "reach", "try"])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without", type=int, nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60, help="time for each defect")
    options = parser.parse_args()
    if not (ROOT / "lockstep").is_dir():
        sys.exit("run this in the top folder of a copy of the repository")
    {"plant": plant, "reach": reach, "try": try_defects}[options.what](options)


if __name__ == "__main__":
    main()
