#!/bin/bash
# prefill-0: prefill worker on h1 of mixed, GPU 0-2,4, NIC mlx5_0:1, mlx5_1:1, cores 0-47
#
# serve aggregated, unless decode must not be disturbed: moving the KV takes 28.3 ms on the slowest path, 20.7% of the prefill's 136.5 ms, not under the limit of 10%
# the KV of 4096 input tokens, 536.87 MB, takes 28.3 ms (predicted) from prefill-0 to decode-0, the slowest path (across-leaves, 19 GB/s: made)
# computing 4096 tokens takes 136.5 ms at 30000 tokens/s, with the transfer 164.8 ms; 335.2 ms are left of the TTFT limit of 500 ms
# slow link: the transfer takes 20.7% of the prefill's time, not under 10%; these prompts would need a path of 39.3 GB/s
# a rule of thumb on one typical request, not simulated; a latency model (--latency) would tell more
#
# Started by the agent of h1. By hand, on h1:
#   bash /shared/jobs/llama8b-1/workers/prefill-0.sh

umask 077
cd -- /shared/jobs/llama8b-1 || exit 1
source runtimes/vllm.sh || exit 1

export CUDA_VISIBLE_DEVICES=GPU-h1-0,GPU-h1-1,GPU-h1-2,GPU-h1-4
export DO_NOT_TRACK=1
export HF_HUB_OFFLINE=1
export TRANSFORMERS_OFFLINE=1
export UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1
export UCX_TLS=rc,cuda_copy,cuda_ipc
export VLLM_HOST_IP=198.18.77.4
export VLLM_NIXL_SIDE_CHANNEL_HOST=198.19.77.4
export VLLM_NIXL_SIDE_CHANNEL_PORT=20001
export VLLM_NO_USAGE_STATS=1

# The engine takes its key from the environment: arguments can be read by everybody on the node.
VLLM_API_KEY=$(<keys/engine.key)
export VLLM_API_KEY

exec taskset --cpu-list 0-47 "${within[@]}" vllm serve /models/llama8b \
    --served-model-name llama8b \
    --host 198.18.77.4 \
    --port 20000 \
    --tensor-parallel-size 4 \
    --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_buffer_device":"cuda","kv_load_failure_policy":"fail","kv_connector_extra_config":{"kv_lease_duration":30}}'
