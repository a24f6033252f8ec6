"""Searches are compared without a clock: they are told the stored times of whole spaces.

    python -m tests.replay                                   # all recordings, all strategies
    python -m tests.replay --seeds 8 --trials 64 matmul      # recordings whose names hold one of the words
    python -m tests.replay --record matmul:M=64,N=64,K=64    # measure a space and store it; needs a quiet machine
    python -m tests.replay --record-all --minutes 25         # those of 20 workloads that are not there, in 25 minutes

``recorded_space``: a space whose only candidates are the measured ones. ``recording``: how they are measured and stored.
``rivals``: other searches as strategies. ``contest``: what is compared.
"""
