"""Writes the C++ header of exported functions: one class for each, whose arguments are views of memory with shapes.

The header is C++17 and refers to the C header beside it. No data is copied. A call checks numbers of elements, shapes and overlaps before it
calls the C function, which checks the rest. :func:`run` of a class returns a code, ``operator()`` throws.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...tir.expr import Add, Cast, Expr, FloorDiv, FloorMod, IntImm, Max, Min, Mul, Sub, Var
from ..lowered import NOT_LOADED, OVERLAP, WRONG_SHAPE, WRONG_SIZE, LoweredFunc, Param
from .c_header import argument_type, c_names

SHARED = f"""\
#ifndef TILEWRIGHT_CXX
#define TILEWRIGHT_CXX 1
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace tilewright {{

/// A view of contiguous memory, in row-major order. It owns nothing and copies nothing. It is made of an address and a
/// shape, or of what has data() and size(): std::vector, std::array, std::span. Those have a number of elements only,
/// which is checked against the shape that is asked for. float16 and bfloat16 are uint16_t, their bits.
template <class T, std::size_t Rank>
class view {{
 public:
  using shape_type = std::array<std::int64_t, Rank>;

  view(T* data, const shape_type& shape) noexcept : data_(data), size_(1), shape_(shape), shaped_(true) {{
    for (std::int64_t extent : shape) size_ *= extent > 0 ? static_cast<std::size_t>(extent) : 0;
  }}
  template <class C, class E = std::remove_pointer_t<decltype(std::data(std::declval<C&>()))>,
            class = std::enable_if_t<std::is_convertible_v<E (*)[], T (*)[]> &&
                                     !std::is_same_v<std::remove_cv_t<std::remove_reference_t<C>>, view>>>
  view(C&& elements) noexcept : data_(std::data(elements)), size_(std::size(elements)), shape_{{}}, shaped_(false) {{
    if constexpr (Rank == 1) {{
      shape_[0] = static_cast<std::int64_t>(size_);
      shaped_ = true;
    }}
  }}
  template <class U, class = std::enable_if_t<!std::is_same_v<U, T> && std::is_convertible_v<U (*)[], T (*)[]>>>
  view(const view<U, Rank>& other) noexcept
      : data_(other.data()), size_(other.size()), shape_(other.shape()), shaped_(other.shaped()) {{}}

  T* data() const noexcept {{ return data_; }}
  std::size_t size() const noexcept {{ return size_; }}
  const shape_type& shape() const noexcept {{ return shape_; }}
  /// Whether the shape was told; else size() alone is known.
  bool shaped() const noexcept {{ return shaped_; }}

 private:
  T* data_;
  std::size_t size_;
  shape_type shape_;
  bool shaped_;
}};

/// What operator() throws: the code, and what it means.
class error : public std::runtime_error {{
 public:
  error(const char* function, std::int32_t code, const char* text)
      : std::runtime_error(std::string(function) + ": " + text), code_(code) {{}}
  std::int32_t code() const noexcept {{ return code_; }}

 private:
  std::int32_t code_;
}};

/// Memory for the intermediate results of one call at a time, which the calls share: they then ask for none.
template <std::size_t Bytes>
class workspace {{
 public:
  workspace() : memory_(std::malloc(Bytes + 64)) {{
    if (memory_ == nullptr) fail();
  }}
  ~workspace() {{ std::free(memory_); }}
  workspace(workspace&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {{}}
  workspace& operator=(workspace&& other) noexcept {{
    std::swap(memory_, other.memory_);
    return *this;
  }}
  workspace(const workspace&) = delete;
  workspace& operator=(const workspace&) = delete;
  /// Its address, a multiple of 64; nullptr of one that was moved from.
  void* get() const noexcept {{
    auto address = reinterpret_cast<std::uintptr_t>(memory_);
    return memory_ == nullptr ? nullptr : static_cast<char*>(memory_) + (64 - address % 64);
  }}

 private:
  [[noreturn]] static void fail() {{
#if defined(__cpp_exceptions)
    throw std::bad_alloc();
#else
    std::abort();
#endif
  }}
  void* memory_;
}};

namespace detail {{

inline constexpr std::int64_t any = INT64_MIN; /* an extent that only the function itself knows */

inline std::int64_t floordiv(std::int64_t a, std::int64_t b) noexcept {{
  if (b == 0 || (a == INT64_MIN && b == -1)) return -1;
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
}}
inline std::int64_t floormod(std::int64_t a, std::int64_t b) noexcept {{
  if (b == 0 || b == -1) return b == 0 ? -1 : 0;
  std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}}
inline std::int64_t least(std::int64_t a, std::int64_t b) noexcept {{ return a < b ? a : b; }}
inline std::int64_t most(std::int64_t a, std::int64_t b) noexcept {{ return a < b ? b : a; }}
inline std::int64_t wrapped(std::uint64_t a) noexcept {{ return static_cast<std::int64_t>(a); }}

/// The extent along an axis, where all others are the number per; -1 when it does not come out even or is not told.
template <class T, std::size_t Rank>
std::int64_t extent(const view<T, Rank>& given, std::size_t axis, std::int64_t per) noexcept {{
  if (given.shaped()) return given.shape()[axis];
  auto size = static_cast<std::int64_t>(given.size());
  return per > 0 && size % per == 0 ? size / per : -1;
}}

template <class T, std::size_t Rank>
std::int32_t fits(const view<T, Rank>& given, const std::array<std::int64_t, Rank>& shape) noexcept {{
  std::int64_t count = 1;
  bool known = true;
  for (std::size_t axis = 0; axis < Rank; axis++) {{
    std::int64_t want = shape[axis];
    if (want == any) {{
      known = false;
      continue;
    }}
    if (want < 0) return {WRONG_SIZE};
    if (given.shaped() && given.shape()[axis] != want) return {WRONG_SHAPE};
    if (want != 0 && count > INT64_MAX / want) return {WRONG_SIZE};
    count *= want;
  }}
  return !known || static_cast<std::uint64_t>(count) == given.size() ? 0 : {WRONG_SHAPE};
}}

template <class T, class U, std::size_t Rank, std::size_t Other>
bool meet(const view<T, Rank>& a, const view<U, Other>& b) noexcept {{
  auto first = reinterpret_cast<std::uintptr_t>(a.data()), second = reinterpret_cast<std::uintptr_t>(b.data());
  return a.size() != 0 && b.size() != 0 && first < second + b.size() * sizeof(U) && second < first + a.size() * sizeof(T);
}}

}}  // namespace detail
}}  // namespace tilewright
#endif
"""
"""What the headers of all functions share; the first that is included has it."""


@dataclass(frozen=True)
class CxxFunction:
    """A C function that a class is written for.

    ``workspace``: the bytes of its intermediate results, for which the C function's last parameter is a pointer; None where
    it has no such parameter. ``is_loaded``: it has to be given the file of its weights first.
    """

    func: LoweredFunc
    workspace: int | None = None
    is_loaded: bool = False


def cxx_header(functions: Sequence[CxxFunction], c_header_name: str) -> str:
    """Returns a header for C++17 with a class for each function; ``c_header_name``: the file that declares them for C."""
    guard = "TILEWRIGHT_" + re.sub(r"\W", "_", c_header_name, flags=re.ASCII).upper() + "PP"
    classes = "\n".join([_class(one) for one in functions])
    return (
        "/* Made by Tilewright. C++17. The classes hold no state: several threads may call one object at the same time. */\n"
        f'#ifndef {guard}\n#define {guard}\n#include "{c_header_name}"\n\n{SHARED}\n'
        f"namespace tilewright {{\nnamespace lib {{\n\n{classes}\n}}  // namespace lib\n}}  // namespace tilewright\n#endif\n"
    )


def _class(one: CxxFunction) -> str:
    name, all_names = one.func.name, c_names(one.func.params)
    pairs = [*zip(one.func.params, all_names, strict=True)]
    if one.workspace is not None:
        pairs.pop()  # the pointer, which stands last
    arrays = [(p, text) for p, text in pairs if _is_view(p)]
    names = {p.var: text for p, text in pairs if p.buffer is None}
    learnt = {p.var: places for p, _ in pairs if p.kind == "size" and (places := _places(p.var, arrays))}
    asked = [(p, text) for p, text in pairs if p.var not in learnt]
    parameters = [f"{_cxx_type(p)} {text}" for p, text in asked]
    passed = [text for _, text in asked]
    memory = f"::tilewright::workspace<{max(one.workspace, 1)}>" if one.workspace is not None else ""
    cxx_name = f"{name}_" if name in _MEMBERS else name
    lines = [f"class {cxx_name} {{", " public:"]
    if memory:
        lines.append(f"  using workspace_type = {memory};")
        parameters.append("const workspace_type* tw_memory = nullptr")
        passed.append("tw_memory")
    lines += _constructors(name, cxx_name) if one.is_loaded else []
    lines += [f"  /// What a code of run() means.\n  static const char* text(std::int32_t code) noexcept {{ return ::{name}_error_text(code); }}", ""]  # fmt: skip
    arguments = ", ".join(parameters)
    body: list[str] = []
    for var, places in learnt.items():
        size, (first, *others) = names[var], places
        body.append(f"std::int64_t {size} = {first};")
        body += [f"if ({size} < 0) {size} = {place};" for place in others]
        body.append(f"if ({size} < 0) return {WRONG_SHAPE};")
    if arrays:
        body.append("std::int32_t tw_code = 0;")
    for p, text in arrays:
        assert p.buffer is not None
        rank = len(p.buffer.shape)
        shape = ", ".join([_extent(e, names) for e in p.buffer.shape])
        body.append(
            f"if ((tw_code = ::tilewright::detail::fits({text}, std::array<std::int64_t, {rank}>{{{shape}}})) != 0) return tw_code;"
        )
    for n, (p, text) in enumerate(arrays):
        others_ = [other for m, (q, other) in enumerate(arrays) if m != n and not (q.writes and m < n)]
        if p.writes and others_:
            body.append(
                f"if ({' || '.join([f'::tilewright::detail::meet({text}, {other})' for other in others_])}) return {OVERLAP};"
            )
    given = [f"{text}.data()" if _is_view(p) else text for p, text in pairs]
    given += ["tw_memory == nullptr ? nullptr : tw_memory->get()"] if memory else []
    body.append(f"return ::{name}({', '.join(given)});")
    lines += [
        f"  /// Calls the function. Returns 0, or a code that text() explains. Sizes are those of the shapes: {_told(one.func)}",
        f"  [[nodiscard]] std::int32_t run({arguments}) const noexcept {{",
        *[f"    {text}" for text in body],
        "  }",
        "#if defined(__cpp_exceptions)",
        "  /// Calls the function. Throws tilewright::error where run() returns a code.",
        f"  void operator()({arguments}) const {{",
        f'    if (std::int32_t tw_code = this->run({", ".join(passed)})) throw ::tilewright::error("{name}", tw_code, ::{name}_error_text(tw_code));',
        "  }",
        "#endif",
        "};",
        "",
    ]
    return "\n".join(lines)


_MEMBERS = ("run", "text", "load", "workspace_type")
"""The names of a class's members, which the class itself cannot have."""


def _constructors(name: str, cxx_name: str) -> list[str]:
    return [
        "  /// Maps the file of the weights; until then every call returns that it is not loaded. 0: done, 1: the file cannot",
        "  /// be read, 2: it is another file. The process maps it once, whoever asks.",
        f"  [[nodiscard]] static std::int32_t load(const char* path) noexcept {{ return ::{name}_load(path); }}",
        f"  {cxx_name}() = default;",
        "#if defined(__cpp_exceptions)",
        f"  explicit {cxx_name}(const char* path) {{",
        "    if (std::int32_t failed = load(path))",
        f'      throw ::tilewright::error("{name}", {NOT_LOADED}, failed == 1 ? "the file of the weights cannot be read" : "this is not the file of its weights");',
        "  }",
        "#endif",
    ]


def _is_view(p: Param) -> bool:
    """Returns whether the argument is given as a view; arrays with strides of their own are given as addresses."""
    return p.buffer is not None and not p.buffer.strides


def _cxx_type(p: Param) -> str:
    if not _is_view(p):
        return argument_type(p)
    assert p.buffer is not None
    return f"::tilewright::view<{argument_type(p).removesuffix('*')}, {len(p.buffer.shape)}>"


def _places(var: Var, arrays: Sequence[tuple[Param, str]]) -> list[str]:
    """Returns C++ expressions of what tells a size: an extent that is it, of the arrays that are read first."""
    found = []
    for p, text in sorted(arrays, key=lambda pair: pair[0].writes):
        assert p.buffer is not None
        for axis, e in enumerate(p.buffer.shape):
            if e is var:
                others = [other for n, other in enumerate(p.buffer.shape) if n != axis]
                per = 1
                for other in others:
                    per = per * other.value if isinstance(other, IntImm) else 0
                found.append(f"::tilewright::detail::extent({text}, {axis}, {per})")
    return found


_CALLS: Mapping[type[Expr], str] = {FloorDiv: "floordiv", FloorMod: "floormod", Min: "least", Max: "most"}
_SIGNS: Mapping[type[Expr], str] = {Add: "+", Sub: "-", Mul: "*"}


def _extent(e: Expr, names: Mapping[Var, str]) -> str:
    """Returns an extent in C++, ``::tilewright::detail::any`` where it has other operations than those of sizes."""
    text = _size(e, names)
    return text if text is not None else "::tilewright::detail::any"


def _size(e: Expr, names: Mapping[Var, str]) -> str | None:
    if isinstance(e, IntImm):
        return str(e.value)
    if isinstance(e, Var):
        return names.get(e) and f"static_cast<std::int64_t>({names[e]})"
    if isinstance(e, Cast) and e.dtype.is_int:
        return _size(e.value, names)
    if type(e) not in _CALLS and type(e) not in _SIGNS:
        return None
    a, b = _size(e.a, names), _size(e.b, names)  # type: ignore[attr-defined]
    if a is None or b is None:
        return None
    if type(e) in _CALLS:
        return f"::tilewright::detail::{_CALLS[type(e)]}({a}, {b})"
    return f"::tilewright::detail::wrapped(static_cast<std::uint64_t>({a}) {_SIGNS[type(e)]} static_cast<std::uint64_t>({b}))"


def _told(func: LoweredFunc) -> str:
    arrays = [f"{p.name}[{', '.join(map(str, p.buffer.shape))}]" for p in func.params if p.buffer is not None]
    return " ".join(", ".join(arrays).split())
