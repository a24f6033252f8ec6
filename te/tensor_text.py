"""This module tells the printer of programs how elements of tensors are written, ``A[i, k]``."""

from ..tir.printer.printer_expr import register_printer
from .tensor import ProducerLoad

register_printer(
    ProducerLoad, lambda e, p: f"{e.producer.name}[{', '.join([p.text(i, 0) for i in e.indices]) or '()'}]"
)
