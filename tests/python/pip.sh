#!/usr/bin/env bash
# Installs the package from the checkout with pip into an environment that sees PyTorch, and uses it there.
#
# Usage: pip.sh PYTHON SOURCE_DIR WORK_DIR BUILD_DIR
set -euo pipefail
python=$1 source=$2 work=$3 build=$4
rm -rf "$work"
mkdir -p "$work"

# Sees torch, pip and setuptools of the environment that has torch; --system-site-packages would show the
# system's.
"$python" -m venv --without-pip "$work/venv"
site=$(echo "$work"/venv/lib/python3*/site-packages)
"$python" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' >"$site/torch.pth"

# Offline: what pip would fetch is there already. LOCKSTEP_BUILD_DIR saves compiling all again.
LOCKSTEP_BUILD_DIR=$build "$work/venv/bin/python" -m pip install --no-build-isolation --no-deps --no-index \
  --disable-pip-version-check "$source/python" >"$work/pip.log" 2>&1 || { cat "$work/pip.log"; exit 1; }

# Two ranks, as torchrun starts them; without an import of ours, which PyTorch does by itself.
cat >"$work/program.py" <<'PYTHON'
import torch
import torch.distributed as dist

dist.init_process_group("lockstep")
tensor = torch.full((4,), float(dist.get_rank() + 1))
dist.all_reduce(tensor)
assert tensor.eq(3).all(), tensor
import lockstep_c10d
assert "venv" in lockstep_c10d.__file__, lockstep_c10d.__file__
dist.destroy_process_group()
PYTHON
cd "$work"
OMP_NUM_THREADS=1 "$work/venv/bin/python" -m torch.distributed.run --standalone --nproc-per-node 2 program.py
echo "installed and used: $("$work/venv/bin/python" -m pip list --disable-pip-version-check 2>/dev/null | grep lockstep)"
