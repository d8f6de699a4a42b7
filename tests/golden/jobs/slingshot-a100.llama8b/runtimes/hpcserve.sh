#!/bin/bash
# The runtime hpcserve of site slingshot-a100: how a shell enters it.
#   bash runtimes/hpcserve.sh COMMAND...   runs one command in it
#   source runtimes/hpcserve.sh            enters it; "${within[@]}" then stands before each command
export VIRTUAL_ENV=/shared/apps/hpcserve/venv PATH=/shared/apps/hpcserve/venv/bin:"$PATH"
within=()
if [[ ${BASH_SOURCE[0]} == "$0" ]]; then exec "${within[@]}" "$@"; fi
