#!/bin/bash
# decode-2: decode worker on g1n002 of slingshot-a100, GPU 1, NIC cxi1, cores 16-31
#
# separate prefill and decode: moving the KV takes 26.8 ms on the slowest path, 7.9% of the prefill's 341.3 ms, under the limit of 10%
# the KV of 4096 input tokens, 536.87 MB, takes 26.8 ms (predicted) from prefill-0 to decode-2, the slowest path (same-leaf, 20 GB/s: 200 Gbit/s one way (SC 2020); about 20 GB/s seen through one NIC (libfabric issue 9802))
# computing 4096 tokens takes 341.3 ms at 12000 tokens/s, with the transfer 368.2 ms; 131.8 ms are left of the TTFT limit of 500 ms
# a rule of thumb on one typical request, not simulated; a latency model (--latency) would tell more
#
# Started by the agent of g1n002. By hand, on g1n002:
#   bash /shared/jobs/llama8b-1/workers/decode-2.sh

umask 077
cd -- /shared/jobs/llama8b-1 || exit 1
source runtimes/vllm.sh || exit 1

export CUDA_VISIBLE_DEVICES=GPU-g1n002-1,GPU-g1n002-0,GPU-g1n002-2
export DO_NOT_TRACK=1
export FI_CXI_DEFAULT_CQ_SIZE=131072
export FI_CXI_DISABLE_HOST_REGISTER=1
export FI_CXI_RX_MATCH_MODE=hybrid
export FI_MR_CACHE_MONITOR=userfaultfd
export GLOO_SOCKET_IFNAME=hsn0
export HF_HUB_OFFLINE=1
export TRANSFORMERS_OFFLINE=1
export VLLM_HOST_IP=198.18.77.2
export VLLM_NIXL_SIDE_CHANNEL_HOST=198.19.77.2
export VLLM_NIXL_SIDE_CHANNEL_PORT=20101
export VLLM_NO_USAGE_STATS=1

# The engine takes its key from the environment: arguments can be read by everybody on the node.
VLLM_API_KEY=$(<keys/engine.key)
export VLLM_API_KEY

exec taskset --cpu-list 16-31 "${within[@]}" vllm serve /models/llama8b \
    --served-model-name llama8b \
    --host 198.18.77.2 \
    --port 20100 \
    --tensor-parallel-size 1 \
    --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_consumer","kv_buffer_device":"cuda","kv_load_failure_policy":"fail","kv_connector_extra_config":{"kv_lease_duration":30,"backends":["LIBFABRIC"]}}'
