"""Half-loaded modules in the child of a fork: forgets modules that a thread of the parent was
loading.

Python takes a lock for each module that is being loaded. In the child of a fork the lock belongs to
a thread that does not exist, and an import of the module would wait for ever. So such a lock is
released, and the module is loaded anew.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident


def forget() -> None:
    """Release the locks of modules whose loading threads are not in this process, and forget their
    partly loaded modules.
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
