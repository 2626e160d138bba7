#!/usr/bin/env python3
"""A program that asks for more GPU memory than there is, and goes on: PyTorch, or the bare driver.

    baton run -- python3 bench/recovery.py torch

Prints a JSON object. Under Baton the GPU is as large as the arena; a driver that says "out of
memory" there must leave the program as able as on a full GPU. PyTorch is led into it in two ways:
it gives its cache back and tries again by itself, and it tells the program, which does so.
"""

import argparse
import json
import sys

from common.programs import ABSENT

CHUNK = 64 << 20


def with_torch(chunk):
    """PyTorch: what it had, whether it recovered, and that it computes right afterwards."""
    import torch

    def take(count):
        return torch.empty(count, dtype=torch.uint8, device="cuda")

    def holds(piece, value):
        # The least and the greatest word; a sum of bytes would need eight times the piece.
        word = int.from_bytes(bytes([value] * 8), "little", signed=True)
        return all(int(found) == word for found in piece.view(torch.int64).aminmax())

    # Keeps a little room for the results of those when all else is full.
    room = torch.zeros(1, device="cuda")
    free, total = torch.cuda.mem_get_info()
    # A cache of freed pieces that is in the way of one large piece.
    pieces = [take(chunk) for _ in range(max(1, int(0.6 * free) // chunk))]
    pieces.clear()
    large = take(int(0.7 * free) // 8 * 8)
    large.fill_(7)
    stats = torch.cuda.memory_stats()
    retries = stats["num_alloc_retries"]
    large_is_right = holds(large, 7)
    del large
    torch.cuda.empty_cache()

    held, said = [], None
    while said is None and len(held) * chunk < 2 * total:
        try:
            held.append(take(chunk).fill_(len(held) % 251))
        except torch.OutOfMemoryError as error:
            said = str(error).splitlines()[0]
    held_is_right = all(holds(piece, i % 251) for i, piece in enumerate(held))
    count = len(held)
    held.clear()
    torch.cuda.empty_cache()
    matrix = torch.eye(512, device="cuda") * 3
    product_is_right = bool((matrix @ matrix == torch.eye(512, device="cuda") * 9).all())
    again = take(int(0.7 * free)).numel()
    del room
    return {
        "free_bytes": free,
        "total_bytes": total,
        "filled_bytes": count * chunk,
        "said": said,
        "retries": retries,
        "recovered": bool(
            retries and said and large_is_right and held_is_right and product_is_right and again
        ),
    }


def with_driver(chunk):
    """The driver API: the same without a cache between."""
    from ctypes import byref, c_size_t

    from loads.driver_ctypes import DriverError
    from loads.driver_pieces import GRANULE, OUT_OF_MEMORY, Pieces

    pieces = Pieces()
    free, total = c_size_t(), c_size_t()
    pieces.session.cuda.by_name("cuMemGetInfo_v2", byref(free), byref(total))
    pieces.make_room(2 * total.value // GRANULE)
    count, said = 0, None
    while said is None and count * chunk < 2 * total.value:
        try:
            pieces.allocate(1, chunk)
            count += 1
        except DriverError as error:
            said = error.code
    pieces.write_all(1)
    before = pieces.add_up() if count > 1 else None
    pieces.write_all(1)
    held_is_right = before is not None and pieces.add_up() == before
    pieces.free()
    pieces.allocate(max(1, int(0.7 * free.value) // chunk), chunk)
    pieces.write_all(2)
    again = pieces.add_up()
    result = {
        "free_bytes": free.value,
        "total_bytes": total.value,
        "filled_bytes": count * chunk,
        "said": said,
        "retries": None,
        "recovered": said == OUT_OF_MEMORY and held_is_right and len(again) > 0,
    }
    pieces.close()
    return result


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("way", choices=["torch", "driver"])
    parser.add_argument("--chunk", type=int, default=CHUNK, help="bytes of one allocation")
    arguments = parser.parse_args()
    try:
        result = (with_torch if arguments.way == "torch" else with_driver)(arguments.chunk)
    except ModuleNotFoundError as error:
        print(f"not installed: {error.name}", file=sys.stderr)
        sys.exit(ABSENT)
    print(json.dumps(result))
    sys.exit(0 if result["recovered"] else 1)


if __name__ == "__main__":
    main()
