"""Parameter sets of campaigns: checked before the first run, and decoded anew for each run."""

from __future__ import annotations

import functools
import itertools
import json
import math
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidewire.errors import InvalidArgument

SETS_MAX = 1_000_000
SETS_AT_ONCE = 256
_BATCHES_COMPARED = 400
_INTEGER_MAX = 2**63
_SHARED = (str, int, float, bool, type(None))


def grid(**axes: Iterable[Any]) -> list[dict[str, Any]]:
    """Return all combinations of parameter values, for ``sweep``. The last parameter changes
    fastest.

    >>> grid(strategy=["greedy", "rows"], teams=[2])
    [{'strategy': 'greedy', 'teams': 2}, {'strategy': 'rows', 'teams': 2}]

    Raises:
        InvalidArgument: if a parameter has no values, or there are more than a million
            combinations.
    """
    if not axes:
        raise InvalidArgument("grid: it needs a parameter with its values, such as grid(teams=[2, 4])")
    values: dict[str, list[Any]] = {}
    for name, choices in axes.items():
        if isinstance(choices, (str, bytes, Mapping)) or not isinstance(choices, Iterable):
            raise InvalidArgument(f"grid: {name}: {choices!r} is no list of values: write {name}=[{choices!r}]")
        values[name] = list(choices)
        if not values[name]:
            raise InvalidArgument(f"grid: {name}: it has no values")
    count = math.prod(len(choices) for choices in values.values())
    if count > SETS_MAX:
        raise InvalidArgument(f"grid: {count:,} combinations; at most {SETS_MAX:,} are allowed")
    return [dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())]


def checked(function: Callable[..., Any], params: Any, sweep: Any) -> list[str]:
    """Return the parameter sets of a campaign as JSON, at least one.

    Raises:
        InvalidArgument: if a set does not fit the annotation of the function's ``run``, or JSON
            can't represent it.
    """
    fixed = _as_mapping("params", {} if params is None else params)
    if sweep is None:
        sets: list[dict[str, Any]] = [fixed]
    elif isinstance(sweep, (str, bytes, Mapping)) or not isinstance(sweep, Iterable):
        raise InvalidArgument(f"sweep: {sweep!r} is no list of parameter sets: write tw.grid(teams=[2, 4])")
    else:
        sets = [{**fixed, **_as_mapping(f"sweep[{index}]", item)} for index, item in enumerate(sweep)]
        if not 0 < len(sets) <= SETS_MAX:
            raise InvalidArgument(f"sweep: {len(sets):,} parameter sets; 1 to {SETS_MAX:,} are allowed")
    kind = kind_of(function)
    label = "params" if sweep is None else "sweep[{}]"
    return [_encode_set(kind, values, label.format(index)) for index, values in enumerate(sets)]


def kind_of(function: Callable[..., Any]) -> Any:
    """Return ``P`` of a function that takes ``tw.Run[P]``, or None if it takes any parameters.

    Raises:
        InvalidArgument: if ``P`` can't be resolved.
    """
    from tidewire._binding import Run

    for name, annotation in annotations_of(function).items():
        if name == "return":
            continue
        try:
            hint = hint_of(function, name)
        except Exception as error:
            if isinstance(annotation, str) and "Run[" in annotation:
                fix = "define its types at the top level of the module"
                raise InvalidArgument(
                    f"function: its annotation {annotation!r} can't be read ({error}): {fix}"
                ) from error
            continue
        if typing.get_origin(hint) is Run:
            kind = typing.get_args(hint)[0]
            return None if kind is Any or isinstance(kind, typing.TypeVar) else kind
    return None


def annotations_of(function: Any) -> dict[str, Any]:
    """Return the annotations of a function, unresolved."""
    return dict(getattr(_innermost(function), "__annotations__", {}))


def hint_of(function: Any, name: str) -> Any:
    """Return the resolved annotation of a parameter or of ``return``; None without one. Raises the
    error of its resolution.

    Each annotation is resolved by itself, so that names imported only for type checkers do not
    affect the others.
    """
    annotation = annotations_of(function).get(name)
    if annotation is None:
        return None

    def holder() -> None: ...

    holder.__annotations__ = {name: annotation}
    return typing.get_type_hints(holder, getattr(_innermost(function), "__globals__", {}))[name]


def _innermost(function: Any) -> Any:
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        function = function.func if isinstance(function, functools.partial) else function.__wrapped__
    return function


class StoredSets:
    """The parameter sets of a stored campaign as JSON. A read fetches a batch of consecutive
    sets.
    """

    def __init__(self, read: Callable[[int, int], list[str]], first: list[str] | None = None) -> None:
        self._read = read
        self._first = 0
        self._texts = first or []

    def __getitem__(self, index: int) -> str:
        if not 0 <= index - self._first < len(self._texts):
            self._texts = self._read(index, SETS_AT_ONCE)
            self._first = index
        return self._texts[index - self._first]

    def match(self, texts: list[str]) -> bool:
        """Return whether the sets equal the given ones, of the same number. Of more than 100,000
        sets, compare a sample of batches.
        """
        batches = range(0, len(texts), SETS_AT_ONCE)
        sample = batches[:: max(1, len(batches) // _BATCHES_COMPARED)]
        return all(
            self[at] == texts[at] for first in sample for at in range(first, min(first + SETS_AT_ONCE, len(texts)))
        )


class Parameters:
    """The parameters of the runs of a campaign: ``parameters(run)`` returns a new object for each
    run.
    """

    def __init__(self, function: Callable[..., Any], sets: int, stored: StoredSets) -> None:
        self._kind = kind_of(function)
        self._sets = sets
        self._stored_sets = stored
        self._makers: dict[int, Callable[[], Any]] = {}

    def __call__(self, run: int) -> Any:
        index = run % self._sets
        maker = self._makers.get(index)
        if maker is None:
            maker = self._makers[index] = self._maker(self._stored_sets[index])
        return maker()

    def _maker(self, text: str) -> Callable[[], Any]:
        if self._kind is None:
            values: dict[str, Any] = json.loads(text)
            # Its values are immutable, so a shallow copy is enough.
            return values.copy if all(type(value) in _SHARED for value in values.values()) else lambda: json.loads(text)
        import msgspec

        decode = msgspec.json.Decoder(self._kind).decode
        return lambda: decode(text)


def _as_mapping(name: str, values: Any) -> dict[str, Any]:
    from tidewire.values import plans

    kind = type(values)
    fields = None if isinstance(values, Mapping) else plans.field_names(kind)
    if fields is not None:
        return {field: getattr(values, field) for field in fields}
    if not isinstance(values, Mapping):
        raise InvalidArgument(f"{name}: {values!r} is no dict of parameters")
    for key in values:
        if not isinstance(key, str):
            raise InvalidArgument(f"{name}: {key!r} is no name of a parameter: names are text")
    return dict(values)


def _encode_set(kind: Any, values: dict[str, Any], name: str) -> str:
    import msgspec

    if kind is not None:
        _check_names(kind, values, name)
        try:
            built = msgspec.to_builtins(values)
            msgspec.convert(built, kind)
        except (msgspec.ValidationError, TypeError) as error:
            raise InvalidArgument(f"{name}: {_path(str(error))}; the function takes {_type_name(kind)}") from error
        values = built
    for key, value in values.items():
        _check(f"{name}.{key}", value)
    return json.dumps(values, ensure_ascii=False, allow_nan=False)


def _check_names(kind: Any, values: dict[str, Any], name: str) -> None:
    from tidewire.values import plans

    if typing.is_typeddict(kind):
        known = list(typing.get_type_hints(kind))
    else:
        known = list(plans.field_names(kind) or []) if isinstance(kind, type) else []
    unknown = [key for key in values if known and key not in known]
    if unknown:
        raise InvalidArgument(f"{name}.{unknown[0]}: the function takes no such parameter; it takes {', '.join(known)}")


def _check(name: str, value: Any) -> None:
    """Check that JSON represents a value exactly.

    Raises:
        InvalidArgument: if it does not.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgument(f"{name}: {value!r} can't be written as JSON: pass it as text")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidArgument(f"{name}: text with a lone surrogate: leave it out") from None
    elif isinstance(value, bool) or value is None or isinstance(value, float):
        pass
    elif isinstance(value, int):
        if not -_INTEGER_MAX <= value < _INTEGER_MAX:
            raise InvalidArgument(f"{name}: an integer beyond 64 bits: pass it as text")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check(f"{name}[{index}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidArgument(f"{name}: the key {key!r} is no text, which JSON needs")
            _check(f"{name}.{key}", item)
    else:
        kind = type(value).__name__
        raise InvalidArgument(f"{name}: {value!r} ({kind}) is no plain data: pass numbers, text, lists or dicts")


def _path(text: str) -> str:
    return text.replace(" - at `$.", " at `")


def _type_name(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind))
