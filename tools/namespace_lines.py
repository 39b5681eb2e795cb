"""The lines of a source or header with the namespaces around them, as clang-format lays them out: a namespace opens and
closes at the beginning of a line, and its closing brace has a comment, unless the namespace has only one line."""
import re

OPENS = re.compile(r"^(?:inline )?namespace ?([\w:]*) ?\{$")
CLOSES = re.compile(r"^\}  // namespace(?: [\w:]+)?$")


def namespace_lines(text):
    """Yields (names of the open namespaces, line number, line) for each line that opens or closes none. The name of an
    unnamed namespace is empty."""
    spaces = []
    opened, before = 0, ""  # the number of the last line that opens a namespace; the line before this one
    for number, line in enumerate(text.splitlines(), 1):
        if match := OPENS.match(line):
            spaces.append(match[1])
            opened = number
        elif spaces and (CLOSES.match(line) or line == "}" and opened == number - 2 and not before.endswith("{")):
            spaces.pop()
        else:
            yield tuple(spaces), number, line
        before = line
