"""The page of a program at every stage: its lines are linked to the lines that come from them."""

import re
from html.parser import HTMLParser

import pytest

from tilewright import Schedule, te
from tilewright.codegen import Target, lower
from tilewright.driver import parse_spec, plan
from tilewright.driver.stages import LoweredLines, assembly_lines, declared_lines, ir_lines, linked_lines, stage_page
from tilewright.pages.html_text import ranges_text

TARGET = Target("llvm -mcpu=skylake-avx512 -num-cores=1")


def product(n=16):
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return te.create_prim_func([A, B, C])


def scheduled(func):
    """Rows in vectors, four of them unrolled, sums in registers."""
    sch = Schedule(func)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    outer, rows = sch.split(i, [None, 4])
    sch.reorder(outer, k, rows, j)
    copy = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(copy, outer)
    sch.decompose_reduction(block, k)
    for loops in (sch.get_loops(block)[-2:], sch.get_loops(sch.get_block("C_init"))[-2:], sch.get_loops(copy)[-2:]):
        sch.unroll(loops[0])
        sch.vectorize(loops[1])
    return sch.func


SUMS = [f"C_local_{n}[()] = T.fma(" for n in (0, 16, 32, 48)]
LINKS = [
    ("for i_0 in", ["for i_0 in"]),
    ("for k in", ["for k in"]),
    ("for i_1 in", SUMS),  # unrolled: what is in it
    ("C_local[v_i, v_j] = C_local[v_i, v_j] + ", SUMS),
    ("C_local[v_i_init, v_j_init] = T.float32(0.0)", [f"C_local_{n}[()] = T.Broadcast(" for n in (0, 16, 32, 48)]),
    ('with T.block("C_local"):', ["C["]),
    ("C[v0, v1] = C_local[v0, v1]", ["C["]),
]


@pytest.mark.parametrize("line, expected", LINKS)
def test_a_line_is_linked_to_what_lowering_makes_of_it(line, expected):
    func = scheduled(product())
    lowered = LoweredLines(lower(func, TARGET).func)
    lines, links = linked_lines(func, lowered)
    number = next(n for n, text in enumerate(lines) if line in text)
    found = [lowered.text.splitlines()[n - 1].strip() for n in links[number]]
    assert found and all(any(one.startswith(start) for start in expected) for one in found), found
    assert all(any(one.startswith(start) for one in found) for start in expected), found


def test_a_node_that_lowering_keeps_is_followed_by_itself():
    """Not by its name: two loops of one name stay apart."""
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] + 1.0, name="B")
    func = te.create_prim_func([A, te.compute((4,), lambda i: B[i] * 2.0, name="C")])
    lines, links = linked_lines(func, LoweredLines(func))
    loops = [number for number, line in enumerate(lines, 1) if "for i in range(4):" in line]
    assert len(loops) == 2 and [links[number - 1] for number in loops] == [{number} for number in loops]


class Checked(HTMLParser):
    """Collects tags that are not closed, lines, and what a page loads."""

    def __init__(self):
        super().__init__()
        self.open, self.lines, self.buttons, self.loads = [], 0, 0, []

    def handle_starttag(self, tag, attrs):
        of = dict(attrs)
        self.lines += tag == "span" and "l" in (of.get("class") or "").split()
        self.buttons += tag == "button"
        self.loads += [value for key, value in attrs if key in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page():
    case = parse_spec("matmul_bias_gelu:M=16,N=32,K=16")
    return stage_page(plan(case, target=TARGET), case.tensors)


def test_the_page_is_whole_and_loads_nothing(page):
    checked = Checked()
    checked.feed(page)
    assert checked.open == [] and checked.loads == [] and "http" not in page
    assert checked.buttons >= 8 and checked.lines > 200


def test_the_stages(page):
    titles = re.findall(r'<button type="button" value="\d+" aria-pressed="\w+">([^<]+)<small>', page)
    first, last = ["te", "tir", "scheduled"], ["lowered", "LLVM IR", "machine code", "LLVM IR, optimized"]
    assert titles[:3] == first and titles[-4:] == last and "vectorize_loops" in titles
    assert page.count('aria-pressed="true"') == 2


def test_machine_code_is_linked(page):
    """Multiplications come from the statements that multiply."""
    lowered = page.split('aria-label="lowered"')[1].split("</section>")[0]
    line = re.search(r'data-l="([\d,-]+)">(?:(?!</span).)*?T\.fma\(', lowered)
    assert line is not None
    code = page.split('aria-label="machine code"')[1]
    assert re.search(rf'data-l="{line[1]}">    vfm', code)


def test_code_without_line_tables():
    assert assembly_lines("f:\n\tretq\n") == (["f:", "    retq"], [[], []])
    assert ir_lines("define i32 @f() !dbg !3 {\n  ret i32 0\n}\n!3 = !{}\n")[0] == [
        "define i32 @f() {",
        "  ret i32 0",
        "}",
    ]


def test_ranges():
    assert [ranges_text(n) for n in ([], [3], [1, 2, 4, 5, 6], [2, 1, 1])] == ["", "3", "1-2,4-6", "1-2"]


def test_scalars_are_declared_and_names_of_files_may_hold_any_byte():
    a, s = te.placeholder((8,), name="a"), te.var("s", "float32")
    args = [a, s, te.compute((8,), lambda i: a[i] * s, name="b")]
    assert declared_lines(args) == [
        ("a", "a: float32[8]"), ("s", "s: float32"), ("b", "b: float32[8] = a[i] * s"),
    ]  # fmt: skip
    page = stage_page(plan(args, target="native -num-cores=1"), args)
    assert "s: float32" in re.sub("<[^>]*>", "", page)
