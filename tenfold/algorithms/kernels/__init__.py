"""What the fast engines need of each algorithm: kernels for the CPU and the GPU."""
