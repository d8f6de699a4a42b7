#!/bin/bash
# prefill-0: prefill worker on local1 of local, GPU 0, NIC lo, cores 0-7
#
# serve aggregated until the prefill speed is known: separating pays if the prefill of 32 tokens takes more than 518.5 ms; workload.prefill_tokens_per_s (measured) or a latency model (--latency) would tell
# the KV of 512 input tokens, 11.80 MB, takes 51.9 ms (predicted) from prefill-0 to decode-0, the slowest path (same-leaf, 0.2275 GB/s: NIXL over UCX TCP inside one 2-core machine, unshaped: 1.8 to 2.6 Gbit/s measured with 47 MB reads)
# prefix reuse first: 93.8% of the input is a cached prefix; only 32 tokens are computed, and the KV of 512 would move: keep requests where their prefix is (KV-aware routing, offload)
#
# Started by the agent of local1. By hand, on local1:
#   bash /shared/jobs/sim-1/workers/prefill-0.sh

umask 077
cd -- /shared/jobs/sim-1 || exit 1
source runtimes/hpcserve.sh || exit 1

export GLOO_SOCKET_IFNAME=lo
export UCX_NET_DEVICES=lo
export UCX_TLS=tcp
export VLLM_HOST_IP=198.18.77.1
export VLLM_NIXL_SIDE_CHANNEL_HOST=198.19.77.1
export VLLM_NIXL_SIDE_CHANNEL_PORT=20001

# The engine takes its key from the environment: arguments can be read by everybody on the node.
VLLM_API_KEY=$(<keys/engine.key)
export VLLM_API_KEY

exec taskset --cpu-list 0-7 "${within[@]}" python -m hpcserve.simengine serve /models/smollm2 \
    --served-model-name smollm2 \
    --host 198.18.77.1 \
    --port 20000 \
    --tensor-parallel-size 1 \
    --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_buffer_device":"cpu","kv_load_failure_policy":"fail","kv_connector_extra_config":{"kv_lease_duration":30}}'
