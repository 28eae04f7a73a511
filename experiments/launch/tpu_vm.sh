#!/usr/bin/env bash
# A run on the hosts of a Cloud TPU VM slice, started again until it is complete. From anywhere with gcloud:
#
#   POD=my-v5e-16 ZONE=us-west4-a experiments/launch/tpu_vm.sh --config configs/pretrain.py:size=base \
#       --config.corpus=/mnt/shared/corpora/mine --workdir /mnt/shared/runs/base
#
# Every host has the checkout at ~/bert_jax with .venv, and the shared directory (NFS, or a bucket by gcsfuse).
# Ctrl-C here ends the loop; the hosts stop, saved, by: ... ssh "$POD" --worker=all --command='pkill -TERM -f experiments.train'
set -u
: "${POD:?the name of the TPU VM}" "${ZONE:?its zone}"
trap 'exit 130' INT

command="cd bert_jax && exec .venv/bin/python -m experiments.train --coordinator=auto --meeting_seconds=300"
for argument in "$@"; do
  command+=" $(printf '%q' "$argument")"
done
quick=0
for ((start = 1; start <= ${MOST_STARTS:-100}; start++)); do
  began=$SECONDS
  gcloud compute tpus tpu-vm ssh "$POD" --zone="$ZONE" --worker=all --command="$command" && exit 0
  code=$?
  # gcloud's code does not tell what went wrong. A config that does not fit would end every start at once.
  quick=$((SECONDS - began < ${QUICK_SECONDS:-120} ? quick + 1 : 0))
  if [ "$quick" -ge 3 ]; then
    echo "three starts in a row ended within ${QUICK_SECONDS:-120} s, the last with $code; see above" >&2
    exit 1
  fi
  echo "start $start ended with $code; again in ${SECONDS_BETWEEN:-60} s" >&2
  sleep "${SECONDS_BETWEEN:-60}"
done
exit 1
