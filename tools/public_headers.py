"""The headers that `cmake --install` installs: those of lockstep/public_headers.txt, and the headers that they include.

cmake/install_headers.cmake finds them a second time, because an installation must not need Python.
tests/tools/public_headers_test.py compares both.
"""
import re

LIST = "lockstep/public_headers.txt"
INCLUDE = re.compile(r"^# *include <(lockstep/[^>]+)>", re.MULTILINE)


def reached_from(root, names):
    """Returns `names` and all headers of the project that they include, directly or through others."""
    found, open_names = set(), list(names)
    while open_names:
        name = open_names.pop()
        if name not in found:
            found.add(name)
            open_names += INCLUDE.findall((root / name).read_text(encoding="utf-8"))
    return found


def public_headers(root):
    """Returns the names of the headers, such as "lockstep/core/error.h", of the project in the folder `root`."""
    lines = (root / LIST).read_text(encoding="utf-8").splitlines()
    return reached_from(root, [line for line in lines if line.startswith("lockstep/")])
