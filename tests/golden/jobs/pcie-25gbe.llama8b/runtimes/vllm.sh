#!/bin/bash
# The runtime vllm of site pcie-25gbe: how a shell enters it.
#   bash runtimes/vllm.sh COMMAND...   runs one command in it
#   source runtimes/vllm.sh            enters it; "${within[@]}" then stands before each command
export VIRTUAL_ENV=/home/shared/vllm/venv PATH=/home/shared/vllm/venv/bin:"$PATH"
within=()
if [[ ${BASH_SOURCE[0]} == "$0" ]]; then exec "${within[@]}" "$@"; fi
