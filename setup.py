"""Finds the packages: this folder is ``tilewright``, and each package in it is ``tilewright.<its name>``."""

from setuptools import find_packages, setup

setup(
    script_name="setup.py",  # known by name, it is not taken for a module of the package
    packages=[
        "tilewright",
        *(
            f"tilewright.{name}"
            for name in find_packages(exclude=["tests", "tests.*", "examples", "benchmarks", "docs"])
        ),
    ],
)
