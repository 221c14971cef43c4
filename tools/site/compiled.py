"""Extension of griffe: docstrings of the compiled classes, whose stubs have signatures alone."""

from __future__ import annotations

from typing import Any

import griffe
import tidewire._tidewire as compiled


class CompiledDocstrings(griffe.Extension):
    """Docstrings that the compiled module has and its stub file lacks."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring or not obj.path.startswith("tidewire._tidewire."):
            return
        found: Any = compiled
        for name in obj.path.split(".")[2:]:
            found = getattr(found, name, None)
        if found.__doc__ and not obj.is_module and not obj.name.startswith("_"):
            obj.docstring = griffe.Docstring(found.__doc__, parent=obj)
