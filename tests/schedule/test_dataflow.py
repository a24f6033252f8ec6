from tilewright import te
from tilewright.schedule import Schedule


def names(blocks):
    return [b.name for b in blocks]


def test_producers_consumers_and_outputs():
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((7,), lambda i: B[i] + 2.0, name="C")
    D = te.compute((7,), lambda i: B[i] * C[i], name="D")
    sch = Schedule(te.create_prim_func([A, C, D]))
    assert names(sch.get_producers("D")) == ["B", "C"]
    assert names(sch.get_consumers("B")) == ["C", "D"]
    assert names(sch.get_output_blocks("root")) == ["C", "D"]
    assert sch.get_producers(sch.get_block("B")) == []
    assert sch.get_consumers("D") == []


def test_an_init_is_a_producer_of_its_update(matmul):
    sch = Schedule(matmul())
    sch.decompose_reduction("C", sch.get_loops("C")[2])
    assert names(sch.get_producers("C_update")) == ["C_init"]
    assert names(sch.get_consumers("C_init")) == ["C_update"]
