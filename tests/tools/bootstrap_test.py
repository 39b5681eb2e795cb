"""Runs tools/bootstrap.sh in an empty folder, with programs that pretend to install."""
import contextlib
import os
import pathlib
import pty
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "bootstrap.sh"
STUBS = {
    "dpkg-query": """shift 3; for name; do [ "$name" = "$MISSING" ] || echo "installed $name"; done""",
    "sleep": "",
    "sudo": """shift; exec "$@" """,
    "apt-get": """case "$*" in *-y*$MISSING) echo "apt $MISSING" >>"$CALLS"
  echo "Reading package lists..."; echo "Need to get 1,234 kB of archives."; [ -z "$APT_FAILS" ] || { echo "E: no space" >&2; exit 1; };;
esac""",
    # Handles python3 -m venv --clear FOLDER. Any other call reports that there is no torch.
    "python3": """[ "$2" = venv ] || exit 0
echo venv >>"$CALLS"; rm -rf "$4"; mkdir -p "$4/bin" "$4/lib/python3.11/site-packages/pip-23.dist-info"
touch "$4/lib/python3.11/site-packages/pip-23.dist-info/RECORD"; cp "$PIP" "$4/bin/python"
""",
    # Handles python -m pip install ... NAME==VERSION.
    "pip": """echo "Collecting $*"; echo "WARNING: of pip" >&2
if [ -t 1 ]; then echo "its own progress"; else echo "  Downloading a-folder/some-1.0.whl (1.5 MB)"; fi
[ -z "$PIP_FAILS" ] || { echo "pip fails" >>"$CALLS"; echo "ERROR: $PIP_FAILS" >&2; exit 1; }
for word; do case $word in torch*|numpy|safetensors|expecttest|nvidia*|onnx*|pandas*|tensorboard*|wandb*|mlflow*)
  echo "pip $word" >>"$CALLS"
  name=$(echo "${word%%==*}" | tr - _); version=${word##*==}; [ "$version" != "$word" ] || version=1.0
  folder=$(dirname "$0")/../lib/python3.11/site-packages/$name-$(echo "$version" | tr '*' 1).dist-info
  rm -rf "$(dirname "$folder")/$name"-*; mkdir -p "$folder"; touch "$folder/RECORD" ;;
esac; done
""",
}
OURS = "-DCMAKE_PREFIX_PATH={root}/.deps/venv/lib/python3.11/site-packages/torch/share/cmake\n"


def read_all(terminal):
    """Returns what was written to the other end of a pseudo-terminal, which no process has open any more."""
    text = b""
    with contextlib.suppress(OSError):  # EIO after the last byte
        while part := os.read(terminal, 10_000):
            text += part
    return text.decode()


class BootstrapTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        (self.root / "tools").mkdir()
        (self.root / "bin").mkdir()
        shutil.copy(SCRIPT, self.root / "tools")
        for name, body in STUBS.items():
            path = self.root / "bin" / name
            path.write_text("#!/bin/sh\n" + body)
            path.chmod(0o755)

    def run_script(self, variables, *words, stderr=subprocess.PIPE):
        kept = {name: value for name, value in os.environ.items()
                if name != "CMAKE_PREFIX_PATH" and not name.startswith("LOCKSTEP_")}
        return subprocess.run(
            ["bash", self.root / "tools" / "bootstrap.sh", *words], stdout=subprocess.PIPE, stderr=stderr, text=True,
            env={**kept, "PATH": f"{self.root / 'bin'}:{kept['PATH']}", "CALLS": str(self.root / "calls"),
                 "PIP": str(self.root / "bin" / "pip"), **variables})

    def bootstrap(self, *words, stderr=subprocess.PIPE, **variables):
        """Returns what was installed, what CMake was told, and what was printed."""
        calls = self.root / "calls"
        calls.write_text("")
        result = self.run_script(variables, *words, stderr=stderr)
        self.assertEqual(result.returncode, 0, result.stderr)
        return calls.read_text().split("\n")[:-1], (self.root / ".deps/cmake-args").read_text(), result.stderr

    def site(self, venv):
        return self.root / ".deps" / venv / "lib/python3.11/site-packages"

    def libtorch(self, version, cuda=False):
        folder = self.root / f"libtorch-{version}"
        (folder / "share/cmake/Torch").mkdir(parents=True)
        (folder / "share/cmake/Torch/TorchConfig.cmake").touch()
        (folder / "share/cmake/Torch/TorchConfigVersion.cmake").write_text(f'set(PACKAGE_VERSION "{version}")\n')
        if cuda:
            (folder / "lib").mkdir()
            (folder / "lib/libtorch_cuda.so").touch()
        return folder

    def test_installs_what_is_missing_once(self):
        calls, arguments, _ = self.bootstrap()
        self.assertEqual([call.split("==")[0] for call in calls], ["venv", "pip torch", "pip numpy", "pip safetensors",
                                                                  "pip expecttest"])
        self.assertEqual(arguments, OURS.format(root=self.root))
        self.assertEqual(self.bootstrap()[0], [])
        self.assertIn("pip torchvision", [call.split("==")[0] for call in self.bootstrap("cuda")[0]])
        self.assertEqual(self.bootstrap("cuda")[0], [])

    def test_dali_is_installed_by_name_and_cmake_told_of_it(self):
        self.assertNotIn("DALI", self.bootstrap()[1])
        calls, arguments, _ = self.bootstrap("dali")
        self.assertEqual([call.split("==")[0] for call in calls], ["venv", "pip nvidia-dali-cuda130", "pip numpy"])
        expected = f"-DLOCKSTEP_DALI_ROOT={self.site('dali')}/nvidia/dali\n" + OURS.format(root=self.root)
        self.assertEqual(arguments, expected)
        # A later build that does not name DALI still uses the installed one.
        self.assertEqual(self.bootstrap()[:2], ([], expected))

    def test_oracles_are_installed_by_name_once(self):
        names = [call.split("==")[0] for call in self.bootstrap("oracles")[0]]
        self.assertIn("pip onnxruntime", names)
        self.assertIn("pip tensorboard", names)
        self.assertEqual([name for name in names if "mlflow" in name],
                         ["pip mlflow-skinny", "pip mlflow-tracing", "pip mlflow"])
        self.assertEqual(self.bootstrap("oracles")[0], [])

    def test_another_version_is_replaced(self):
        self.bootstrap("cuda")
        for venv, name in [("venv", "torch"), ("cuda", "torch"), ("cuda", "torchvision")]:
            with self.subTest(venv=venv, name=name):
                installed = next(self.site(venv).glob(f"{name}-*"))
                installed.rename(installed.with_name(f"{name}-1.13.1.dist-info"))
                calls = self.bootstrap("cuda")[0]
                self.assertIn(f"pip {name}==", "\n".join(calls))
                self.assertEqual(self.bootstrap("cuda")[0], [])

    def test_half_an_installation_is_none(self):
        self.bootstrap()
        for name, expected in [("pip", "venv"), ("numpy", "pip numpy"), ("torch", "pip torch")]:
            with self.subTest(name):
                (next(self.site("venv").glob(f"{name}-*")) / "RECORD").unlink()
                self.assertTrue(any(call.startswith(expected) for call in self.bootstrap()[0]))
                self.assertEqual(self.bootstrap()[0], [])

    def test_shows_what_it_downloads(self):
        text = self.bootstrap()[2]
        self.assertIn("bootstrap: installing torch==", text)
        self.assertIn("bootstrap:   downloading some-1.0.whl (1.5 MB)\n", text)
        self.assertNotIn("Collecting", text)

    def test_shows_how_much_apt_downloads_or_why_it_fails(self):
        calls, _, text = self.bootstrap(MISSING="libpng-dev")
        self.assertEqual(calls[0], "apt libpng-dev")
        self.assertIn("bootstrap:   downloading 1,234 kB of Debian packages\n", text)
        self.assertNotIn("Reading", text)
        failed = self.run_script({"MISSING": "libpng-dev", "APT_FAILS": "1"})
        self.assertEqual(failed.returncode, 1)
        self.assertIn("error: apt-get could not install libpng-dev : E: no space\n", failed.stderr)

    def test_on_a_terminal_pip_draws_its_own_progress(self):
        ours, terminal = pty.openpty()
        self.addCleanup(os.close, ours)
        with os.fdopen(terminal, "w") as stderr:
            self.bootstrap(stderr=stderr)
        text = read_all(ours)
        self.assertIn("its own progress", text)
        self.assertNotIn("WARNING", text)

    def test_names_the_error_of_pip_with_and_without_a_terminal(self):
        error = {"PIP_FAILS": "No matching distribution"}
        ours, terminal = pty.openpty()
        self.addCleanup(os.close, ours)
        with os.fdopen(terminal, "w") as stderr:
            self.assertEqual(self.run_script(error, stderr=stderr).returncode, 1)
        for text in [read_all(ours), self.run_script(error).stderr]:
            self.assertRegex(text, r"error: pip could not install torch==\S+ \(ERROR: No matching distribution\)")

    def test_tries_again_after_a_broken_download(self):
        failed = self.run_script({"PIP_FAILS": "IncompleteRead"})
        self.assertEqual(failed.returncode, 1)
        self.assertRegex(failed.stderr, r"error: pip could not install torch==\S+ \(ERROR: IncompleteRead\)")
        self.assertEqual((self.root / "calls").read_text(), "venv\n" + 3 * "pip fails\n")

    def test_takes_the_users_libtorch_if_it_is_new_enough(self):
        old, new, gpu = self.libtorch("2.9.1"), self.libtorch("2.11.0"), self.libtorch("2.12.0", cuda=True)
        for prefixes, expected, said in [
                ([new], f"-DCMAKE_PREFIX_PATH={new}/share/cmake\n", ""),
                ([old, new], f"-DCMAKE_PREFIX_PATH={new}/share/cmake\n", "LibTorch 2.9.1"),
                ([gpu], f"-DLOCKSTEP_TORCH_ROOT={gpu}\n-DLOCKSTEP_CUDA=AUTO\n", ""),
                ([old], OURS.format(root=self.root), "too old, at least 2.11 is needed")]:
            with self.subTest(prefixes=prefixes):
                calls, arguments, text = self.bootstrap(CMAKE_PREFIX_PATH=":".join(map(str, prefixes)))
                self.assertEqual(arguments, expected)
                self.assertIn(said, text)
                self.assertEqual(any("torch" in call for call in calls), prefixes == [old])


if __name__ == "__main__":
    unittest.main()
