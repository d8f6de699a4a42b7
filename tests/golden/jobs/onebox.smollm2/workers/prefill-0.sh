#!/bin/bash
# prefill-0: prefill worker on node01 of onebox, GPU 0, NIC data0, cores 0-7
#
# serve aggregated until the prefill speed is known: separating pays if the prefill of 32 tokens takes more than 4935.8 ms; workload.prefill_tokens_per_s (measured) or a latency model (--latency) would tell
# the KV of 512 input tokens, 11.80 MB, takes 493.6 ms (predicted) from prefill-0 to decode-0, the slowest path (across-leaves, 0.0239 GB/s: TCP payload over Ethernet: 1448 of 1514 bytes of each frame)
# prefix reuse first: 93.8% of the input is a cached prefix; only 32 tokens are computed, and the KV of 512 would move: keep requests where their prefix is (KV-aware routing, offload)
#
# Started by the agent of node01. By hand, on node01:
#   bash /shared/jobs/smollm2-1/workers/prefill-0.sh

umask 077
cd -- /shared/jobs/smollm2-1 || exit 1
source runtimes/vllm.sh || exit 1

export DO_NOT_TRACK=1
export GLOO_SOCKET_IFNAME=ctl0
export GREETING='it'"'"'s "$HOME"'
export HF_HUB_OFFLINE=1
export OMP_NUM_THREADS=8
export TRANSFORMERS_OFFLINE=1
export UCX_NET_DEVICES=data0
export UCX_RCACHE_MAX_UNRELEASED=1024
export UCX_TLS=tcp
export VLLM_CPU_OMP_THREADS_BIND=nobind
export VLLM_ENABLE_V1_MULTIPROCESSING=0
export VLLM_HOST_IP=198.18.77.1
export VLLM_NIXL_SIDE_CHANNEL_HOST=198.19.77.1
export VLLM_NIXL_SIDE_CHANNEL_PORT=20001
export VLLM_NO_USAGE_STATS=1

# The engine takes its key from the environment: arguments can be read by everybody on the node.
VLLM_API_KEY=$(<keys/engine.key)
export VLLM_API_KEY

exec taskset --cpu-list 0-7 "${within[@]}" vllm serve /models/smollm2 \
    --served-model-name smollm2 \
    --host 198.18.77.1 \
    --port 20000 \
    --tensor-parallel-size 1 \
    --enforce-eager \
    --kv-cache-memory-bytes 536870912 \
    --block-size 32 \
    --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_buffer_device":"cpu","kv_load_failure_policy":"fail","kv_connector_extra_config":{"kv_lease_duration":30}}'
