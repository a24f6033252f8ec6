"""Records what the library makes of a corpus of programs, so that two states of the code can be compared.

    python -m tests.recorder record before.zip          # in the checkout
    python -m tests.recorder record after.zip           # after a change
    python -m tests.recorder compare before.zip after.zip

The corpus (``corpus.py``) are the conformance cases, the kernels of ``examples/kernels``, the named workloads with the
candidates that the tuner finds best, and random chains of the fuzzer. Recorded are the program after each step of each
schedule, the text of each refusal, the lowered functions, and their LLVM IR and C text. A restructuring of the code
leaves all of it unchanged, or explains each difference.
"""
