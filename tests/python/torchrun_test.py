"""Checks under torchrun that all ranks are restarted when one fails, and that the next attempt trains."""
from support import *

import subprocess

import lockstep_c10d

# Rank 1 fails twice: before it joins, and after it has used two groups.
PROGRAM = """
import os, sys
import torch, torch.distributed as dist
sys.path.insert(0, sys.argv[1])
import lockstep_c10d
attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
if (attempt, rank) == (0, 1):
    sys.exit(1)
dist.init_process_group("lockstep")
tensor = torch.ones(4)
dist.all_reduce(tensor)
dist.all_reduce(tensor, group=dist.new_group([0, 1]))
if (attempt, rank) == (1, 1):
    sys.exit(1)
dist.barrier()
assert tensor.eq(4).all(), tensor
print(f"attempt {attempt} of rank {rank} is through", flush=True)
dist.destroy_process_group()
"""


class Torchrun(Ranks):
    def test_recovers(self):
        program = self.folder / "program.py"
        program.write_text(PROGRAM)
        run = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                                "--max-restarts", "2", program, str(pathlib.Path(lockstep_c10d.__file__).parents[1])],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.addCleanup(run.terminate)  # it ends its ranks
        output = run.communicate(timeout=200)[0]
        self.assertEqual(run.returncode, 0, output)
        for rank in range(2):
            self.assertIn(f"attempt 2 of rank {rank} is through", output)


if __name__ == "__main__":
    unittest.main()
