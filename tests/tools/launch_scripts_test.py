"""Tests scripts/launch_*.sh with stand-ins for lockstep, nsys, mpirun and sbatch that record how they were
started."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
# Writes its name and arguments to a file, and starts the first argument that is a stand-in.
STAND_IN = """#!/usr/bin/env bash
printf '%s' "$(basename "$0")" >>"$STARTED"
printf ' %s' "$@" >>"$STARTED"
echo >>"$STARTED"
if [[ $(basename "$0") == lockstep ]]; then echo "output of lockstep"; [[ " $* " != *" --fail "* ]]; exit; fi
while [[ $# -gt 0 && $1 != */lockstep && $1 != --wrap ]]; do shift; done
if [[ $1 == --wrap ]]; then eval "${2#srun }" ; else "$@"; fi
"""


class LaunchScripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.bin = self.folder / "bin"
        self.bin.mkdir()

    def stand_in(self, *names):
        for name in names:
            (self.bin / name).write_text(STAND_IN)
            (self.bin / name).chmod(0o755)

    def run_script(self, script, *words, **variables):
        environment = {**os.environ, "PATH": f"{self.bin}:/usr/bin:/bin", "STARTED": str(self.folder / "started"),
                       "LOCKSTEP": str(self.bin / "lockstep"), **variables}
        return subprocess.run([SCRIPTS / script, *words], env=environment, cwd=self.folder, capture_output=True, text=True)

    def started(self):
        return (self.folder / "started").read_text().splitlines()

    def named(self, logs, name):
        """The arguments that name a run's output files."""
        return f"--json {logs}/{name}.json --out {logs}/{name} --trace"

    def test_each_configuration_has_its_log_its_record_and_its_folder(self):
        self.stand_in("lockstep")
        result = self.run_script("launch_local.sh", "-r", "1,2", "-s", "ddp,dp,pipeline", "-b", "64", "mnist",
                                 "--max-epochs", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        logs = self.folder / "logs"
        common = "lockstep train mnist --loader native"
        end = "--max-epochs 1 --nproc-per-node"
        self.assertEqual(self.started(), [
            f"{common} --strategy single --batch-size 64 {self.named(logs, 'mnist_single_native_1ranks_batch64')} {end} 1",
            f"{common} --strategy ddp --batch-size 64 {self.named(logs, 'mnist_ddp_native_2ranks_batch64')} {end} 2",
            f"{common} --devices 2 --strategy dp --batch-size 64 {self.named(logs, 'mnist_dp_native_2ranks_batch64')} {end} 1",
            f"{common} --stages 2 --strategy pipeline --batch-size 64 "
            f"{self.named(logs, 'mnist_pipeline_native_2ranks_batch64')} {end} 2"])
        self.assertEqual((logs / "mnist_ddp_native_2ranks_batch64.log").read_text(), "output of lockstep\n")

    def test_a_failure_leaves_the_others_theirs(self):
        self.stand_in("lockstep")
        result = self.run_script("launch_local.sh", "-r", "1,2", "mnist", "--fail")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(len(self.started()), 2)
        self.assertEqual(result.stderr.count("error: launch_local.sh: mnist_"), 2)
        self.assertIn("mnist_ddp_native_2ranks failed: see ", result.stderr)

    @unittest.skipIf(shutil.which("nsys"), "there is an nsys here")
    def test_nsys_profiles_where_it_exists(self):
        self.stand_in("lockstep")
        result = self.run_script("launch_nsys.sh", "mnist")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("note: there is no nsys in PATH", result.stderr)
        self.assertTrue(self.started()[0].startswith("lockstep train mnist"))
        self.stand_in("nsys")
        self.assertEqual(self.run_script("launch_nsys.sh", "mnist").returncode, 0)
        profiled = self.started()[1]
        self.assertTrue(profiled.startswith("nsys profile --trace=cuda,nvtx,osrt"), profiled)
        self.assertIn(f"--output {self.folder}/logs/mnist_single_native_1ranks ", profiled)
        self.assertTrue(self.started()[2].startswith("lockstep train mnist"))

    def test_mpirun_starts_the_ranks(self):
        self.stand_in("lockstep", "mpirun")
        result = self.run_script("launch_mpirun.sh", "-r", "4", "cifar10", MPIRUN_OPTIONS="--host a,b")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(self.started()[0].startswith(f"mpirun -np 4 --host a,b {self.bin}/lockstep train cifar10"))
        self.assertNotIn("--nproc-per-node", self.started()[0])

    def test_slurm_gets_a_job_for_each_configuration(self):
        self.stand_in("lockstep", "sbatch")
        result = self.run_script("launch_slurm.sh", "-r", "2", "-o", "my logs", "mnist", "--lr", "0.1",
                                 SBATCH_OPTIONS="--nodes 2", WAIT="1")
        self.assertEqual(result.returncode, 0, result.stderr)
        name = "mnist_ddp_native_2ranks"
        self.assertTrue(self.started()[0].startswith(
            f"sbatch --wait --job-name {name} --ntasks 2 --output {self.folder}/my logs/{name}.log --chdir "
            f"{self.folder} --nodes 2 --wrap srun {self.bin}/lockstep train mnist"), self.started()[0])
        # The arguments pass through the job's shell unchanged, including blanks.
        self.assertEqual(self.started()[1], f"lockstep train mnist --loader native --strategy ddp "
                                            f"{self.named(self.folder / 'my logs', name)} --lr 0.1")

    def test_bad_usage_is_one_line(self):
        self.stand_in("lockstep")
        for words, text in ((("-r", "0", "mnist"), "-r and -b are whole numbers"), ((), "give a RECIPE"),
                            (("-b", "-5", "mnist"), "-r and -b are whole numbers"),
                            (("mnist", "--out", "run"), "--out is named after each configuration: give -o LOGS instead"),
                            (("mnist", "--json=run.json"), "--json is named after each configuration"),
                            (("-x", "mnist"), "unknown option -x"), (("-r",), "-r needs a value")):
            result = self.run_script("launch_local.sh", *words)
            self.assertEqual(result.returncode, 2, words)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertIn(text, result.stderr)

    def test_a_wrong_program_is_not_replaced_by_another(self):
        self.stand_in("lockstep")
        result = self.run_script("launch_local.sh", "mnist", LOCKSTEP="/no/such/lockstep")
        self.assertEqual(result.returncode, 2)
        self.assertIn("there is no program /no/such/lockstep (LOCKSTEP)", result.stderr)

    @unittest.skipIf(shutil.which("sbatch"), "there is a Slurm here")
    def test_a_missing_launcher_is_named(self):
        self.stand_in("lockstep")
        result = self.run_script("launch_slurm.sh", "mnist")
        self.assertEqual((result.returncode, result.stderr), (2, "error: launch_slurm.sh: there is no sbatch in PATH\n"))


if __name__ == "__main__":
    unittest.main()
