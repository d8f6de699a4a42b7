#!/bin/bash
# aggregated-0: aggregated worker on node01 of onebox, GPU 0, NIC data0, cores 0-7
#
# serve aggregated: the service has no pools of prefill and decode workers, nothing is handed over
#
# Started by the agent of node01. By hand, on node01:
#   bash /shared/jobs/whole-1/workers/aggregated-0.sh

umask 077
cd -- /shared/jobs/whole-1 || exit 1
source runtimes/hpcserve.sh || exit 1

export GLOO_SOCKET_IFNAME=ctl0
export VLLM_HOST_IP=198.18.77.1

# The engine takes its key from the environment: arguments can be read by everybody on the node.
VLLM_API_KEY=$(<keys/engine.key)
export VLLM_API_KEY

exec taskset --cpu-list 0-7 "${within[@]}" python -m hpcserve.simengine serve /models/smollm2 \
    --served-model-name smollm2 \
    --host 198.18.77.1 \
    --port 20000 \
    --tensor-parallel-size 1
