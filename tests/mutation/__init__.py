"""A mutation run: one small bug at a time is planted in a copy of the library, and the tests have to notice it.

    python -m tests.mutation --count 60 --jobs 2        # in the checkout; prints a table
    python -m tests.mutation --list                     # what would be planted, nothing is run
    python -m tests.mutation --only 17,23               # some of them again

The bugs are drawn by ``draw.py`` out of the simplifier, the legality checks, the lowering passes and both back ends
(``groups.py``); ``run.py`` plants them and runs the tests of their group. A mutant that computes the same as the
library (only slower, or with another text) is listed in ``SAME`` of ``groups.py`` with the reason.
"""
