#!/bin/bash
# The runtime vllm of site a100-hdr-dragonfly: how a shell enters it.
#   bash runtimes/vllm.sh COMMAND...   runs one command in it
#   source runtimes/vllm.sh            enters it; "${within[@]}" then stands before each command
type module >/dev/null 2>&1 || source /etc/profile
module load cuda/12.8 || exit 1
export VIRTUAL_ENV=/shared/apps/vllm/venv PATH=/shared/apps/vllm/venv/bin:"$PATH"
within=()
if [[ ${BASH_SOURCE[0]} == "$0" ]]; then exec "${within[@]}" "$@"; fi
