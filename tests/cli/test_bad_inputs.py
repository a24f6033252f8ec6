"""Every wrong input ends with its exit code and a message, in this process."""

from __future__ import annotations

import pytest

from .bad_inputs import INPUTS, prepare, problem_of, words_of


def test_there_are_many():
    assert sum(len(inputs) for inputs in INPUTS.values()) >= 120


@pytest.mark.parametrize("group", INPUTS)
def test_wrong_inputs(run, tmp_path, monkeypatch, group):
    prepare(tmp_path)
    wrong = []
    for line, code, words in INPUTS[group]:
        environment, command = words_of(line)
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            done = run(*command)
        wrong.append(problem_of(line, code, words, done.code, done.out, done.err))
    assert [problem for problem in wrong if problem] == []
