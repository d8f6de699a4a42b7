#!/bin/bash
# prefill-1: prefill worker on h02 of h100-ib, GPU 0-3, NIC mlx5_0:1, mlx5_1:1, mlx5_2:1, mlx5_3:1, cores 0-47
#
# separate prefill and decode: moving the KV takes 8.8 ms on the slowest path, 1.9% of the prefill's 455.1 ms, under the limit of 10%
# the KV of 4096 input tokens, 1342.18 MB, takes 8.8 ms (predicted) from prefill-0 to decode-1, the slowest path (same-leaf, 152 GB/s: UCX's own estimate for RDMA reads on one NDR path, 38 of 50 GB/s (UCT_IB_NDR_READ_PATH_BANDWIDTH))
# computing 4096 tokens takes 455.1 ms at 9000 tokens/s, with the transfer 463.9 ms; 36.1 ms are left of the TTFT limit of 500 ms
# a rule of thumb on one typical request, not simulated; a latency model (--latency) would tell more
#
# Started by the agent of h02. By hand, on h02:
#   bash /shared/jobs/llama-1/workers/prefill-1.sh

umask 077
cd -- /shared/jobs/llama-1 || exit 1
source runtimes/vllm.sh || exit 1

export CUDA_VISIBLE_DEVICES=GPU-h02-0,GPU-h02-1,GPU-h02-2,GPU-h02-3,GPU-h02-4,GPU-h02-5,GPU-h02-6,GPU-h02-7
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

exec taskset --cpu-list 0-47 "${within[@]}" vllm serve /models/llama \
    --served-model-name llama \
    --host 198.18.77.2 \
    --port 20000 \
    --tensor-parallel-size 4 \
    --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_buffer_device":"cuda","kv_load_failure_policy":"fail","kv_connector_extra_config":{"kv_lease_duration":30}}'
