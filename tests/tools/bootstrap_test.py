"""Runs tools/bootstrap.sh in an empty folder, with programs that pretend to install."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "bootstrap.sh"
STUBS = {
    "dpkg-query": """shift 3; printf 'installed %s\\n' "$@" """,
    # Handles python3 -m venv --clear FOLDER. Any other call reports that there is no torch.
    "python3": """[ "$2" = venv ] || exit 0
echo venv >>"$CALLS"; rm -rf "$4"; mkdir -p "$4/bin" "$4/lib/python3.11/site-packages/pip-23.dist-info"
touch "$4/lib/python3.11/site-packages/pip-23.dist-info/RECORD"; cp "$PIP" "$4/bin/python"
""",
    # Handles python -m pip install ... NAME==VERSION.
    "pip": """for word; do case $word in torch*|numpy|safetensors|expecttest|nvidia*|onnx*|pandas*|tensorboard*|wandb*|mlflow*)
  echo "pip $word" >>"$CALLS"
  name=$(echo "${word%%==*}" | tr - _); version=${word##*==}; [ "$version" != "$word" ] || version=1.0
  folder=$(dirname "$0")/../lib/python3.11/site-packages/$name-$(echo "$version" | tr '*' 1).dist-info
  rm -rf "$(dirname "$folder")/$name"-*; mkdir -p "$folder"; touch "$folder/RECORD" ;;
esac; done
""",
}
OURS = "-DCMAKE_PREFIX_PATH={root}/.deps/venv/lib/python3.11/site-packages/torch/share/cmake\n"


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

    def bootstrap(self, *words, **variables):
        """Returns what was installed, what CMake was told, and what was printed."""
        calls = self.root / "calls"
        calls.write_text("")
        kept = {name: value for name, value in os.environ.items()
                if name != "CMAKE_PREFIX_PATH" and not name.startswith("LOCKSTEP_")}
        result = subprocess.run(
            ["bash", self.root / "tools" / "bootstrap.sh", *words], capture_output=True, text=True,
            env={**kept, "PATH": f"{self.root / 'bin'}:{kept['PATH']}", "CALLS": str(calls),
                 "PIP": str(self.root / "bin" / "pip"), **variables})
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
