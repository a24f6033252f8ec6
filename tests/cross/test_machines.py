"""Ten kernels on every machine whose tools are installed; ``python -m tests.cross`` runs all of te.ops' kernels there."""

import pytest

from .machines import MACHINES
from .table import kernels_on
from .ten_kernels import KERNELS


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_ten_kernels(name):
    machine = MACHINES[name]
    if machine.missing:
        pytest.skip(f"{machine.missing} is not installed")
    assert kernels_on(machine, machine.suffix == ".o") == dict.fromkeys(KERNELS, "equal")
