"""Configures small projects with LibTorches of several versions, which consist of their headers' version only."""
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CMAKE = ROOT / "cmake"
# A user's project, and the package of a Lockstep that was built with LibTorch 2.13.0.
USER = """cmake_minimum_required(VERSION 3.24)
project(user LANGUAGES NONE)
include(CMakePackageConfigHelpers)
set(LOCKSTEP_PACKAGE_KIND Shared)
set(LOCKSTEP_TORCH_VERSION 2.13.0)
set(LOCKSTEP_CUDA OFF)
set(LOCKSTEP_LIBTORCH_LINK lib/lockstep/libtorch)
set(package ${CMAKE_BINARY_DIR}/lib/cmake/lockstep)
configure_package_config_file(CMAKE/lockstepConfig.cmake.in ${package}/lockstepConfig.cmake
                              INSTALL_DESTINATION lib/cmake/lockstep PATH_VARS LOCKSTEP_LIBTORCH_LINK
                              INSTALL_PREFIX ${CMAKE_BINARY_DIR})
file(COPY CMAKE/LockstepLibTorch.cmake DESTINATION ${package})
file(TOUCH ${package}/lockstepSharedTargets.cmake)
find_package(lockstep REQUIRED PATHS ${package} NO_DEFAULT_PATH)
message(STATUS "found lockstep with LibTorch ${LOCKSTEP_TORCH_VERSION}")
"""
# Lockstep's own build, as far as it looks for LibTorch.
BUILD = """cmake_minimum_required(VERSION 3.24)
project(build LANGUAGES NONE)
set(LOCKSTEP_CUDA OFF)
include(CMAKE/LockstepTorch.cmake)
message(STATUS "builds with LibTorch ${LOCKSTEP_TORCH_VERSION}")
"""


class LibTorchVersionsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def configure(self, project, version):
        """Returns CMake's exit code and what it prints, with single blanks, for a LibTorch of `version`, or for none."""
        torch = self.root / "torch"
        for header, text in [("torch/csrc/api/include/torch/torch.h", ""), ("torch/headeronly/version.h", "")]:
            (torch / "include" / header).parent.mkdir(parents=True, exist_ok=True)
            (torch / "include" / header).write_text(text)
        if version:
            numbers = zip(("MAJOR", "MINOR", "PATCH"), version.split("."))
            (torch / "include/torch/headeronly/version.h").write_text(
                "".join(f"#define TORCH_VERSION_{name} {number}\n" for name, number in numbers))
        source = self.root / "source"
        source.mkdir(exist_ok=True)
        (source / "CMakeLists.txt").write_text(project.replace("CMAKE/", f"{CMAKE.as_posix()}/"))
        with tempfile.TemporaryDirectory(dir=self.root) as build:
            done = subprocess.run(["cmake", "-S", source, "-B", build, "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF",
                                   f"-DLOCKSTEP_TORCH_ROOT={torch if version else self.root / 'nowhere'}"],
                                  capture_output=True, text=True, check=False)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def test_a_package_takes_the_minor_version_that_it_was_built_with(self):
        for version in ("2.13.0", "2.13.2"):
            code, text = self.configure(USER, version)
            self.assertEqual(code, 0, text)
            self.assertIn(f"found lockstep with LibTorch {version}", text)

    def test_a_package_says_what_it_needs(self):
        for version in ("2.11.0", "2.14.1", "2.2.0"):
            code, text = self.configure(USER, version)
            self.assertNotEqual(code, 0, text)
            self.assertIn("this lockstep was built with LibTorch 2.13.0 and needs LibTorch 2.13, but", text)
            self.assertIn(f"has {version}; lockstep can be built with LibTorch 2.11 to 2.14", text)
        code, text = self.configure(USER, None)
        self.assertNotEqual(code, 0, text)
        self.assertIn("lockstep needs LibTorch 2.13: add its prefix to CMAKE_PREFIX_PATH", text)

    def test_the_build_refuses_old_versions_and_warns_of_unknown_ones(self):
        for version in ("2.11.0", "2.14.1"):
            code, text = self.configure(BUILD, version)
            self.assertEqual(code, 0, text)
            self.assertIn(f"builds with LibTorch {version}", text)
            self.assertNotIn("Warning", text)
        code, text = self.configure(BUILD, "2.10.2")
        self.assertNotEqual(code, 0, text)
        self.assertRegex(text, "LibTorch 2.10.2 in .* is too old: Lockstep can be built with LibTorch 2.11 to 2.14")
        code, text = self.configure(BUILD, "2.15.0")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, "Warning .* LibTorch 2.15.0 in .* is newer .* LibTorch 2.11 to 2.14")

    def test_all_places_name_the_same_range(self):
        text = (CMAKE / "LockstepLibTorch.cmake").read_text()
        oldest, newest = re.findall(r"^set\(LOCKSTEP_(?:OLDEST|NEWEST)_TORCH ([\d.]+)\)", text, re.MULTILINE)
        self.assertIn(f"\noldest_torch={oldest} ", (ROOT / "tools/bootstrap.sh").read_text())
        self.assertIn(f'"torch>={oldest}"', (ROOT / "python/pyproject.toml").read_text())
        self.assertIn(f"LibTorch {oldest} to {newest}", (ROOT / "README.md").read_text())


if __name__ == "__main__":
    unittest.main()
