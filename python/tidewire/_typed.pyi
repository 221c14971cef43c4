"""Static types of handlers, services and their clients: what type checkers see, and nothing that
exists at run time.

A client of a service class is typed as the class itself, ``type[Pricing]``: an attribute of the
class is the method as clients call it, an attribute of an object is the method as it was written.
So both calls have their own result, and share the parameters.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Concatenate, Generic, Literal, Protocol, Self, TypeAlias, overload

from typing_extensions import ParamSpec, TypedDict, TypeVar

from tidewire._binding import Context
from tidewire.agents.retry import Retry
from tidewire.pools.options import OnDead, Overflow, Restarts
from tidewire.pools.processes.pickler import Pickler
from tidewire.services.instances.context import CallContext
from tidewire.services.stream_reader import Stream
from tidewire.streams.command_run import CommandRun
from tidewire.supervision import Mailbox, Supervision

_T = TypeVar("_T")
_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_M_contra = TypeVar("_M_contra", contravariant=True)
_R_co = TypeVar("_R_co", covariant=True)

# Actors

class Receives(Protocol[_M_contra, _R_co]):
    def receive(self, message: _M_contra, /) -> _R_co: ...

class ReceivesInContext(Protocol[_M_contra, _R_co]):
    def receive(self, message: _M_contra, context: Context, /) -> _R_co: ...

class SpawnOptions(TypedDict, total=False):
    name: str | None
    mailbox: int | Mailbox | None
    dispatcher: str
    concurrency: int
    supervision: Supervision | None

# Pools

class PoolOptions(TypedDict, total=False):
    name: str | None
    capacity: int
    overflow: Overflow
    task_timeout: float | None
    heartbeat_timeout: float | None
    max_deliveries: int
    restarts: Restarts | None
    result_bytes_max: int
    on_dead: OnDead | None
    pickler: Pickler

class AgentPoolOptions(PoolOptions, total=False):
    id: str | None
    type: str | None
    capabilities: Iterable[str] | None
    retry: Retry | None
    mailbox: int | Mailbox | None
    concurrency: int | None

# Services

class ServeOptions(TypedDict, total=False):
    name: str | None
    visibility: str | None
    instance: str | None
    concurrency: int | None
    waiting: int | None
    streams: int | None
    dispatcher: str
    lease: float
    version: str
    metadata: Mapping[str, str] | None

Client: TypeAlias = type[_T]

class ClientMethod(Generic[_P, _R_co]):
    @property
    def __name__(self) -> str: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co: ...
    def with_(
        self,
        *,
        timeout: float | None = None,
        priority: str | None = None,
        instance: str | None = None,
        policy: Any = None,
        headers: Any = None,
    ) -> Self: ...

class Method(Generic[_P, _R_co]):
    """A function that is marked by ``@tw.method``."""

    @overload
    def __get__(
        self: Method[_Q, Coroutine[Any, Any, _T]], instance: None, owner: type
    ) -> ClientMethod[_Q, Coroutine[Any, Any, _T]]: ...
    @overload
    def __get__(self: Method[_Q, AsyncIterator[_T]], instance: None, owner: type) -> ClientMethod[_Q, Stream[_T]]: ...
    @overload
    def __get__(self: Method[_Q, Iterator[_T]], instance: None, owner: type) -> ClientMethod[_Q, Stream[_T]]: ...
    @overload
    def __get__(self, instance: None, owner: type) -> ClientMethod[_P, Coroutine[Any, Any, _R_co]]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[_P, _R_co]: ...

class ClientCommand(Generic[_R_co]):
    @property
    def __name__(self) -> str: ...
    def start(
        self,
        *args: Any,
        key: str | None = None,
        id: str | None = None,
        priority: Literal["urgent", "high", "normal", "low"] = "normal",
        **kwargs: Any,
    ) -> Coroutine[Any, Any, CommandRun[_R_co]]: ...

class Command(Generic[_P, _R_co]):
    """A function that is marked by ``@tw.command``."""

    @overload
    def __get__(self: Command[_Q, Coroutine[Any, Any, _T]], instance: None, owner: type) -> ClientCommand[_T]: ...
    @overload
    def __get__(self, instance: None, owner: type) -> ClientCommand[_R_co]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[_P, _R_co]: ...

class CommandMarker:
    """``@tw.command``."""

    def __call__(self, function: Callable[Concatenate[Any, _P], _T], /) -> Command[_P, _T]: ...

class Unlike:
    """Type that only a parameter without an annotation accepts: the parameter must not be mistaken
    for the context of the call.
    """

class Marker:
    """``@tw.method``: callers don't give self, nor the context where it comes first."""

    @overload
    def __call__(self, function: Callable[Concatenate[Any, Unlike, _P], Any], /) -> Any: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, CallContext, _P], _T], /) -> Method[_P, _T]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, _P], _T], /) -> Method[_P, _T]: ...
