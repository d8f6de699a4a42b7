#!/bin/bash
# sim-1: service sim on site local
#
# sim on local: disaggregated, before nodes are granted
#
# loopback
# ├─ local1  [P0]  router
# └─ local2  [D0]
#
#      worker      node     GPUs   TP   NICs   cores
# ──────────────────────────────────────────────────
# P0   prefill-0   local1   0      1    lo     0-7
# D0   decode-0    local2   0      1    lo     0-7
#
# prefill → decode       distance      GB/s   KV MB   ms (predicted)   links
# ─────────────────────────────────────────────────────────────────────────────────────────────────
# prefill-0 → decode-0   same-leaf   0.2275   11.80             51.9   local1.lo loopback local2.lo
# Rate same-leaf: NIXL over UCX TCP inside one 2-core machine, unshaped: 1.8 to 2.6 Gbit/s measured with 47 MB reads
#
# Verdict (asked for: disaggregated; served: disaggregated):
#   serve aggregated until the prefill speed is known: separating pays if the prefill of 32 tokens takes more than 518.5 ms; workload.prefill_tokens_per_s (measured) or a latency model (--latency) would tell
#   the KV of 512 input tokens, 11.80 MB, takes 51.9 ms (predicted) from prefill-0 to decode-0, the slowest path (same-leaf, 0.2275 GB/s: NIXL over UCX TCP inside one 2-core machine, unshaped: 1.8 to 2.6 Gbit/s measured with 47 MB reads)
#   prefix reuse first: 93.8% of the input is a cached prefix; only 32 tokens are computed, and the KV of 512 would move: keep requests where their prefix is (KV-aware routing, offload)
#
# Where Slurm leaves the choice, other nodes of the same kind may be granted: plan.json then says which.
#
# Run without Slurm, as processes of this host: bash local.sh
# It starts one agent for each node of the plan; the agents start the workers where the plan puts them.

umask 077
cd -- /shared/jobs/sim-1 || exit 1

# Started a second time, it must not read what its first life left.
rm -f -- exit.json failed.json stop.json decided.json plan.json router.json router.state.json router.leader \
  nodes/*.json refused/*.json endpoints/*.json heartbeats/*.json workers/*.state.json

# The first node is the head: its agent places the workers and runs the router.
export HPCSERVE_HEAD=local1 HPCSERVE_NODES=2
agents=()
stopping=no
trap 'stopping=yes; kill -TERM "${agents[@]}" 2>/dev/null' TERM INT HUP
# Killed itself, it takes its agents with it, where util-linux is there to see to that.
with_me=()
if command -v setpriv >/dev/null; then with_me=(setpriv --pdeathsig TERM); fi
for node in local1 local2; do
  if [[ $stopping == yes ]]; then break; fi
  HPCSERVE_NODE=$node "${with_me[@]}" bash agent.sh &
  agents+=("$!")
done
if [[ $stopping == yes ]]; then kill -TERM "${agents[@]}" 2>/dev/null; fi # told before the last one's pid was known

# The highest exit code of all agents, as srun gives it.
code=0
for agent in "${agents[@]}"; do
  wait "$agent"
  its=$?
  while kill -0 "$agent" 2>/dev/null; do
    wait "$agent"
    its=$?
  done
  if ((its > code)); then code=$its; fi
done

# Agents that ended well prove nothing when the service as a whole gave up.
if [[ -e failed.json && $code -eq 0 ]]; then code=1; fi
if [[ $stopping == yes && ! -e failed.json ]]; then code=0; fi
printf '{"schema": "hpcserve.exit/1", "code": %d}\n' "$code" >.exit.json.$$
mv -f -- .exit.json.$$ exit.json
exit "$code"
