"""When another launcher starts the program, it joins that launcher's group instead of spawning ranks.

Usage: joins_test.py PROGRAM [TORCHRUN]
"""
import sys

TORCHRUN = sys.argv.pop(2) if len(sys.argv) > 2 and "torchrun" in sys.argv[2] else None
from support import *  # noqa: E402


class Joins(SystemTest):
    def assert_trained_on_two(self, run):
        self.assertEqual(run.wait(), 0, run.text())
        self.assertEqual(run.text().count("2 processes x 1 thread"), 1, run.text())  # rank 0 only
        self.assertIn("epoch 1/1", run.text())

    def command(self):
        return [PROGRAM, "train", "mnist", "--data", self.data, "--batch-size", "24", "--max-epochs", "1"]

    def test_variables(self):
        port = free_port()
        first, second = (self.train("--max-epochs", "1", environment=self.place(rank, 2, port))
                         for rank in (0, 1))
        self.assert_trained_on_two(first)
        self.assertEqual(second.wait(), 0)
        self.assertEqual(second.text(), "")

    def test_torchrun(self):
        if not TORCHRUN:
            self.skipTest("no torchrun")
        self.assert_trained_on_two(self.start([TORCHRUN, "--no-python", "--nproc-per-node", "2",
                                               "--master-port", free_port(), *self.command()]))

    def test_torchrun_starts_all_again(self):
        """Rank 1's first attempt ends while rank 0 waits for it. torchrun restarts both and keeps its store."""
        if not TORCHRUN:
            self.skipTest("no torchrun")
        script = 'if [ $TORCHELASTIC_RESTART_COUNT$RANK = 01 ]; then exit 1; fi; exec "$@"'
        self.assert_trained_on_two(self.start([TORCHRUN, "--no-python", "--nproc-per-node", "2", "--max-restarts", "1",
                                               "--master-port", free_port(), "sh", "-c", script, "sh", *self.command()]))

    def test_mpirun(self):
        if not shutil.which("mpirun"):
            self.skipTest("no mpirun; Debian's openmpi-bin has it")
        self.assert_trained_on_two(self.start(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", *self.command()]))

    def test_slurm(self):
        """Uses srun's variables, as one node with two tasks has them."""
        port = free_port()
        runs = [self.train("--max-epochs", "1", environment={
            "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "SLURM_NTASKS": "2",
            "SLURM_LOCALID": str(rank), "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2",
            "SLURM_JOB_NODELIST": "localhost", "SLURM_STEP_NODELIST": "localhost",
            "SLURM_STEP_NUM_NODES": "1", "SLURM_NNODES": "1", "SLURM_TASKS_PER_NODE": "2",
            "MASTER_PORT": str(port)}) for rank in (0, 1)]
        self.assertEqual([run.wait() for run in runs], [0, 0], runs[0].text() + runs[1].text())
        self.assertIn("2 processes", runs[0].text())

    def test_a_contradicting_request_is_refused(self):
        run = self.train("--nproc-per-node", "4", environment=self.place(0, 2, free_port()))
        self.assertEqual(run.wait(), 2)
        self.assertEqual(len(run.errors()), 1, run.text())


if __name__ == "__main__":
    unittest.main()
