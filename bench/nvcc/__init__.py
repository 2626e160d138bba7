"""Programs built by nvcc against the CUDA runtime."""
