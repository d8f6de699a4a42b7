#!/bin/bash
# The runtime hpcserve of site onebox: how a shell enters it.
#   bash runtimes/hpcserve.sh COMMAND...   runs one command in it
#   source runtimes/hpcserve.sh            enters it; "${within[@]}" then stands before each command
export PATH=/opt/hpcserve/bin:"$PATH"
within=()
if [[ ${BASH_SOURCE[0]} == "$0" ]]; then exec "${within[@]}" "$@"; fi
