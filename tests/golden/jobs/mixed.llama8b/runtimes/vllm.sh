#!/bin/bash
# The runtime vllm of site mixed: how a shell enters it.
#   bash runtimes/vllm.sh COMMAND...   runs one command in it
#   source runtimes/vllm.sh            enters it; "${within[@]}" then stands before each command
export VIRTUAL_ENV=/shared/apps/vllm/venv PATH=/shared/apps/vllm/venv/bin:"$PATH"
within=()
if [[ ${BASH_SOURCE[0]} == "$0" ]]; then exec "${within[@]}" "$@"; fi
