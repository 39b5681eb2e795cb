#!/usr/bin/env bash
set -euo pipefail
ABOUT="Submits a job for each configuration to Slurm. Options of sbatch stand in SBATCH_OPTIONS, such as '--nodes 2 --gpus-per-task 1';
with WAIT=1 each job ends before the next is submitted."
source "$(dirname "${BASH_SOURCE[0]}")/configurations.sh"

command -v sbatch >/dev/null || fail "there is no sbatch in PATH"

launch_one() {
  local processes=$1 name=$2 wait=()
  shift 2
  if [[ ${WAIT:-0} == 1 ]]; then wait=(--wait); fi
  # srun starts a process for each task; they meet by Slurm's own variables.
  # shellcheck disable=SC2086  # several options in one variable
  sbatch "${wait[@]}" --job-name "$name" --ntasks "$processes" --output "$logs/$name.log" --chdir "$PWD" \
    ${SBATCH_OPTIONS:-} --wrap "srun $(printf '%q ' "$program" "$@")"
}

launch_all "$@"
