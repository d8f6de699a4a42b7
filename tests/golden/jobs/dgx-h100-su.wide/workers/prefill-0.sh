#!/bin/bash
# prefill-0: prefill worker on dgx01 of dgx-h100-su, GPU 0,2,4,6, NIC mlx5_0:1, mlx5_4:1, mlx5_6:1, mlx5_10:1, cores 0-55
#
# separate prefill and decode: moving the KV takes 8.8 ms on the slowest path, 1.9% of the prefill's 455.1 ms, under the limit of 10%
# the KV of 4096 input tokens, 1342.18 MB, takes 8.8 ms (predicted) from prefill-0 to decode-0, the slowest path (across-leaves, 152 GB/s: NDR 400 Gbit/s (RA-11333); UCX's own estimate for RDMA reads on one NDR path, 38 of 50 GB/s)
# computing 4096 tokens takes 455.1 ms at 9000 tokens/s, with the transfer 463.9 ms; 36.1 ms are left of the TTFT limit of 500 ms
# a rule of thumb on one typical request, not simulated; a latency model (--latency) would tell more
#
# Started by the agent of dgx01. By hand, on dgx01:
#   bash /shared/jobs/llama-1/workers/prefill-0.sh

umask 077
cd -- /shared/jobs/llama-1 || exit 1
source runtimes/vllm.sh || exit 1

export CUDA_VISIBLE_DEVICES=GPU-dgx01-0,GPU-dgx01-2,GPU-dgx01-4,GPU-dgx01-6
export DO_NOT_TRACK=1
export HF_HUB_OFFLINE=1
export TRANSFORMERS_OFFLINE=1
export UCX_NET_DEVICES=mlx5_0:1,mlx5_4:1,mlx5_6:1,mlx5_10:1
export UCX_TLS=rc,cuda_copy,cuda_ipc
export VLLM_HOST_IP=198.18.77.1
export VLLM_NIXL_SIDE_CHANNEL_HOST=198.19.77.1
export VLLM_NIXL_SIDE_CHANNEL_PORT=20001
export VLLM_NO_USAGE_STATS=1

# The engine takes its key from the environment: arguments can be read by everybody on the node.
VLLM_API_KEY=$(<keys/engine.key)
export VLLM_API_KEY

exec taskset --cpu-list 0-55 "${within[@]}" vllm serve /models/llama \
    --served-model-name llama \
    --host 198.18.77.1 \
    --port 20000 \
    --tensor-parallel-size 4 \
    --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_buffer_device":"cuda","kv_load_failure_policy":"fail","kv_connector_extra_config":{"kv_lease_duration":30}}'
