# Read by the launch scripts beside it: their options, and the configurations that follow from them.
#
# Each script trains one recipe once for each combination of ranks, strategies, loaders and batches, one after the other,
# and names what a run leaves after its configuration: LOGS/mnist_ddp_native_2ranks_batch128.log, its record .json, and the
# folder of that name with its checkpoints, run.json and trace.json.
usage() {
  cat <<END
Usage: $(basename "$0") [-r RANKS] [-s STRATEGIES] [-l LOADERS] [-b BATCHES] [-o LOGS] RECIPE [TRAIN OPTIONS...]

$ABOUT

  -r RANKS       numbers of ranks, with commas (default 1)
  -s STRATEGIES  with commas (default ddp; one rank trains by single, and dp has RANKS replicas in one process)
  -l LOADERS     native, cuda, dali, with commas (default native)
  -b BATCHES     images of a step over all ranks, with commas (default: the recipe's)
  -o LOGS        folder of logs, records and run folders (default logs). Each run has LOGS/NAME as its --out, with a
                 --trace of its last steps; where that holds checkpoints, add --resume or --overwrite
  LOCKSTEP       the program (default: build/release/lockstep beside these scripts, else the one in PATH)
END
}

fail() {
  echo "error: $(basename "$0"): $*" >&2
  exit 2
}

# The scripts name these files themselves, so that no run replaces those of another.
refuse_names() {
  local word
  for word in "$@"; do
    case $word in
      --out | --out=* | --json | --json=*) fail "${word%%=*} is named after each configuration: give -o LOGS instead" ;;
    esac
  done
}

ranks=1 strategies=ddp loaders=native batches=- logs=logs
while getopts ':r:s:l:b:o:h' option; do
  case $option in
    r) ranks=$OPTARG ;;
    s) strategies=$OPTARG ;;
    l) loaders=$OPTARG ;;
    b) batches=$OPTARG ;;
    o) logs=$OPTARG ;;
    h) usage; exit 0 ;;
    :) fail "-$OPTARG needs a value" ;;
    *) fail "unknown option -$OPTARG: see $(basename "$0") -h" ;;
  esac
done
shift $((OPTIND - 1))
[[ $# -gt 0 ]] || fail "give a RECIPE: see $(basename "$0") -h"
recipe=$1
shift
refuse_names "$@"
[[ $batches == - ]] && numbers=$ranks || numbers=$ranks,$batches
for number in ${numbers//,/ }; do
  [[ $number =~ ^[1-9][0-9]*$ ]] || fail "-r and -b are whole numbers from 1 on, with commas, got '$number'"
done

# The program, by its whole path: schedulers start it elsewhere.
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=${LOCKSTEP:-}
if [[ -z $program ]]; then
  program=$scripts/../build/release/lockstep
  [[ -x $program ]] || program=$(command -v lockstep) ||
    fail "there is no program lockstep: build it with make, or set LOCKSTEP"
fi
[[ -x $program ]] || program=$(command -v "$program") || fail "there is no program $LOCKSTEP (LOCKSTEP)"
program=$(realpath "$program")
mkdir -p "$logs"
logs=$(cd "$logs" && pwd)

launched=' '  # names

# Calls `launch_one`, which the script defines, for each configuration, with its number of ranks, its number of processes, its
# name, and then the words that train it. Goes on when one fails, and then ends with 1.
launch_all() {
  local count strategy loader batch failed=0
  for count in ${ranks//,/ }; do
    for strategy in ${strategies//,/ }; do
      for loader in ${loaders//,/ }; do
        for batch in ${batches//,/ }; do
          launch_configuration "$count" "$strategy" "$loader" "$batch" "$@" || failed=1
        done
      done
    done
  done
  return $failed
}

launch_configuration() {
  local count=$1 strategy=$2 loader=$3 batch=$4 processes=$1 name
  shift 4
  local words=(train "$recipe" --loader "$loader")
  if [[ $count == 1 ]]; then
    strategy=single
  elif [[ $strategy == dp ]]; then
    words+=(--devices "$count")
    processes=1
  elif [[ $strategy == pipeline ]]; then
    words+=(--stages "$count")
  fi
  words+=(--strategy "$strategy")
  name=${recipe}_${strategy}_${loader}_${count}ranks
  if [[ $batch != - ]]; then
    words+=(--batch-size "$batch")
    name+=_batch$batch
  fi
  if [[ $launched == *" $name "* ]]; then return 0; fi  # one rank, by whatever strategy
  launched+="$name "
  echo "$name: $logs/$name.log"
  words+=(--json "$logs/$name.json" --out "$logs/$name" --trace)
  if ! launch_one "$processes" "$name" "${words[@]}" "$@"; then
    echo "error: $(basename "$0"): $name failed: see $logs/$name.log" >&2
    return 1
  fi
}
