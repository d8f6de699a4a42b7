#!/bin/bash
# aggregated-1: aggregated worker on gpu01 of pcie-25gbe, GPU 1, NIC ens1f0np0, cores 16-31
#
# serve aggregated, unless decode must not be disturbed: moving the KV takes 202.1 ms on the slowest path, 29.6% of the prefill's 682.7 ms, not under the limit of 10%
# the KV of 4096 input tokens, 536.87 MB, takes 202.1 ms (predicted) from prefill-0 to decode-0, the slowest path (same-leaf, 2.656 GB/s: 25GBASE; TCP at 0.85 of the line is assumed, near what one stream of UCX reaches on 1 Gbit/s (0.87))
# computing 4096 tokens takes 682.7 ms at 6000 tokens/s, with the transfer 884.8 ms; separate or not, the TTFT limit of 500 ms is missed: try more tensor_parallel, or a looser slo.ttft_ms
# slow link: the transfer takes 29.6% of the prefill's time, not under 10%; these prompts would need a path of 7.86 GB/s
# a rule of thumb on one typical request, not simulated; a latency model (--latency) would tell more
# transfers and paths here are those of prefill and decode on workers of their own, which was not taken
#
# Started by the agent of gpu01. By hand, on gpu01:
#   bash /shared/jobs/llama8b-1/workers/aggregated-1.sh

umask 077
cd -- /shared/jobs/llama8b-1 || exit 1
source runtimes/vllm.sh || exit 1

export CUDA_VISIBLE_DEVICES=GPU-gpu01-1
export DO_NOT_TRACK=1
export GLOO_SOCKET_IFNAME=ens1f0np0
export HF_HUB_OFFLINE=1
export TRANSFORMERS_OFFLINE=1
export VLLM_HOST_IP=198.18.77.1
export VLLM_NO_USAGE_STATS=1

# The engine takes its key from the environment: arguments can be read by everybody on the node.
VLLM_API_KEY=$(<keys/engine.key)
export VLLM_API_KEY

exec taskset --cpu-list 16-31 "${within[@]}" vllm serve /models/llama8b \
    --served-model-name llama8b \
    --host 198.18.77.1 \
    --port 20100 \
    --tensor-parallel-size 1
