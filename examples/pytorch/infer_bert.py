#!/usr/bin/env python3
"""Serves a BERT encoder with random weights, request after request: stock PyTorch and transformers.

Every request is random token numbers; the first is checked against the CPU, and asked again at the
end, when it must give the same bits. The last line is `result infer_bert CHECKSUM ok`.
"""

import argparse
import hashlib
import os
import sys
import time

# cuBLAS is deterministic only with a workspace of fixed size, which it asks for when it starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import transformers

# Hidden size, layers, heads. The weights are random, so nothing is downloaded.
SIZES = {"tiny": (128, 2, 2), "base": (768, 12, 12), "large": (1024, 24, 16)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--gap-ms", type=float, default=0.0, help="pause between requests")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("infer_bert: PyTorch sees no GPU")
    if options.requests < 1 or not 1 <= options.tokens <= 512:
        parser.error("--requests must be at least 1, --tokens 1 to 512")

    torch.manual_seed(options.seed)
    torch.use_deterministic_algorithms(True)
    hidden, layers, heads = SIZES[options.size]
    config = transformers.BertConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
    )
    on_cpu = transformers.BertModel(config).eval()
    shape = (options.requests, options.batch, options.tokens)
    requests = torch.randint(config.vocab_size, shape)
    with torch.inference_mode():
        expected = on_cpu(input_ids=requests[0]).last_hidden_state
        model = on_cpu.cuda()
        print(f"serving {options.requests} requests to BERT {options.size}")

        def answer(number):
            return model(input_ids=requests[number].cuda()).last_hidden_state.cpu()

        digest = hashlib.blake2b(digest_size=8)
        latencies = []
        for number in range(options.requests):
            started = time.perf_counter()
            states = answer(number)
            latencies.append((time.perf_counter() - started) * 1e3)
            digest.update(states.numpy().tobytes())
            if number == 0:
                first = states
            time.sleep(options.gap_ms / 1e3)

        error = (first - expected).abs().max().item()
        if not error < 0.05:
            sys.exit(f"infer_bert: the GPU and the CPU differ by {error}")
        if not torch.equal(answer(0), first):
            sys.exit("infer_bert: the same request gave two answers")

    # The first request also loads kernels; it is left out where there are others.
    latencies = sorted(latencies[1:] or latencies)
    p50, p99 = (latencies[round((len(latencies) - 1) * share)] for share in (0.5, 0.99))
    print(f"latency in ms: p50 {p50:.3f}, p99 {p99:.3f}, worst {latencies[-1]:.3f}")
    print(f"result infer_bert {digest.hexdigest()} ok")


if __name__ == "__main__":
    main()
