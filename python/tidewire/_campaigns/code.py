"""Code of a campaign: import of its function by workers, and comparison of code identities."""

from __future__ import annotations

import importlib
import json
import os
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import tidewire
from tidewire.errors import CampaignError, CodeChanged, InvalidArgument

try:
    from _blake2 import blake2b
except ImportError:
    # The public module. It also loads OpenSSL, which delays the start of workers.
    from hashlib import blake2b

_MAIN = "__main__"
_SCRIPT = "__mp_main__"
_COROUTINE = 0x80 | 0x200
"""Flags of the code of coroutine functions and asynchronous generators."""
_MODULES_MAX = 2_000
_FIX = "define it at the top level of a module, or pip install cloudpickle"
_GUARD = """\
the script starts a campaign while a worker imports it. Workers import the script to find the function; put what starts
the campaign under a guard:

    if __name__ == "__main__":
        campaign = tw.campaign(...)
        campaign.run()"""

importing = False
"""True while this process is a worker that imports the function."""


class Code(NamedTuple):
    """A function in its stored form."""

    function: Callable[..., Any]
    name: str
    """``module:qualname``."""
    pickled: bytes | None
    identity: str
    """JSON: hashes of the sources, versions, and the path of the script if there is one."""


def check_guard() -> None:
    """Refuse to start a campaign in a worker that imports the script.

    Raises:
        CampaignError: if this process is such a worker; the message has a fix for the script.
    """
    if importing:
        raise CampaignError(_GUARD, kind="guard")


def describe(function: Callable[..., Any] | str) -> Code:
    """Return the stored form of a function.

    Raises:
        InvalidArgument: if it is not a function, or workers can't import it.
    """
    if isinstance(function, str):
        function = _import_function(function)
    if not callable(function):
        raise InvalidArgument(f"function: {function!r} is no function: give one, or 'module:name'")
    if _is_async(function):
        raise InvalidArgument(
            f"function: {_title(function)} is a coroutine function: give a plain one, a run has a process of its own"
        )
    location = _location(function)
    if location is None:
        pickled = _pickle(function)
        return Code(function, f"{_MAIN}:{_title(function)}", pickled, _identity(None, pickled, None))
    module, script = location
    name = f"{module}:{function.__qualname__}"
    loaded = sys.modules.get(module) or sys.modules[_MAIN]
    return Code(
        function, name, None, _identity(loaded if module != _MAIN else sys.modules[_MAIN], None, script, module)
    )


def load(name: str, pickled: bytes | None, identity: str) -> tuple[Callable[..., Any], str]:
    """Load the function of a campaign in a worker process. Return it with the identity of the
    local code.

    Raises the errors of its imports.
    """
    global importing
    importing = True
    try:
        if pickled is not None:
            import pickle

            function: Callable[..., Any] = pickle.loads(pickled)
            return function, _identity(None, pickled, None)
        module_name, _, qualname = name.partition(":")
        script = json.loads(identity).get("script")
        module = _run_script(script) if module_name == _MAIN and script else importlib.import_module(module_name)
        target: Any = module
        for part in qualname.split("."):
            target = getattr(target, part)
        return target, _identity(module, None, script, module_name)
    finally:
        importing = False


def check_same(stored: str, local: str, accept: bool) -> str | None:
    """Compare the identity of a campaign's code with the local one. Return the accepted
    differences, or None.

    Raises:
        CodeChanged: if they differ and ``accept`` is False.
    """
    differences = list(_differences(json.loads(stored), json.loads(local)))
    if not differences:
        return None
    text = "; ".join(differences)
    if accept:
        return text
    raise CodeChanged(
        f"the code here is not that of the campaign: {text}. Run the same code, begin a new campaign, or allow it with accept_code=True (--accept-code)",
        kind="code_changed",
    )


def _differences(stored: dict[str, Any], local: dict[str, Any]) -> Iterator[str]:
    for field in ("python", "tidewire"):
        if stored.get(field) != local.get(field):
            yield f"{field} {stored.get(field)} there, {local.get(field)} here"
    stored_modules, local_modules = stored.get("modules", {}), local.get("modules", {})
    for module in sorted({*stored_modules, *local_modules}):
        if module not in local_modules:
            yield f"module {module} is not imported here"
        elif module not in stored_modules:
            yield f"module {module} was not imported there"
        elif stored_modules[module] != local_modules[module]:
            yield f"module {module} has changed ({local_modules[module][:8]} here, {stored_modules[module][:8]} there)"


# Import of functions


def _import_function(path: str) -> Callable[..., Any]:
    module, colon, qualname = path.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *qualname.split("."))):
        raise InvalidArgument(f"function: {path!r} is no place of a function: write 'package.module:name'")
    try:
        target: Any = importlib.import_module(module)
        for part in qualname.split("."):
            target = getattr(target, part)
    except Exception as error:
        raise InvalidArgument(f"function: {path!r} can't be imported: {type(error).__name__}: {error}") from error
    if not callable(target):
        raise InvalidArgument(f"function: {path!r} is no function, but {target!r}")
    return target  # type: ignore[no-any-return]


def _location(function: Any) -> tuple[str, str | None] | None:
    """Return the module of a function for workers, with its path if it is a script; None if workers
    can't import it.
    """
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        return None
    target: Any = sys.modules.get(module)
    for part in qualname.split("."):
        target = getattr(target, part, None)
    if target is not function:
        return None
    if module not in (_MAIN, _SCRIPT):
        return module, None
    from tidewire.pools.processes import main_module

    source = main_module.source(sys.modules[module])
    if source is None:
        return None
    kind, path = source
    if kind == "name":
        return path, None
    stem = os.path.splitext(os.path.basename(path))[0]
    return (stem, None) if _imports(stem, path) else (_MAIN, path)


def _imports(stem: str, path: str) -> bool:
    """Return whether an import of the script's name finds the script."""
    if not stem.isidentifier() or stem in sys.stdlib_module_names:
        return False
    from importlib.util import find_spec

    try:
        spec = find_spec(stem)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and os.path.realpath(spec.origin) == path


def _pickle(function: Any) -> bytes:
    from tidewire.pools.processes.pickler import dumps_of

    title = _title(function)
    try:
        dumps = dumps_of("cloudpickle")
    except InvalidArgument:
        raise InvalidArgument(f"function: no worker can import {title}: {_FIX}") from None
    try:
        return dumps(function)
    except Exception as error:
        raise InvalidArgument(
            f"function: {title} can't be pickled ({type(error).__name__}: {error}): {_FIX}"
        ) from error


def _run_script(path: str) -> types.ModuleType:
    from importlib.machinery import SourceFileLoader
    from importlib.util import module_from_spec, spec_from_loader

    if not os.path.isfile(path):
        raise InvalidArgument(f"function: the script {path} is not on this machine: put the function into a module")
    # The path of a script needs no suffix.
    loader = SourceFileLoader(_SCRIPT, path)
    spec = spec_from_loader(_SCRIPT, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[_SCRIPT] = module
    loader.exec_module(module)
    return module


def _is_async(function: Any) -> bool:
    while isinstance(function, partial):
        function = function.func
    code = getattr(function, "__code__", None) or getattr(vars(type(function)).get("__call__"), "__code__", None)
    return bool(getattr(code, "co_flags", 0) & _COROUTINE)


def _title(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__qualname__))


# Identity of the code


def _identity(module: types.ModuleType | None, pickled: bytes | None, script: str | None, name: str = "") -> str:
    identity: dict[str, Any] = {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "tidewire": tidewire.__version__,
        "modules": {} if module is None else dict(_hashes(module, name, script)),
    }
    if pickled is not None:
        identity["modules"] = {"(pickled)": _hash(pickled)}
    if script is not None:
        identity["script"] = script
    return json.dumps(identity)


def _hashes(module: types.ModuleType, name: str, script: str | None) -> Iterator[tuple[str, str]]:
    """Hash the sources of a module and of the modules that it imports, except installed ones."""
    pending, seen = [(name, script or getattr(module, "__file__", None))], {name}
    while pending and len(seen) < _MODULES_MAX:
        current, path = pending.pop()
        if path is None or not (path.endswith(".py") or path == script) or not _is_project(path):
            continue
        try:
            with open(path, "rb") as file:
                source = file.read()
        except OSError:
            continue
        yield current, _hash(source)
        package = current if path.endswith("__init__.py") else current.rpartition(".")[0]
        for imported in sorted(_imported_names(source, package)):
            if imported not in seen:
                seen.add(imported)
                pending.append((imported, _path_of(imported)))


def _imported_names(source: bytes, package: str) -> set[str]:
    import ast

    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            names.add(base)
            # Each may be a module of the package.
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return {name for name in names if name and name.partition(".")[0] not in sys.stdlib_module_names}


def _path_of(name: str) -> str | None:
    loaded = sys.modules.get(name)
    if loaded is not None:
        return getattr(loaded, "__file__", None)
    parent = name.rpartition(".")[0]
    if parent and not hasattr(sys.modules.get(parent), "__path__"):
        return None
    from importlib.util import find_spec

    try:
        spec = find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    return None if spec is None else spec.origin


def _is_project(path: str) -> bool:
    """Return whether a source belongs to the user: not to Python, Tidewire or an installed
    package.
    """
    real = os.path.realpath(path)
    if "site-packages" in real.split(os.sep) or "dist-packages" in real.split(os.sep):
        return False
    excluded = (os.path.dirname(os.path.realpath(os.__file__)), os.path.dirname(os.path.realpath(tidewire.__file__)))
    return not any(real.startswith(folder + os.sep) for folder in excluded)


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
