"""Long kernels that fill the GPU, and what they compute compared bit for bit."""

import torch

from loads.service import Training
from loads.torch_filler import Filler

# One product of such matrices takes an H200 about 100 ms.
SIDE = 13_000


def products(device, side):
    """A function that multiplies the same matrices in one kernel, and gives the product's bits.

    They are added up, and waited for: no more than one product is ever under way.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    generator = torch.Generator(device=device).manual_seed(1)
    left, right = (torch.randn(side, side, device=device, generator=generator) for _ in range(2))
    product = torch.empty(side, side, device=device)
    # In strips: a sum of other type makes a copy.
    strips = product.view(torch.int32).chunk(50)

    def multiply():
        torch.matmul(left, right, out=product)
        return sum(torch.sum(strip, dtype=torch.int64) for strip in strips).item()

    return multiply


def kernel(device, size):
    """One product after the other; ends the program if one is not as the first."""
    multiply = products(device, SIDE if size == "full" else 64)
    filler = Filler(device)
    first = multiply()

    def step(i):
        filler.touch(i)
        if multiply() != first:
            raise ValueError(f"product {i} differs from the first")

    return Training(step, filler.wait, filler.take)
