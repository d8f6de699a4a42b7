#!/bin/bash
# prefill-1: prefill worker on rack1t03 of gb200-nvl72, GPU 0-3, NIC mlx5_0:1, mlx5_1:1, mlx5_2:1, mlx5_3:1, cores 0-143
#
# separate prefill and decode: moving the KV takes 0.47 ms on the slowest path, 0.2% of the prefill's 204.8 ms, under the limit of 10%
# the KV of 4096 input tokens, 1342.18 MB, takes 0.47 ms (predicted) from prefill-0 to decode-0, the slowest path (same-leaf, 2880 GB/s: NVLink 5, 18 links a GPU (DGX SuperPOD GB200, network fabrics); 0.8 is assumed)
# computing 4096 tokens takes 204.8 ms at 20000 tokens/s, with the transfer 205.3 ms; 294.7 ms are left of the TTFT limit of 500 ms
# a rule of thumb on one typical request, not simulated; a latency model (--latency) would tell more
#
# Started by the agent of rack1t03. By hand, on rack1t03:
#   bash /shared/jobs/llama-1/workers/prefill-1.sh

umask 077
cd -- /shared/jobs/llama-1 || exit 1
source runtimes/vllm.sh || exit 1

export CUDA_VISIBLE_DEVICES=GPU-rack1t03-0,GPU-rack1t03-1,GPU-rack1t03-2,GPU-rack1t03-3
export DO_NOT_TRACK=1
export HF_HUB_OFFLINE=1
export TRANSFORMERS_OFFLINE=1
export UCX_CUDA_IPC_ENABLE_MNNVL=y
export UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1
export UCX_TLS=rc,cuda_copy,cuda_ipc
export VLLM_HOST_IP=198.18.77.3
export VLLM_NIXL_SIDE_CHANNEL_HOST=198.19.77.3
export VLLM_NIXL_SIDE_CHANNEL_PORT=20001
export VLLM_NO_USAGE_STATS=1

# The engine takes its key from the environment: arguments can be read by everybody on the node.
VLLM_API_KEY=$(<keys/engine.key)
export VLLM_API_KEY

exec taskset --cpu-list 0-143 "${within[@]}" vllm serve /models/llama \
    --served-model-name llama \
    --host 198.18.77.3 \
    --port 20000 \
    --tensor-parallel-size 4 \
    --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_buffer_device":"cuda","kv_load_failure_policy":"fail","kv_connector_extra_config":{"kv_lease_duration":30}}'
