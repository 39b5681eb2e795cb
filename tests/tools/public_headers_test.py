"""Compares tools/public_headers.py with the headers that cmake/install_headers.cmake installs."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from public_headers import public_headers

SMALL_TREE = {
    "lockstep/public_headers.txt": "# lockstep/comment.h\nlockstep/lockstep.h\nlockstep/core/listed.h\n",
    "lockstep/lockstep.h": "#include <vector>\n#  include <lockstep/core/direct.h>\n// #include <lockstep/core/comment.h>\n",
    "lockstep/core/listed.h": "#include <lockstep/lockstep.h>  // why\n#include <torch/types.h>\n",
    "lockstep/core/direct.h": "#include <lockstep/data/indirect.h>\n",
    "lockstep/data/indirect.h": "",
    "lockstep/core/comment.h": "",
    "lockstep/core/internal.h": "#include <lockstep/lockstep.h>\n",
}
INSTALLED = {"lockstep/lockstep.h", "lockstep/core/listed.h", "lockstep/core/direct.h", "lockstep/data/indirect.h"}


def installed_by_cmake(root):
    """Returns the headers that CMake's script installs from the project in the folder `root`."""
    with tempfile.TemporaryDirectory() as prefix:
        subprocess.run(["cmake", f"-DSOURCE_DIR={root}", "-DINCLUDE_DIR=include", f"-DCMAKE_INSTALL_PREFIX={prefix}",
                        "-P", ROOT / "cmake/install_headers.cmake"], check=True, capture_output=True)
        include = pathlib.Path(prefix) / "include"
        return {path.relative_to(include).as_posix() for path in include.rglob("*") if path.is_file()}


@unittest.skipUnless(shutil.which("cmake"), "needs cmake")
class PublicHeadersTest(unittest.TestCase):
    def test_are_those_that_cmake_installs(self):
        self.assertEqual(public_headers(ROOT), installed_by_cmake(ROOT))

    def test_are_those_listed_and_what_they_include(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, content in SMALL_TREE.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(content)
            self.assertEqual(public_headers(root), INSTALLED)
            self.assertEqual(installed_by_cmake(root), INSTALLED)


if __name__ == "__main__":
    unittest.main()
