#!/bin/bash
# The agent of one node of llama8b-1.
#
# Started once on each node, by srun or local.sh, which say HPCSERVE_HEAD and HPCSERVE_NODES. By hand, on one node alone:
#   HPCSERVE_NODE=NAME HPCSERVE_HEAD=NAME HPCSERVE_NODES=1 bash agent.sh
# It keeps hpcserve's agent alive: one that dies is started again and adopts the workers that still run.

umask 077
cd -- /shared/jobs/llama8b-1 || exit 1
node=${HPCSERVE_NODE:-$SLURMD_NODENAME}
head=()
if [[ $node == "$HPCSERVE_HEAD" ]]; then head=(--head); fi

# Agents of a job end with it, so their environment says which job they belong to.
export HPCSERVE_JOB=/shared/jobs/llama8b-1
source runtimes/hpcserve.sh || exit 1

agent=
stopping=no
trap 'stopping=yes; [[ -z $agent ]] || kill -TERM "$agent" 2>/dev/null' TERM INT HUP

pause_s=1
deaths=0
while [[ $stopping == no ]]; do
  started_s=$SECONDS
  "${within[@]}" python -m hpcserve.agent --job /shared/jobs/llama8b-1 --node "$node" --nodes "$HPCSERVE_NODES" "${head[@]}" \
    >>"logs/agent.$node.log" 2>&1 &
  agent=$!
  if [[ $stopping == yes ]]; then kill -TERM "$agent" 2>/dev/null; fi # told before its pid was known
  wait "$agent"
  code=$?
  # A signal interrupts `wait`; only the last one tells how the agent ended.
  while [[ $stopping == yes ]] && kill -0 "$agent" 2>/dev/null; do wait "$agent"; done
  if [[ $stopping == yes ]]; then
    wait "$agent"
    code=$?
  fi
  agent=

  # 0: the agent has ended its workers; 143 (128 + SIGTERM): it was stopped before it could.
  if [[ $code -eq 0 ]]; then exit 0; fi
  if [[ $code -eq 143 || -e failed.json ]]; then break; fi

  # One that lived for a minute was sound: start it again soon. One that dies at once is given longer and longer, and
  # is given up after ten times (about three minutes): a runtime that is not there on this node will not appear.
  if ((SECONDS - started_s > 60)); then pause_s=1 deaths=0; fi
  deaths=$((deaths + 1))
  if ((deaths >= 10)); then
    echo "agent.sh: the agent on $node ended with $code, $deaths times in a row; given up" >>"logs/agent.$node.log"
    break
  fi
  echo "agent.sh: the agent on $node ended with $code; starting it again in $pause_s s" >>"logs/agent.$node.log"
  sleep "$pause_s" &
  wait $!
  if ((pause_s < 32)); then pause_s=$((pause_s * 2)); fi
done

# The last agent died, so nobody ends the workers that it had started.
"${within[@]}" python -m hpcserve.agent --job /shared/jobs/llama8b-1 --node "$node" --end-leftovers >>"logs/agent.$node.log" 2>&1
if [[ $stopping == yes || $code -eq 143 ]]; then exit 0; fi
exit "$code"
