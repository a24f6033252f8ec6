"""Describes exported libraries to build systems: a ``.pc`` file for pkg-config, and a package for CMake.

All files refer to the library in their own folder, so that the folder may be moved.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ... import __version__
from ...pages.written_files import write_file
from ..machine.blas import BlasLibrary


def checked_version(version: str | None) -> str:
    """Returns the version of a library: the given one, else Tilewright's. ValueError where build systems could not compare it."""
    if version is None:
        return __version__
    if not re.fullmatch(r"\d+(\.\d+)*([-+][0-9A-Za-z.+-]+)?", version, re.ASCII):
        raise ValueError(
            f"version={version!r}: numbers with points between them are expected, such as 1.4.2 or 2.0-rc1"
        )
    return version


def write_packages(
    library: Path, functions: Sequence[str], version: str | None, blas: BlasLibrary | None = None
) -> list[Path]:
    """Write the ``.pc`` file and the two files of the CMake package beside a library; return them. ``blas``: what it calls."""
    number, name = checked_version(version), package_name(library)
    package = library.with_suffix(".pc")
    config, config_version = (library.parent / f"{name}Config{end}.cmake" for end in ("", "Version"))
    write_file(package, pkg_config(library, functions, number, blas))
    write_file(config, _cmake_config(library, name, blas))
    write_file(config_version, _cmake_version(number))
    return [package, config, config_version]


def package_name(library: Path) -> str:
    """Returns the name by which CMake finds a library: that of its file without ``lib``."""
    return re.sub(r"[^\w.+-]", "_", library.stem.removeprefix("lib") or library.stem, flags=re.ASCII)


def pkg_config(library: Path, functions: Sequence[str], version: str, blas: BlasLibrary | None = None) -> str:
    """Returns the pkg-config description of a library. ``pkg-config --cflags --libs NAME`` finds it with
    ``PKG_CONFIG_PATH`` set to its folder."""
    name = library.stem
    static = library.suffix == ".a"
    further = f"{'' if blas is None else f' {blas.path}'} -lm -lpthread"
    plain = None if static else re.fullmatch(r"lib([\w.+-]+)", name)
    linked = f"-l{plain[1]}" if plain else "-l:" + re.sub(r"([^\w.+-])", r"\\\1", library.name)
    return "\n".join([
        "prefix=${pcfiledir}",
        "libdir=${prefix}",
        "includedir=${prefix}",
        "",
        f"Name: {name}",
        f"Description: Kernels made by Tilewright: {', '.join(functions)}",
        f"Version: {version}",
        "Cflags: -I${includedir}",
        f"Libs: -L${{libdir}} {linked}{further if static else ''}",
        *([] if static else [f"Libs.private:{further}"]),
        "",
    ])  # fmt: skip


def _quoted(text: str) -> str:
    return re.sub(r'([\\"$;])', r"\\\1", text)


def _cmake_config(library: Path, name: str, blas: BlasLibrary | None) -> str:
    static = library.suffix == ".a"
    further = "" if blas is None else f"{_quoted(blas.path)};"
    place = f"${{CMAKE_CURRENT_LIST_DIR}}/{_quoted(library.name)}"
    return "\n".join([
        f"# Made by Tilewright: find_package({name}) gives the target {name}::{name}.",
        f"if(NOT TARGET {name}::{name})",
        *(["  find_package(Threads REQUIRED)"] if static else []),
        f"  add_library({name}::{name} {'STATIC' if static else 'SHARED'} IMPORTED)",
        f"  set_target_properties({name}::{name} PROPERTIES",
        f'    IMPORTED_LOCATION "{place}"',
        *([] if static else [f'    IMPORTED_SONAME "{_quoted(library.name)}"']),
        *([f'    INTERFACE_LINK_LIBRARIES "{further}Threads::Threads;m"'] if static else []),
        '    INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}")',
        "endif()",
        "",
    ])  # fmt: skip


def _cmake_version(version: str) -> str:
    return f"""\
# Made by Tilewright. A version fits one that was asked for when it is not older and has the same first number.
set(PACKAGE_VERSION "{version}")
string(REGEX MATCH "^[0-9]+" _tilewright_major "${{PACKAGE_VERSION}}")
if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
elseif(PACKAGE_FIND_VERSION AND NOT _tilewright_major STREQUAL PACKAGE_FIND_VERSION_MAJOR)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
unset(_tilewright_major)
"""
