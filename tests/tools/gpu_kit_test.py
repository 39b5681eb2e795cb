"""Tests of the kit of `make gpu` (tools/gpu/make_kit.py), and of the library that counts waits for a GPU."""
import json
import re
import subprocess
import sys
import unittest

from gpu_support import ROOT, Folder

import benchmarks
import elf
import make_kit


class Packing(Folder):
    def compile(self, name, *flags):
        source = self.root / "main.c"
        source.write_text("int main(void) { return 0; }\n")
        path = self.root / "build" / name
        path.parent.mkdir(exist_ok=True)
        subprocess.run(["gcc", source, "-o", path, "-Wl,-rpath,/a/folder/of/the/machine/that/built/" + "x" * 150, *flags],
                       check=True)
        return path

    def kit(self, limit_mib="60"):
        self.compile("lockstep", "-Wl,--no-as-needed", "-lz")
        for name in ("tests_gpu_comm", "tests_gpu_ranks", "tests_gpu_train"):
            self.compile(name)
        torch = self.root / "torch"
        (torch / "lib").mkdir(parents=True, exist_ok=True)
        (torch / "version.py").write_text("__version__ = '2.11.0+cu130'\n")
        return subprocess.run([sys.executable, ROOT / "tools/gpu/make_kit.py", "--build", self.root / "build", "--torch", torch,
                               "--kit", self.root / "gpu-kit", "--limit-mib", limit_mib], capture_output=True, text=True)

    def test_a_kit_is_small_and_names_no_folder_of_this_machine(self):
        result = self.kit()
        self.assertEqual(result.returncode, 0, result.stderr)
        kit = self.root / "gpu-kit"
        self.assertEqual(elf.rpath(kit / "bin/lockstep"), ":".join(make_kit.RPATH))
        self.assertEqual(subprocess.run([kit / "bin/lockstep"]).returncode, 0)
        described = json.loads((kit / "kit.json").read_text())
        self.assertEqual(described["torch"], "2.11.0+cu130")
        self.assertEqual(described["tests"], ["tests_gpu_ranks", "tests_gpu_comm", "tests_gpu_train"])  # ranks first
        self.assertEqual(described["libraries"], ["libz.so.1"])
        self.assertTrue((kit / "lib/libz.so.1").exists())
        for file in ("tools/gpu/run.py", "benchmarks/peers/train_epochs.py"):
            self.assertTrue((kit / file).exists(), file)
        self.assertTrue((self.root / "gpu-kit.tar.xz").exists())

    def test_dali_is_left_to_the_machine_with_the_gpu(self):
        dali = self.root / "dali"
        dali.mkdir()
        (self.root / "operators.c").write_text("int operators(void) { return 0; }\n")
        subprocess.run(["gcc", "-shared", "-fPIC", self.root / "operators.c", "-o", dali / "libdali_operators.so"], check=True)
        self.compile("lockstep_dali.so", "-Wl,--no-as-needed", f"-L{dali}", "-ldali_operators", f"-Wl,-rpath,{dali}")
        result = self.kit()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([file.name for file in (self.root / "gpu-kit/lib").iterdir()], ["libz.so.1"])

    def test_a_kit_beyond_its_limit_fails_and_names_what_is_large(self):
        result = self.kit("0.001")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"^error: .*gpu-kit\.tar\.xz is 0\.\d MiB, more than 0\.001; its largest files: \S+ ")

    def test_a_build_without_programs_is_refused(self):
        (self.root / "build").mkdir()
        result = subprocess.run([sys.executable, ROOT / "tools/gpu/make_kit.py", "--build", self.root / "build", "--torch",
                                 self.root], capture_output=True, text=True)
        self.assertRegex(result.stderr, r"^error: \S+ has no programs for a kit; `make gpu-kit` builds them\n$")


class CallCounter(Folder):
    def test_counts_the_waits_of_all_processes_of_a_program(self):
        (self.root / "cudart.c").write_text("""
int cudaStreamSynchronize(void* s) { return s != 0; }
int last;
int cudaStreamQuery(void* s) { return last = s == 0 ? 600 : 0; }  // the null stream has not ended
int cudaGetLastError(void) { int was = last; last = 0; return was; }
int cudaMemcpy(void* a, void* b, unsigned long c, int d) { return d + (int)c; }
""")
        (self.root / "main.c").write_text("""
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
int cudaStreamSynchronize(void*);
int cudaGetLastError(void);
int cudaMemcpy(void*, void*, unsigned long, int);
void* copy(void* unused) { cudaMemcpy(0, 0, 1, 1); return unused; }
int main(void) {
  int bad = cudaStreamSynchronize(0) != 0 || cudaMemcpy(0, 0, 40, 2) != 42 || cudaGetLastError() != 0;
  int ended = cudaStreamSynchronize(&bad);
  pthread_t loader;
  pthread_create(&loader, 0, copy, 0);
  pthread_join(loader, 0);
  if (fork() == 0) { cudaStreamSynchronize(0); _exit(0); }
  wait(0);
  return bad || ended != 1;
}
""")
        library = self.root / "libcudart.so.13"
        subprocess.run(["gcc", "-shared", "-fPIC", self.root / "cudart.c", "-o", library], check=True)
        subprocess.run(["gcc", self.root / "main.c", library, "-pthread", "-o", self.root / "program",
                        f"-Wl,-rpath,{self.root}"], check=True)
        counter = self.root / "counter.so"
        subprocess.run(["g++", "-std=c++20", "-shared", "-fPIC", ROOT / "benchmarks/ours/cuda_call_counter.cpp", "-o", counter, "-ldl"],
                       check=True)
        counts = self.root / "counts"
        counts.write_bytes(bytes(8 * len(benchmarks.CALLS)))
        result = subprocess.run([self.root / "program"], env={"LD_PRELOAD": str(counter), "LOCKSTEP_CUDA_CALLS": str(counts)})
        self.assertEqual(result.returncode, 0)  # the calls still reach the library
        words = memoryview(counts.read_bytes()).cast("Q").tolist()
        self.assertEqual(dict(zip(benchmarks.CALLS, words)),
                         {"cudaStreamSynchronize": 2, "cudaDeviceSynchronize": 0, "cudaEventSynchronize": 0, "cudaMemcpy": 1,
                          "on other threads": 1})


class GpuTests(unittest.TestCase):
    def test_what_skips_without_a_gpu_says_so_in_the_words_that_the_kit_looks_for(self):
        """tests/gpu/CMakeLists.txt selects the files with this wording."""
        skips = re.compile(r"cuda::is_available\(\)\)\s*\{?\s*GTEST_SKIP")
        for file in (ROOT / "tests").rglob("*.cpp"):
            text = file.read_text()
            if any(text[:at.start()].endswith("!torch::") for at in skips.finditer(text)):
                self.assertRegex(text, r'GTEST_SKIP\(\) << "needs (a|one|two|three|four) GPU', f"{file}: the kit would miss its tests")

if __name__ == "__main__":
    unittest.main()
