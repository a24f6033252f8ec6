"""Programs, steps and results as TVM's schedules have them; the texts are in ``cases/``."""


def test_case(case, check):
    check(case)
