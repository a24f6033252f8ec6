"""The device that TVM's programs name; there is one, this machine's processor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """A device by kind and number."""

    kind: str = "cpu"
    index: int = 0

    @property
    def exist(self) -> bool:
        """Returns True: the processor is there."""
        return True

    def sync(self) -> None:
        """Return at once: calls have finished when they return."""


def cpu(index: int = 0) -> Device:
    """Returns this machine's processor."""
    return Device("cpu", index)


def device(kind: str = "cpu", index: int = 0) -> Device:
    """Returns the device of a target's kind: ``cpu`` or ``llvm``; NotImplementedError for others."""
    if kind.split()[0] not in ("cpu", "llvm", "c", "native"):
        raise NotImplementedError(f"no device {kind!r}: code runs on this machine's processor, cpu()")
    return Device("cpu", index)
