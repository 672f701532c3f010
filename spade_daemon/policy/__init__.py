"""The policy: models on disk, the vLLM server, tokens in and out, weight swaps."""
