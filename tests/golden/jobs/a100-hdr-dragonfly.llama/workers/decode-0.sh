#!/bin/bash
# decode-0: decode worker on c1n002 of a100-hdr-dragonfly, GPU 0-3, NIC mlx5_0:1, mlx5_1:1, mlx5_2:1, mlx5_3:1, cores 0-31
#
# separate prefill and decode: moving the KV takes 35.3 ms on the slowest path, 3.9% of the prefill's 910.2 ms, under the limit of 10%
# the KV of 4096 input tokens, 1342.18 MB, takes 35.3 ms (predicted) from prefill-0 to decode-0, the slowest path (same-leaf, 38 GB/s: HDR100, a quarter of the node's 400 Gbit/s (CINECA); 0.76 is UCX's for NDR, assumed here)
# computing 4096 tokens takes 910.2 ms at 4500 tokens/s, with the transfer 945.5 ms; separate or not, the TTFT limit of 500 ms is missed: try more tensor_parallel, or a looser slo.ttft_ms
# a rule of thumb on one typical request, not simulated; a latency model (--latency) would tell more
#
# Started by the agent of c1n002. By hand, on c1n002:
#   bash /shared/jobs/llama-1/workers/decode-0.sh

umask 077
cd -- /shared/jobs/llama-1 || exit 1
source runtimes/vllm.sh || exit 1

export CUDA_VISIBLE_DEVICES=GPU-c1n002-0,GPU-c1n002-1,GPU-c1n002-2,GPU-c1n002-3
export DO_NOT_TRACK=1
export HF_HUB_OFFLINE=1
export TRANSFORMERS_OFFLINE=1
export UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1
export UCX_TLS=rc,cuda_copy,cuda_ipc
export VLLM_HOST_IP=198.18.77.2
export VLLM_NIXL_SIDE_CHANNEL_HOST=198.19.77.2
export VLLM_NIXL_SIDE_CHANNEL_PORT=20001
export VLLM_NO_USAGE_STATS=1

# The engine takes its key from the environment: arguments can be read by everybody on the node.
VLLM_API_KEY=$(<keys/engine.key)
export VLLM_API_KEY

exec taskset --cpu-list 0-31 "${within[@]}" vllm serve /models/llama \
    --served-model-name llama \
    --host 198.18.77.2 \
    --port 20000 \
    --tensor-parallel-size 4 \
    --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_consumer","kv_buffer_device":"cuda","kv_load_failure_policy":"fail","kv_connector_extra_config":{"kv_lease_duration":30}}'
