"""Figures of GPUs that simulation, code and the tuner's model share. They are those of NVIDIA's programming guide and
data sheets;
latencies are rounded measurements of several architectures."""

from __future__ import annotations

WARP = 32
"""The threads that run in step and can exchange values."""
WARP_GROUP = 4 * WARP
"""The threads that run products of ``wgmma`` together."""
GROUP_RATE = 1.6
"""How many times as fast as warps by themselves warp groups multiply: 4096 operations per cycle against 2560 on sm_90."""
SECTOR = 32
"""The bytes that memory and the second-level cache move at once."""
BANKS, BANK_BYTES = 32, 4
"""Banks of shared memory, and the bytes that each gives in a cycle."""
FETCH_CYCLES, SHARED_CYCLES, ARITHMETIC_CYCLES, BARRIER_CYCLES = 500.0, 30.0, 4.0, 30.0
"""Until a load of global memory, one of shared memory, an arithmetic result and a barrier are there."""
BLOCK_SHARED = 1 << 10
"""Bytes of shared memory that each block takes besides its own."""
STATIC_SHARED = 48 << 10
"""Bytes of shared memory that a kernel may declare; more is given at the launch."""
