"""A node: actors, subjects and timers of one process."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import monotonic
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tidewire import _current, _handlers, _inspect, _watching
from tidewire._binding import ActorRef, Engine, check_address
from tidewire._forking import in_child
from tidewire._ledger import Ledger
from tidewire._limits import CONCURRENCY, NAME_BYTES, SUBSCRIPTION_CAPACITY
from tidewire._log import logger
from tidewire._urls import is_link
from tidewire.broker import BrokerConfig
from tidewire.config import Config
from tidewire.dead_letters import DeadLetters
from tidewire.errors import AlreadyStarted, InvalidArgument, InvalidSubject, NodeStopped, NoResponders, NoSuchTarget
from tidewire.link_config import LinkConfig
from tidewire.supervision import Mailbox, Supervision, whole
from tidewire.sync import Sync

if TYPE_CHECKING:
    import asyncio

    from tidewire._binding import Bridge, Pending, Subscription, Timer
    from tidewire._loop_thread import LoopThread
    from tidewire.agents.agent import Agent
    from tidewire.agents.directory import Directory
    from tidewire.agents.retry import Retry
    from tidewire.links.connection import Connection
    from tidewire.links.listening import Listener, Token
    from tidewire.links.tls import Tls
    from tidewire.pools.options import Batch, Scale
    from tidewire.pools.pool import Pool
    from tidewire.services.info import ServiceInfo
    from tidewire.services.serving import Served
    from tidewire.subscription import SubscriptionStream
    from tidewire.top.serving import Inspector

_EXIT_TIMEOUT_S = 1.0
_S = TypeVar("_S")
_LOOP = "asyncio"
"""The dispatcher that is the node's event loop."""

_live: weakref.WeakSet[Node] = weakref.WeakSet()


class Node:
    """A node: most programs have one in each process.

    Use it as a context manager: ``async with tw.Node() as node`` in asyncio, ``with tw.Node() as node`` in plain threads.
    At the end of the block everything accepted is handled, and ``node.ledger`` tells what became of it.

    Args:
        url: Where the node lives. ``mem://`` is this process alone.
        name: The node's name, for people; the default is made from the process id.
        config: A ``tw.Config``, nested tables, or the path of a TOML file.
        inspect: Whether ``tidewire top`` of the same user can look at the node while it runs. None leaves it to
            TIDEWIRE_INSPECT in the environment, and without that it can't.
        token: Who it is, for hubs that ask; the default is TIDEWIRE_TOKEN of the environment.
        tls: A ``tw.Tls`` for ``tide+tls://`` and ``wss://``: whom to trust, and a certificate for hubs that ask for one.

    Raises:
        ConfigError: if the configuration is wrong; it names all problems at once.
        InvalidArgument: if the URL is not one that this version can use.
    """

    def __init__(
        self,
        url: str = "mem://",
        name: str | None = None,
        config: Config | Mapping[str, Any] | str | Path | None = None,
        inspect: bool | None = None,
        token: str | None = None,
        tls: Tls | None = None,
    ) -> None:
        self._joins = is_link(url)
        if self._joins:
            check_address(url)
        if token is not None and (not isinstance(token, str) or not token):
            raise InvalidArgument("token: what was given is not allowed: give a string that is not empty, or None")
        if name is not None and (not isinstance(name, str) or not name):
            raise InvalidArgument(
                f"name: {name!r} is not allowed: give a string, or None for a name made from the process id"
            )
        if name is not None and len(name.encode()) > NAME_BYTES.max:
            raise InvalidArgument(
                f"name: {name[:40]!r}... has {len(name.encode())} bytes: give at most name_bytes={NAME_BYTES.max}"
            )
        self.url = url
        self.name = name if name is not None else f"node-{os.getpid()}"
        self._inspect = _inspect.wanted(inspect, Config.of(config).environment)
        self._inspector: Inspector | None = None
        self._engine = Engine(*Config.of(config).layers())
        for warning in self._engine.warnings():
            logger.warning("%s: %s", self.name, warning)
        self._unshared: dict[int, tuple[Subscription, ActorRef, str, str | None]] = {}
        self._unshared_most = 64
        self._token = os.environ.get("TIDEWIRE_TOKEN") if token is None else token
        self._tls = tls
        self._connection: Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._broker = BrokerConfig(**self._engine.broker())
        self._links = LinkConfig(**self._engine.links())
        self._agents: Directory | None = None
        self._pools: list[Pool] = []
        self._sync = Sync(self)
        self._started = False
        self._stopped = False
        self._ledger: Ledger | None = None
        self._loop_thread: LoopThread | None = None
        self._lock = threading.Lock()
        self._self: Callable[[], Node | None] = weakref.ref(self)

    # Life

    def start(self) -> None:
        """Start the node. What was told before is handled now. The context manager does this by itself.

        Raises:
            AlreadyStarted: if it was started before.
            NodeStopped: if it has been stopped.
            ConfigError: if it is to be inspected, and there is no place for a socket that only this user can open.
        """
        self._check()
        if self._started:
            raise AlreadyStarted(
                f"{self!r} has been started already: start() is called once, and `with` calls it by itself"
            )
        if self._inspect:
            self._inspector = _inspect.open_for(self)
        if self._joins:
            self._link().join(self.url, self._token, self._tls)
        self._begin()
        if self._joins:
            self._link().open_blocking()

    def _begin(self) -> None:
        self._started = True
        _live.add(self)
        self._engine.start()

    async def stop(self, timeout: float | EllipsisType | None = ...) -> Ledger:
        """Stop all actors, children before their parents, and handle what they had accepted. A second call gives the same ledger.

        A node that is a hub lets the calls that pass through it end, and takes no new ones.

        Args:
            timeout: Seconds after which actors that are stuck are abandoned, and named in the ledger; the default is the
                configuration's ``stop_timeout_ms``.

        Returns:
            What became of all messages of the actors that were alive.
        """
        pending = self._begin_stop(timeout)
        if isinstance(pending, Ledger):
            return pending
        until = self._until(timeout)
        ledgers: list[Ledger] = [await pending]
        # Actors may wait for tasks of pools, so that the pools stop after them.
        for pool in self._live_pools():
            ledgers.append(await pool.stop(timeout=_left(until)))
        if self._connection is not None:
            await self._connection.drain(until)
        return self._end_stop(ledgers)

    async def __aenter__(self) -> Node:
        self._bind_running_loop()
        if not self._joins:
            self.start()
            return self
        import asyncio

        self._check()
        if self._inspect:
            self._inspector = _inspect.open_for(self)
        # Connecting blocks; the loop goes on meanwhile.
        await asyncio.to_thread(self._link().join, self.url, self._token, self._tls)
        self._begin()
        await self._link().open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __enter__(self) -> Node:
        if _current.running_loop() is not None:
            raise InvalidArgument("`with tw.Node()` would block this thread's event loop at its end: use `async with`")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_blocking(...)

    @property
    def ledger(self) -> Ledger | None:
        """What became of all messages, once the node has stopped."""
        return self._ledger

    @property
    def sync(self) -> Sync:
        """Blocking forms of what is otherwise awaited, for plain threads and plain handlers."""
        return self._sync

    # Actors

    def spawn(
        self,
        target: Any,
        *args: Any,
        name: str | None = None,
        mailbox: int | Mailbox | None = None,
        dispatcher: str = "default",
        concurrency: int = 1,
        supervision: Supervision | None = None,
        **kwargs: Any,
    ) -> ActorRef:
        """Create an actor.

        Args:
            target: ``def f(message)``, ``def f(message, ctx)``, the same with ``async def``, or a class with
                ``receive(self, message[, ctx])`` and optionally ``started``, ``stopped`` and ``handle_batch(self, messages)``.
                ``handle_batch`` takes what has gathered as one list; asks go to ``receive``, one by one. If it raises, nobody
                knows on which message: all of the list have failed. Each is handed out again while ``max_deliveries`` allows,
                in the same order, or else becomes a dead letter with the error. ``on_failure`` applies once for the list.
            *args: Positional arguments for the class.
            name: A unique name to look it up by.
            mailbox: A capacity, or a ``tw.Mailbox``; the default is the configuration's ``mailbox_capacity``.
            dispatcher: Which threads run it. Coroutines run on the node's event loop.
            concurrency: How many messages a coroutine actor handles at once.
            supervision: What failures lead to; the default is to go on.
            **kwargs: Keyword arguments for the class.

        Raises:
            InvalidArgument: if the target can't be an actor, or an option is out of range.
            NameTaken: if a live actor has this name; no actor is created.
            UnknownDispatcher: if there is no such dispatcher; the message lists those there are.
            NodeStopped: if the node has been stopped.
        """
        return self._spawn(None, target, args, kwargs, name, mailbox, dispatcher, concurrency, supervision)

    def lookup(self, name: str) -> ActorRef | None:
        """Return the live actor with this name, or None."""
        return self._engine.lookup(name)

    def tell(self, name: str | Iterable[str], message: Any, priority: str = "normal") -> None:
        """Tell the actor, or each of the actors, with this name something.

        Raises:
            InvalidArgument: if a name is not a string, or there is no such priority.
            NoSuchTarget: if there is no live actor with one of the names; nobody is told anything then.
            MailboxFull: if a mailbox is full and its policy is not to drop.
        """
        if not isinstance(name, (str, Iterable)):
            raise InvalidArgument(f"name: {name!r} is not allowed: give the name of an actor, or a list of names")
        names = [name] if isinstance(name, str) else list(name)
        refs = {wanted: self.lookup(wanted) for wanted in names}
        missing = [wanted for wanted, ref in refs.items() if ref is None]
        if missing:
            raise NoSuchTarget(
                f"name: no live actor is called {', '.join(map(repr, missing))}: spawn it, or look at node.statistics()"
            )
        for ref in refs.values():
            assert ref is not None
            ref.tell(message, priority)

    # Agents and pools

    @property
    def broker(self) -> BrokerConfig:
        """The settings of agents and pools that are in force."""
        return self._broker

    @property
    def agents(self) -> Directory:
        """The live agents: ``get(id)``, ``list(type=..., capability=...)``."""
        if self._agents is None:
            from tidewire.agents.directory import Directory

            with self._lock:
                self._agents = self._agents or Directory(self._engine.tell)
        return self._agents

    def agent(
        self,
        handler: Any,
        *,
        id: str | None = None,
        type: str | None = None,
        capabilities: Iterable[str] | None = None,
        retry: Retry | None = None,
        mailbox: int | Mailbox | None = None,
        dispatcher: str = "default",
        concurrency: int | None = None,
        supervision: Supervision | None = None,
    ) -> Agent:
        """Register an agent: an actor that others find by its id, its type and its capabilities.

        Args:
            handler: ``def f(payload)`` or ``def f(payload, message)``, plain or async; or an object with ``receive`` and
                methods marked by ``@tw.handle``; or a class of such objects, of which one is made without arguments.
                A parameter annotated as ``tw.Message`` receives the message itself.
            id: Unique among the live agents and named actors; the default is the type with a number.
            type: What sort of agent it is.
            capabilities: What it can do.
            retry: How a message whose handler failed is tried again; the default is the configuration's, which is never.
            mailbox: A capacity, or a ``tw.Mailbox``; the default is the configuration's ``agent_mailbox``.
            dispatcher: Which threads run it. Coroutines run on the node's event loop.
            concurrency: How many messages an agent with coroutines handles at once.
            supervision: What failures lead to; the default is to go on.

        Returns:
            The agent: the object itself if it is a ``tw.Agent``, else one that stands for it.

        Raises:
            InvalidArgument: if the handler can't be an agent, or an option is not allowed.
            NameTaken: if a live agent or actor has this id.
            NodeStopped: if the node has been stopped.
        """
        from tidewire.agents.registering import register

        self._check()
        return register(
            self,
            handler,
            id=id,
            type=type,
            capabilities=capabilities,
            retry=retry,
            mailbox=mailbox,
            dispatcher=dispatcher,
            concurrency=concurrency,
            supervision=supervision,
        )

    def pool(
        self,
        function: Callable[..., Any] | str,
        workers: int | Scale | None = None,
        kind: str = "thread",
        batch: Batch | int | bool | None = None,
        **options: Any,
    ) -> Pool:
        """Make a pool of supervised workers that run one function: ``await pool.submit(x)``, ``async for y in pool.map(xs)``.

        Args:
            function: What the workers call, or its import path ``"package.module:name"``. With a class of agents, or a
                ``functools.partial`` of one, each worker makes an instance, and all of them are one agent for others. With
                ``id``, ``type`` or ``capabilities`` a function, or a path, becomes such an agent too.
            workers: How many, or a ``tw.Scale``; the default is the configuration's ``pool_workers``.
            kind: "thread", or "process" for work that needs a core of its own.
            batch: The function takes a list of what is queued, and returns a list of as many results: a ``tw.Batch``, the
                largest size, or True for the configuration's.
            **options: As for ``tw.Pool``: name, capacity, overflow, task_timeout, max_deliveries, restarts, result_bytes_max, on_dead.
                For agents also id, type, capabilities, retry and mailbox, as for ``agent``, and concurrency: how many
                messages have left the mailbox for the workers, two per worker if nothing is said.

        Returns:
            The pool. It stops with the node, after the actors; tasks that it gives up are among the node's dead letters, and
            requeue submits them again.

        Raises:
            InvalidArgument: if an argument is not allowed, or the function can't be sent to a process.
            NameTaken: if the node has a pool of this name.
            NodeStopped: if the node has been stopped.
        """
        from tidewire.pools.of_node import make

        self._check()
        pool = make(self, function, workers, kind, batch, options)
        self._pools = [*self._live_pools(), pool]
        return pool

    # Links and services

    @property
    def links(self) -> LinkConfig:
        """The settings of links that are in force."""
        return self._links

    def listen(
        self, url: str, *, tokens: Iterable[Token] = (), insecure: bool = False, tls: Tls | None = None
    ) -> Listener:
        """Let other nodes join: this node becomes a hub, which routes between all that have joined. Call it again for more places.

        Args:
            url: ``tide://127.0.0.1:0`` (the system chooses the port), ``tide+tls://``, ``ws://``, ``wss://`` or ``tide+unix:///path``.
            tokens: Who may join; without any, everybody who reaches the place. The first call decides.
            insecure: Allow a place that other machines can reach although there is no TLS or no token.
            tls: A ``tw.Tls`` with the certificate and key of this node; with a ``ca`` only nodes with a certificate of its may join.

        Returns:
            The listener: ``.url`` has the real port, ``.close()`` takes no more nodes in.

        Raises:
            InvalidArgument: if the URL is not one to listen at, or this node has joined another hub.
            Unauthorized: if other machines could reach it, and that was not allowed.
            ConfigError: if the place is taken.
        """
        from tidewire.links.listening import Listener, grants

        self._check()
        return Listener(self._link().listen(url, grants(tokens), insecure, tls))

    def serve(self, target: Any, **options: Any) -> Served:
        """Serve an object, a function, or a dict of functions; see ``tidewire.services.serving.serve`` for all options.

        Awaiting the result waits until the hub knows, where there is one. The options are name, visibility, instance,
        concurrency and dispatcher.
        """
        from tidewire.services.serving import serve

        return serve(self, target, **options)

    @overload
    def client(self, service: type[_S], name: str | None = None) -> _S: ...

    @overload
    def client(self, service: str, name: str | None = None) -> Any: ...

    def client(self, service: Any, name: str | None = None) -> Any:
        """Return a client of a service, by its class or its name.

        Raises:
            InvalidArgument: if the class declares no service, or a name is not allowed.
        """
        from tidewire.services.proxy import client

        return client(self, service, name)

    async def services(self) -> list[ServiceInfo]:
        """Return the services that this node can reach, by name."""
        from tidewire.services.serving import known

        return known(self)

    def _link(self) -> Connection:
        if self._connection is None:
            from tidewire.links.connection import Connection

            with self._lock:
                if self._connection is None:
                    self._connection = Connection(self)
                    # The process takes its links along at its end; the collector does not.
                    weakref.finalize(self, self._connection.abandon).atexit = False
        return self._connection

    # Subjects

    def subscribe(self, pattern: str, target: ActorRef | Callable[..., Any], queue: str | None = None) -> Subscription:
        """Deliver what is published on matching subjects to an actor, or to a handler of its own.

        Args:
            pattern: Tokens divided by dots; ``*`` stands for one token, ``>`` at the end for one or more.
            target: An actor, or a function or coroutine function: ``def f(message)`` or ``def f(message, ctx)``.
            queue: Members of a queue group share the messages: each goes to one of them.

        Returns:
            The subscription. Awaiting it (``.wait()`` in a plain thread) waits until it gets what other nodes publish too; what the
            hub refuses is raised there.

        Raises:
            InvalidSubject: if the pattern is malformed.
            InvalidArgument: if the target can't take messages.
            ActorStopped: if the actor has stopped.
        """
        self._check()
        _check_subscription(pattern, queue)
        self._engine.check_pattern(pattern)
        own = not isinstance(target, ActorRef)
        actor = target if isinstance(target, ActorRef) else self.spawn(target)
        try:
            subscription = self._engine.subscribe(pattern, actor, queue, own)
        except BaseException:
            if own:
                actor.stop(drain=False)
            raise
        self._note_subscription(subscription, actor, pattern, queue)
        return subscription

    def _note_subscription(self, subscription: Subscription, actor: ActorRef, pattern: str, queue: str | None) -> None:
        """Share a subscription with other nodes, now or when this one becomes a hub."""
        if self._connection is not None and self._connection.is_joined:
            share, shared = self._connection.share(actor, pattern, queue)
            subscription.share(shared)
            subscription.on_end(lambda: self._link().unsubscribe(share))
            return
        with self._lock:
            if len(self._unshared) >= self._unshared_most:
                # Those of actors that have stopped end without a word.
                self._unshared = {key: known for key, known in self._unshared.items() if known[1].alive}
                self._unshared_most = max(64, 2 * len(self._unshared))
            key = id(subscription)
            self._unshared[key] = (subscription, actor, pattern, queue)
        subscription.on_end(lambda: self._unshared.pop(key, None))

    def _share_all(self) -> None:
        with self._lock:
            unshared, self._unshared = self._unshared, {}
        for known in unshared.values():
            if known[1].alive:
                self._note_subscription(*known)

    def set_subscriptions(self, actor: ActorRef, patterns: Iterable[str]) -> list[str]:
        """Set the subscriptions of an actor to exactly these patterns, and return those in force. Those that stay are not interrupted."""
        before = set(self._engine.subscriptions(actor))
        after = self._engine.set_subscriptions(patterns, actor)
        if self._connection is not None and self._connection.is_joined:
            self._connection.keep_shared(actor, after)
            for pattern in set(after) - before:
                self._connection.share(actor, pattern, None)
        return after

    def unsubscribe(self, actor: ActorRef, pattern: str) -> list[str]:
        """End the subscriptions of an actor to one pattern, and return those still in force."""
        return self._kept(actor, self._engine.unsubscribe(pattern, actor))

    def _kept(self, actor: ActorRef, patterns: list[str]) -> list[str]:
        if self._connection is not None:
            self._connection.keep_shared(actor, patterns)
        return patterns

    def unsubscribe_all(self, actor: ActorRef) -> int:
        """End all subscriptions of an actor, and return how many there were."""
        count = self._engine.unsubscribe_all(actor)
        self._kept(actor, [])
        return count

    def subscriptions(self, actor: ActorRef) -> list[str]:
        """Return the patterns that an actor is subscribed to."""
        return self._engine.subscriptions(actor)

    def subscription(
        self,
        pattern: str,
        capacity: int = SUBSCRIPTION_CAPACITY.default,
        overflow: str = "wait",
        queue: str | None = None,
    ) -> SubscriptionStream:
        """Read what is published with ``async with node.subscription(...) as s: async for envelope in s``.

        Args:
            pattern: As for ``subscribe``.
            capacity: How many messages may wait to be read.
            overflow: What happens to one more; "wait" and "fail" count it as refused, and keep it as a dead letter.
            queue: As for ``subscribe``.

        Raises:
            InvalidArgument: if a value is not allowed.
            InvalidSubject: if the pattern is not a string; on entry, if it is malformed.
        """
        from tidewire.subscription import SubscriptionStream

        _check_subscription(pattern, queue)
        whole("capacity", capacity, SUBSCRIPTION_CAPACITY)
        return SubscriptionStream(self, pattern, Mailbox(capacity, overflow), queue)  # type: ignore[arg-type]

    def publish(self, subject: str, message: Any, headers: Mapping[str, str] | None = None) -> int:
        """Publish a message, and return how many subscriptions of this node accepted it.

        A node that has joined others publishes to them too: at most once, in order, while the link lasts.
        Deliveries that a full mailbox refuses become dead letters with the reason "mailbox_full".

        Raises:
            InvalidSubject: if the subject is malformed, or not a string.
            InvalidArgument: if the headers are not strings, or the message can't be sent to other nodes; nobody has it then.
            LinkLost: if the link to the hub is lost; nobody has it then.
        """
        if self._stopped:
            self._check()
        link = None if self._connection is None else self._connection.joined
        if link is not None:
            # First: what can't be sent is refused before anybody has it.
            link.publish(subject, message, None, None if headers is None else dict(headers))
        accepted, _ = self._engine.publish(subject, message, headers)
        return accepted

    def request(
        self,
        subject: str,
        message: Any,
        timeout: float | EllipsisType | None = ...,
        headers: Mapping[str, str] | None = None,
    ) -> Pending:
        """Ask one of those subscribed to ``subject``; await the result.

        Raises:
            NoResponders: if nobody is subscribed.
            AskTimeout: if no reply came within ``timeout`` seconds; without it, the configuration's ``ask_timeout_ms``.
        """
        self._check()
        try:
            return self._engine.request(subject, message, headers, timeout)
        except NoResponders:
            if self._connection is None or not self._connection.is_joined:
                raise
        seconds = self._engine.ask_timeout() if isinstance(timeout, EllipsisType) else timeout
        return self._connection.request(subject, message, seconds, headers)

    # Timers

    def schedule(
        self, delay: float, ref: ActorRef, message: Any, every: float | None = None, priority: str = "normal"
    ) -> Timer:
        """Tell an actor something after ``delay`` seconds, and then, with ``every``, again and again.

        Raises:
            InvalidArgument: if a time is negative or not a number.
        """
        self._check()
        if not isinstance(ref, ActorRef):
            raise InvalidArgument(
                f"ref: {ref!r} is not an actor: give what node.spawn() returned, or node.lookup(name)"
            )
        return self._engine.schedule(delay, ref, message, every, priority)

    # Looking

    @property
    def dead_letters(self) -> DeadLetters:
        """Messages that were given up."""
        return DeadLetters(self._engine)

    def statistics(self) -> dict[str, Any]:
        """Return counters and times of all actors, agents, dispatchers, services and the pools of this process.

        Under ``links``, ``hub`` is the name of the hub that this node is joined to at present, or None; ``nodes`` how many nodes have
        joined here, itself included, 0 if it is no hub; ``services`` how many instances of each service it can reach at present, here
        and at other nodes. The cost grows with the number of actors.
        """
        return {
            **self._engine.statistics(),
            "agents": _inspect.agents(self),
            "pools": _inspect.pools(),
            "services": _inspect.services(self),
            "remote": _inspect.remote(self),
            "links": _inspect.links(self),
        }

    async def until(
        self, condition: Callable[[dict[str, Any]], object], timeout: float | None = None
    ) -> dict[str, Any]:
        """Wait until the statistics fit a condition, and return them.

        It is looked at whenever the node is told of something: its link is lost or it has joined again, a node has joined here or
        gone, a service or an agent of any node came or went, a function or object was given or let go, a message became a dead letter. What is counted for
        each message shows in the statistics, and is told by nothing.

        Args:
            condition: Called with ``statistics()``; true if they fit.
            timeout: Seconds after which it is given up; None for no limit.

        Raises:
            TimeoutError: if they do not fit in time.
            NodeStopped: if the node has stopped, and they do not fit.
            InvalidArgument: if an argument is not allowed.
        """
        return await _watching.wait(self, condition, timeout)

    def __repr__(self) -> str:
        state = "stopped" if self._stopped else "running" if self._started else "not started"
        connection, url = self._connection, self.url
        if connection is not None and not self._stopped:
            url = " ".join(connection.places) or url
            state += ", link lost" if connection.is_lost else ""
        return f"<Node {self.name!r} {url} {state}, {self._engine.actors} actors>"

    # Inside

    def _give_up(self, ref: ActorRef, message: Any, reason: str, error: str | None) -> None:
        self._engine.give_up(ref, message, reason, error)

    def _spawn_child(
        self, parent: ActorRef, target: Any, args: tuple[Any, ...], options: dict[str, Any] | None
    ) -> ActorRef:
        options = dict(options or {})
        taken = {key: options.pop(key, None) for key in ("name", "mailbox", "supervision")}
        dispatcher = options.pop("dispatcher", "default")
        concurrency = options.pop("concurrency", 1)
        return self._spawn(
            parent,
            target,
            args,
            options,
            taken["name"],
            taken["mailbox"],
            dispatcher,
            concurrency,
            taken["supervision"],
        )

    def _spawn(
        self,
        parent: ActorRef | None,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None,
        mailbox: int | Mailbox | None,
        dispatcher: str,
        concurrency: int,
        supervision: Supervision | None,
    ) -> ActorRef:
        def plan() -> _handlers.Plan:
            return _handlers.plan(target, args, kwargs)

        return self._spawn_plan(parent, plan, name, mailbox, dispatcher, concurrency, supervision)

    def _spawn_plan(
        self,
        parent: ActorRef | None,
        make: Callable[[], _handlers.Plan],
        name: str | None,
        mailbox: int | Mailbox | None,
        dispatcher: str,
        concurrency: int,
        supervision: Supervision | None,
    ) -> ActorRef:
        self._check()
        # The options come first: a class whose actor is refused is not called.
        _check_options(name, dispatcher, concurrency, supervision)
        box = mailbox if isinstance(mailbox, Mailbox) else None if mailbox is None else Mailbox(mailbox)
        plan = make()
        _check_plan(plan, dispatcher, concurrency)
        if plan.coroutine or dispatcher == _LOOP:
            self._ensure_loop()
        return self._engine.spawn(
            plan,
            self._self,
            parent,
            name=name,
            capacity=None if box is None else box.capacity,
            overflow=None if box is None else box.overflow,
            dispatcher=dispatcher,
            concurrency=concurrency,
            supervision=supervision,
        )

    def _check(self) -> None:
        if self._stopped:
            raise NodeStopped(f"{self!r} has been stopped: make a new one")

    def _bind_running_loop(self) -> None:
        import asyncio

        from tidewire._loop import bridge_of

        self._loop = asyncio.get_running_loop()
        self._engine.bind(bridge_of(self._loop))

    def _on_loop(self, call: Callable[[Bridge], object]) -> None:
        """Call something with the bridge of the node's loop, on the thread of that loop, and wait for it."""
        import asyncio

        from tidewire._loop import bridge_of

        self._ensure_loop()
        assert self._loop is not None
        if _current.running_loop() is self._loop:
            call(bridge_of(self._loop))
            return

        async def on_loop() -> None:
            call(bridge_of(asyncio.get_running_loop()))

        asyncio.run_coroutine_threadsafe(on_loop(), self._loop).result()

    def _ensure_loop(self) -> None:
        """Coroutines need a loop: the running one, or else one in a thread of the node's own."""
        with self._lock:
            if self._engine.is_bound:
                return
            if _current.running_loop() is not None:
                self._bind_running_loop()
                return
            from tidewire._loop_thread import LoopThread

            self._loop_thread = LoopThread(self.name)
            self._loop_thread.call(self._bind_running_loop)

    def _begin_stop(self, timeout: float | EllipsisType | None) -> Pending | Ledger:
        if self._ledger is not None:
            return self._ledger
        if self._engine.is_past:
            # In the child of a fork: what there was to stop, and to count, is the parent's.
            self._stopped = True
            self._ledger = Ledger(0, 0, 0, 0, reason="shutdown")
            return self._ledger
        if self._connection is not None:
            self._connection.goodbye()
        pending = self._engine.shutdown(timeout)
        # A timeout that is refused has stopped nothing.
        self._stopped = True
        return pending

    def _end_stop(self, ledgers: list[Ledger]) -> Ledger:
        if self._ledger is None:
            self._ledger = Ledger.total(ledgers)
            if self._connection is not None:
                self._connection.close()
            if self._inspector is not None:
                self._inspector.end()
            self._engine.unbind()
            if self._loop_thread is not None:
                self._loop_thread.end()
            _live.discard(self)
            self._engine.tell()
        return self._ledger

    def _stop_blocking(self, timeout: float | EllipsisType | None) -> Ledger:
        pending = self._begin_stop(timeout)
        if isinstance(pending, Ledger):
            return pending
        until = self._until(timeout)
        ledgers: list[Ledger] = [pending.wait()]
        for pool in self._live_pools():
            ledgers.append(pool._stop_blocking(True, _left(until)))
        if self._connection is not None:
            self._connection.drain_blocking(until)
        return self._end_stop(ledgers)

    def _until(self, timeout: float | EllipsisType | None) -> float | None:
        seconds = self._engine.stop_timeout() if isinstance(timeout, EllipsisType) else timeout
        return None if seconds is None else monotonic() + seconds

    def _live_pools(self) -> list[Pool]:
        return [pool for pool in self._pools if pool.ledger is None]


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - monotonic())


def _check_options(name: object, dispatcher: object, concurrency: object, supervision: object) -> None:
    if name is not None and not isinstance(name, str):
        raise InvalidArgument(f"name: {name!r} is not allowed: give a string, or None")
    if not isinstance(dispatcher, str):
        raise InvalidArgument(f"dispatcher: {dispatcher!r} is not allowed: give the name of a dispatcher")
    whole("concurrency", concurrency, CONCURRENCY)
    if supervision is not None and not isinstance(supervision, Supervision):
        raise InvalidArgument(f"supervision: {supervision!r} is not allowed: give a tw.Supervision")


def _check_plan(plan: _handlers.Plan, dispatcher: str, concurrency: int) -> None:
    if concurrency > 1 and not plan.coroutine:
        raise InvalidArgument(
            f"concurrency: {concurrency} needs coroutines: make the handler `async def`, or leave concurrency at 1"
        )
    if plan.batch is not None and dispatcher == _LOOP:
        raise InvalidArgument(
            f"dispatcher: {dispatcher!r} is the event loop, and handle_batch runs on threads: choose another dispatcher"
        )


def _check_subscription(pattern: object, queue: object) -> None:
    if not isinstance(pattern, str):
        raise InvalidSubject(f"pattern: {pattern!r} is not allowed: give a string, tokens divided by dots")
    if queue is not None and (not isinstance(queue, str) or not queue):
        raise InvalidArgument(f"queue: {queue!r} is not allowed: give a name, or None")


def _stop_all() -> None:
    """Stop the nodes that are still live when the interpreter ends, so that none of their threads outlives it."""
    for node in list(_live):
        node._stop_blocking(_EXIT_TIMEOUT_S)


def _forget_all() -> None:
    """In the child of a fork: the nodes are the parent's."""
    _live.clear()


atexit.register(_stop_all)
in_child(_forget_all)
