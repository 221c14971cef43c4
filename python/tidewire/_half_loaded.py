"""In the child of a fork: forgets which modules a thread of the parent was loading.

Python takes a lock for each module that is being loaded. The child has it taken by a thread that it
doesn't have, and whoever needs that module would wait for ever. So such a lock is let go of, and
the module is loaded anew.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident


def forget() -> None:
    """Let go of the locks of modules that threads were loading which are not here, and of what they
    had loaded of them.
    """
    # Python says nothing about these; without them all stays as it is.
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", None)
    if not isinstance(locks, dict):
        return
    for name, reference in list(locks.items()):
        owner = getattr(reference(), "owner", None)
        if owner is None or owner == get_ident():
            continue
        del locks[name]
        if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
            del sys.modules[name]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)
