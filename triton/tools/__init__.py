"""What programs on the host use beside kernels, under the names of ``triton.tools``."""
