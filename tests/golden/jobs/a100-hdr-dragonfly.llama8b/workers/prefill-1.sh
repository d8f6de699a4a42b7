#!/bin/bash
# prefill-1: prefill worker on c1n001 of a100-hdr-dragonfly, GPU 2, NIC mlx5_2:1, cores 16-23
#
# serve aggregated until the prefill speed is known: separating pays if the prefill of 4096 tokens takes more than 565.1 ms; workload.prefill_tokens_per_s (measured) or a latency model (--latency) would tell
# the KV of 4096 input tokens, 536.87 MB, takes 56.5 ms (predicted) from prefill-0 to decode-2, the slowest path (same-leaf, 9.5 GB/s: HDR100, a quarter of the node's 400 Gbit/s (CINECA); 0.76 is UCX's for NDR, assumed here)
#
# Started by the agent of c1n001. By hand, on c1n001:
#   bash /shared/jobs/llama8b-1/workers/prefill-1.sh

umask 077
cd -- /shared/jobs/llama8b-1 || exit 1
source runtimes/vllm.sh || exit 1

export CUDA_VISIBLE_DEVICES=GPU-c1n001-2,GPU-c1n001-1,GPU-c1n001-3
export DO_NOT_TRACK=1
export HF_HUB_OFFLINE=1
export TRANSFORMERS_OFFLINE=1
export UCX_NET_DEVICES=mlx5_2:1
export UCX_TLS=rc,cuda_copy,cuda_ipc
export VLLM_HOST_IP=198.18.77.1
export VLLM_NIXL_SIDE_CHANNEL_HOST=198.19.77.1
export VLLM_NIXL_SIDE_CHANNEL_PORT=20201
export VLLM_NO_USAGE_STATS=1

# The engine takes its key from the environment: arguments can be read by everybody on the node.
VLLM_API_KEY=$(<keys/engine.key)
export VLLM_API_KEY

exec taskset --cpu-list 16-23 "${within[@]}" vllm serve /models/llama8b \
    --served-model-name llama8b \
    --host 198.18.77.1 \
    --port 20200 \
    --tensor-parallel-size 1 \
    --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_buffer_device":"cuda","kv_load_failure_policy":"fail","kv_connector_extra_config":{"kv_lease_duration":30}}'
