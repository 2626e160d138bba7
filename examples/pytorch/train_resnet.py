#!/usr/bin/env python3
"""Trains a torchvision ResNet with random weights on random images: stock PyTorch, no data needed.

Two runs with the same options end in the same weights, bit for bit, on the same kind of GPU: the
last line, `result train_resnet CHECKSUM ok`, is made of them.
"""

import argparse
import hashlib
import math
import os
import sys
import time

# cuBLAS is deterministic only with a workspace of fixed size, which it asks for when it starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torchvision


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet18", help="a ResNet of torchvision (%(default)s)")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--image", type=int, default=64, help="height and width (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("train_resnet: PyTorch sees no GPU")
    if options.steps < 2 or options.batch < 2:
        parser.error("--steps and --batch must be at least 2")

    torch.manual_seed(options.seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    model = torchvision.models.get_model(options.model, num_classes=10).cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    images = torch.randn(options.batch, 3, options.image, options.image).cuda()
    labels = (torch.arange(options.batch) % 10).cuda()
    print(f"training {options.model} on one batch of {options.batch} for {options.steps} steps")

    losses = []
    started = time.perf_counter()
    for step in range(options.steps):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % max(1, options.steps // 5) == 0 or step == options.steps - 1:
            print(f"step {step}: loss {losses[-1]:.6f}")
    seconds = time.perf_counter() - started
    print(f"{options.steps * options.batch / seconds:.1f} images/s")

    if not all(math.isfinite(loss) for loss in losses) or losses[-1] >= losses[0]:
        sys.exit(f"train_resnet: the loss did not fall: {losses[0]} before, {losses[-1]} after")
    digest = hashlib.blake2b(digest_size=8)
    for tensor in model.state_dict().values():
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    print(f"result train_resnet {digest.hexdigest()} ok")


if __name__ == "__main__":
    main()
