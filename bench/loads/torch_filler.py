"""Memory that a program has only to fill the GPU, in PyTorch."""

import contextlib

import torch

PIECE = 64 << 20


class Filler:
    """Pieces of random words, one of which is written at each touch."""

    def __init__(self, device):
        self.device, self.pieces = device, []

    def touch(self, i):
        """Writes one piece, if there is one; `i` says which."""
        if self.pieces:
            self.pieces[i % len(self.pieces)].add_(1)

    def take(self, count):
        """Takes so many bytes, as much of that as there is: how many."""
        taken = 0
        with contextlib.suppress(torch.OutOfMemoryError):
            while taken + PIECE <= count:
                # Random words: zeros need no copy, so they would be no load.
                piece = torch.empty(PIECE // 8, dtype=torch.int64, device=self.device)
                self.pieces.append(piece.random_())
                taken += PIECE
        self.wait()
        return taken

    def wait(self):
        """Waits for all that the program has begun."""
        if self.device == "cuda":
            torch.cuda.synchronize()
