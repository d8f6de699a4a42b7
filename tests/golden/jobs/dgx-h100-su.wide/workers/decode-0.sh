#!/bin/bash
# decode-0: decode worker on dgx02 of dgx-h100-su, GPU 0-7, NIC mlx5_0:1, mlx5_3:1, mlx5_4:1, mlx5_5:1, mlx5_6:1, mlx5_9:1, mlx5_10:1, mlx5_11:1, cores 0-111
#
# separate prefill and decode: moving the KV takes 8.8 ms on the slowest path, 1.9% of the prefill's 455.1 ms, under the limit of 10%
# the KV of 4096 input tokens, 1342.18 MB, takes 8.8 ms (predicted) from prefill-0 to decode-0, the slowest path (across-leaves, 152 GB/s: NDR 400 Gbit/s (RA-11333); UCX's own estimate for RDMA reads on one NDR path, 38 of 50 GB/s)
# computing 4096 tokens takes 455.1 ms at 9000 tokens/s, with the transfer 463.9 ms; 36.1 ms are left of the TTFT limit of 500 ms
# a rule of thumb on one typical request, not simulated; a latency model (--latency) would tell more
#
# Started by the agent of dgx02. By hand, on dgx02:
#   bash /shared/jobs/llama-1/workers/decode-0.sh

umask 077
cd -- /shared/jobs/llama-1 || exit 1
source runtimes/vllm.sh || exit 1

export CUDA_VISIBLE_DEVICES=GPU-dgx02-0,GPU-dgx02-1,GPU-dgx02-2,GPU-dgx02-3,GPU-dgx02-4,GPU-dgx02-5,GPU-dgx02-6,GPU-dgx02-7
export DO_NOT_TRACK=1
export HF_HUB_OFFLINE=1
export TRANSFORMERS_OFFLINE=1
export UCX_NET_DEVICES=mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_9:1,mlx5_10:1,mlx5_11:1
export UCX_TLS=rc,cuda_copy,cuda_ipc
export VLLM_HOST_IP=198.18.77.2
export VLLM_NIXL_SIDE_CHANNEL_HOST=198.19.77.2
export VLLM_NIXL_SIDE_CHANNEL_PORT=20001
export VLLM_NO_USAGE_STATS=1

# The engine takes its key from the environment: arguments can be read by everybody on the node.
VLLM_API_KEY=$(<keys/engine.key)
export VLLM_API_KEY

exec taskset --cpu-list 0-111 "${within[@]}" vllm serve /models/llama \
    --served-model-name llama \
    --host 198.18.77.2 \
    --port 20000 \
    --tensor-parallel-size 8 \
    --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_consumer","kv_buffer_device":"cuda","kv_load_failure_policy":"fail","kv_connector_extra_config":{"kv_lease_duration":30}}'
