#!/usr/bin/env bash
# Everything that a GPU is wanted for, in one command of under 8 minutes (without the making of an environment):
#   bash experiments/gpu_check.sh                      # writes experiments/results/gpu.md and gpu.json
#   bash experiments/gpu_check.sh --only settings,layers   # adds parts that there was no time for
#   bash experiments/gpu_check.sh --dry_run            # tiny sizes on the CPU, into a temporary directory
# Arguments go on to experiments/gpu_check.py. Takes $PYTHON, .venv-gpu, .venv or python3, the first that has what is
# needed; else the wheels in .whl (a machine without a network: `pip download --no-deps -d .whl NAME` elsewhere) beside
# $PYTHON or python3; else makes .venv-gpu with pip.
set -euo pipefail
cd "$(dirname "$0")/.."

dry_run= results="--results experiments/results"
for argument in "$@"; do
  case $argument in
  --dry_run) dry_run=1 results= ;;
  --results | --results=*) results= ;;
  esac
done

# Prints what a Python lacks: "needed" what nothing runs without, "peers" what PyTorch's side needs.
lacking() { # python needed|peers
  "$1" - "$2" "$dry_run" <<'PYTHON'
import sys
from importlib.util import find_spec

which, dry_run = sys.argv[1:]
names = {"needed": "jax flax optax orbax jaxtyping numpy ml_collections absl tokenizers sentencepiece sentencex safetensors"
         " google_crc32c flatbuffers ml_dtypes scipy tqdm", "peers": "torch transformers"}
print(*(name for name in names[which].split() if find_spec(name) is None))
if which == "needed" and not dry_run and not any(map(find_spec, ("jax_cuda12_plugin", "jax_cuda13_plugin"))):
    print("jax[cuda12]")
PYTHON
}

if [ -z "$dry_run" ]; then
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader ||
    { echo "gpu_check.sh: nvidia-smi finds no GPU here; --dry_run runs everything in small on the CPU" >&2; exit 1; }
fi

python=
for candidate in "${PYTHON:-}" .venv-gpu/bin/python .venv/bin/python python3; do
  if [ -n "$candidate" ] && command -v "$candidate" >/dev/null && [ -z "$(lacking "$candidate" needed)" ]; then
    python=$candidate
    break
  fi
done

base=${PYTHON:-python3}
if [ -z "$python" ] && compgen -G '.whl/*.whl' >/dev/null; then
  site=$(mktemp -d)
  "$base" -m pip install -q --no-index --no-deps --no-compile --target "$site" .whl/*.whl
  export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
  [ -n "$(lacking "$base" needed)" ] || python=$base
fi

if [ -z "$python" ]; then
  missing=$(lacking "$base" needed | xargs)
  echo "gpu_check.sh: $base lacks $missing; making .venv-gpu"
  wanted=$(mktemp)
  if [ -n "$dry_run" ]; then extra=; else extra='[cuda12]'; fi
  sed "s/^jax>=/jax$extra>=/" requirements.txt >"$wanted"
  # On Linux PyPI's torch is the one for CUDA.
  if ! { python3 -m venv .venv-gpu &&
    .venv-gpu/bin/python -m pip install -q --retries 1 --timeout 15 -r "$wanted" torch transformers 2>"$wanted.log"; }; then
    rm -rf .venv-gpu
    tail -n 1 "$wanted.log" >&2
    echo "gpu_check.sh: cannot install (is there a network?). $base lacks: $missing." \
      "Put wheels of these into .whl/ and run again." >&2
    exit 1
  fi
  python=.venv-gpu/bin/python
fi

peers=$(lacking "$python" peers | xargs)
[ -z "$peers" ] || echo "gpu_check.sh: $python has no $peers: ours is measured alone"
# shellcheck disable=SC2086  # two words or none
exec "$python" -m experiments.gpu_check $results "$@"
