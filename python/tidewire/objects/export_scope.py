"""Exports of one call, released together when the call is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidewire.objects.references import Export, Objects


class ExportScope:
    """Exports of one call, as a hook for the encoder of its arguments.

    Args:
        objects: Exports of the node.
        peer: The node that is called; None at another hub.
    """

    __slots__ = ("_objects", "_peer", "entries")

    def __init__(self, objects: Objects, peer: str | None) -> None:
        self._objects = objects
        self._peer = peer
        self.entries: list[Export] = []

    def __call__(self, value: Any) -> Mapping[str, Any] | None:
        export, reference = self._objects.reference_to(self._peer, value)
        if export is not None:
            self._objects.begins(export)
            self.entries.append(export)
        return reference

    def ended(self, lost: bool = False) -> None:
        """End the call. The exports of this call alone are released if the callee was lost or
        never received the call.
        """
        entries, self.entries = self.entries, []
        for export in entries:
            self._objects.ends(export)
            if export.kind == "items" or lost:
                self._objects.drop(export, unclaimed=export.kind != "items")
