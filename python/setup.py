"""Builds the extension module with the project's CMake, against the LibTorch of the installed torch.

LOCKSTEP_BUILD_DIR   an existing build folder of the checkout, which is used instead of compiling again
"""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent.parent
GIVEN = os.environ.get("LOCKSTEP_BUILD_DIR")
BUILD = pathlib.Path(GIVEN) if GIVEN else ROOT / "build" / f"pip-{sys.implementation.cache_tag}"


def cmake_arguments():
    spec = importlib.util.find_spec("torch")
    if spec is None:
        sys.exit("error: lockstep_c10d is built against the installed torch, but torch is not installed; "
                 "install torch, then: pip install --no-build-isolation ./python")
    torch = pathlib.Path(spec.submodule_search_locations[0])
    # TorchConfig.cmake of a CUDA build requires the whole CUDA toolkit, but its libraries suffice.
    cuda = (torch / "lib" / "libtorch_cuda.so").exists()
    return [f"-DLOCKSTEP_TORCH_ROOT={torch}" if cuda else f"-DCMAKE_PREFIX_PATH={torch / 'share' / 'cmake'}",
            f"-DLOCKSTEP_PYTHON={sys.executable}", "-DLOCKSTEP_PYTHON_PACKAGE=ON", "-DCMAKE_BUILD_TYPE=Release",
            "-DLOCKSTEP_TESTS=OFF", "-DLOCKSTEP_BENCHMARKS=OFF"]


class CMakeBuild(build_ext):
    def build_extension(self, extension):
        if not GIVEN:
            # --fresh: CMake's cache may describe a torch that was installed before.
            generator = ["-G", "Ninja"] if shutil.which("ninja") else []
            subprocess.run(["cmake", "--fresh", "-S", ROOT, "-B", BUILD, *generator, *cmake_arguments()], check=True)
        subprocess.run(["cmake", "--build", BUILD, "--target", "lockstep_c10d", "-j", str(os.cpu_count())], check=True)
        wanted = pathlib.Path(self.get_ext_fullpath(extension.name))
        wanted.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(BUILD / "python" / "lockstep_c10d" / wanted.name, wanted)


# Keeps setuptools' files out of the source folders.
scratch = ROOT / "build" / "setuptools"
scratch.mkdir(parents=True, exist_ok=True)
setup(ext_modules=[Extension("lockstep_c10d._C", sources=[])], cmdclass={"build_ext": CMakeBuild},
      options={"build": {"build_base": str(scratch)}, "egg_info": {"egg_base": str(scratch)}})
