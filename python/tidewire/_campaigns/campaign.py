"""Campaigns: seeded runs of a function over many workers, each stored once."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Literal

from tidewire import _trace_context
from tidewire._binding import Run
from tidewire._campaigns import code as codes
from tidewire._campaigns import columns as column_types
from tidewire._campaigns import parameters as parameter_sets
from tidewire._campaigns.arguments import (
    check_name,
    checked_seed,
    integer,
    micros,
    precision_of,
    seconds,
    seed_of,
    short,
    title_of,
    written_seed,
)
from tidewire._campaigns.group import Options
from tidewire._campaigns.owner import condition_of, this_process
from tidewire._campaigns.precision import Precision
from tidewire._campaigns.progress import progress_of
from tidewire._campaigns.report import Batch, Event, FailedRun, Report, Status, live, status_fields, time_of
from tidewire._campaigns.rows import Row, rows_of
from tidewire._campaigns.store import Connection, shown, url_of
from tidewire._campaigns.supervisor import Supervisor, checked_workers, stopped_by
from tidewire.errors import CampaignError, NameTaken, NoSuchCampaign, StoreUnavailable, TidewireError

if TYPE_CHECKING:
    from tidewire._campaigns.summary import Summary

_RUNS_MAX = 2**48
_ROWS_AT_ONCE = 10_000
_FAILURES_AT_ONCE = 1_000
_MASK = 2**128 - 1
_NAME_BYTES_MAX = 128


def campaign(
    function: Callable[..., Any] | str,
    *,
    runs: int,
    seed: int | str = 0,
    params: Mapping[str, Any] | Any = None,
    sweep: Sequence[Mapping[str, Any]] | None = None,
    name: str | None = None,
    store: str | None = None,
    until: Precision | None = None,
    attempts: int = 3,
    timeout: float | None = None,
    failed_max: int | None = None,
    lease: float = 5.0,
    range: float = 0.2,
    accept_code: bool = False,
) -> Campaign:
    """Plan seeded runs of a function, and store the plan. ``Campaign.run`` runs them.

    A campaign that is stored under this name already is gone on with, if its plan is the same; with
    more runs, if ``runs`` is more than it had.

    Args:
        function: Takes a ``tw.Run`` and returns its result: a data class, typed dict,
            ``msgspec.Struct``, named tuple, dict of plain values or a single value, or a list of
            these for several rows. ``"module:name"`` names one.
        runs: How many, over all parameter sets; 0 to 2^48.
        seed: An integer of any sign, or text. The draws of run i depend on the seed and i
            alone.
        params: Parameters of every run, as ``run.params``.
        sweep: Parameter sets, such as those of ``tw.grid`` or ``tw.latin_hypercube``, each on top
            of ``params``. Run i has set ``i % len(sweep)``.
        name: Unique in the store, 1 to 128 bytes. Without one it is named after the function, with
            a number.
        store: The URL of the store, or the path of a file such as ``farm.db``; without one that of
            the environment's ``TIDEWIRE_STORE``, or ``sqlite:///tidewire.db``.
        until: Ends the campaign once a mean is known well enough.
        attempts: How often a run is tried that raises, 1 to 100.
        timeout: The time limit of a run in seconds. A run over it is ended, and counts as failed
            after all its attempts.
        failed_max: The campaign fails when more runs than this have failed or were quarantined.
            None: it never does.
        lease: Seconds after which the runs of a worker that is not heard of go to another, 0.1 to
            86,400.
        range: Seconds of work that are leased, and stored, at once, 0.001 to 3,600.
        accept_code: Goes on with a stored campaign although the code has changed; the store keeps a
            note of it.

    Raises:
        InvalidArgument: if an argument is not what is allowed, or the function can't be imported by
            workers.
        NameTaken: if there is another campaign of this name; the message says what differs.
        CodeChanged: if a stored campaign began with other code.
        CampaignError: if the store can't be used.
        StoreUnavailable: if the store is away.
    """
    codes.check_guard()
    code = codes.describe(function)
    schema = column_types.of_function(code.function)
    plan: dict[str, Any] = {
        "runs": integer("runs", runs, 0, _RUNS_MAX),
        "campaign_seed": checked_seed(seed),
        "function": code.name,
        "pickled": code.pickled,
        "code": code.identity,
        "columns": None if schema is None else schema[0],
        "many": schema is not None and schema[1],
        "attempts": integer("attempts", attempts, 1, 100),
        "timeout_us": None if timeout is None else micros("timeout", timeout, 0.001, 86_400 * 365),
        "failed_max": None if failed_max is None else integer("failed_max", failed_max, 0, _RUNS_MAX),
        "lease_us": micros("lease", lease, 0.1, 86_400),
        "range_us": micros("range", range, 0.001, 3_600),
        "until": precision_of(until, schema),
        "parameters": parameter_sets.checked(code.function, params, sweep),
    }
    connection = Connection(url_of(store), create=True)
    if name is None:
        return _create_numbered(connection, plan, title_of(code.name))
    check_name(name)
    try:
        number = connection().create(name=name, **plan)
    except NameTaken:
        return _go_on(connection, name, plan, accept_code)
    return Campaign(connection, number, accept_code)


def campaigns(store: str | None = None) -> list[Campaign]:
    """Return every campaign of a store, newest first.

    Raises:
        CampaignError: if the store can't be used.
        StoreUnavailable: if the store is away, or there is no such file.
    """
    connection = Connection(url_of(store))
    return [Campaign(connection, row["id"]) for row in connection().campaigns()]


def open_campaign(store: str | None, name_or_id: str | int) -> Campaign:
    """Return the campaign of this name, or if there is none of this number.

    Raises:
        NoSuchCampaign: if there is none.
        CampaignError: if the store can't be used.
        StoreUnavailable: if the store is away, or there is no such file.
    """
    connection = Connection(url_of(store))
    return Campaign(connection, connection().find(str(name_or_id)))


class Campaign:
    """A campaign of a store. Made by ``tw.campaign``, ``tw.open_campaign`` and ``tw.campaigns``."""

    def __init__(self, connection: Connection, number: int, accept_code: bool = False) -> None:
        self._connection = connection
        self._accept_code = accept_code
        self.id = number
        plan = connection().campaign(number)
        self.name: str = plan["name"]
        self.function: str = plan["function"]
        self.seed: int | str = seed_of(plan["seed"])
        self.sets: int = plan["sets"]
        self.created: datetime.datetime = time_of(plan["created_us"])
        self._plan = plan
        live.add(self)

    @property
    def store(self) -> str:
        """The URL of its store."""
        return self._connection.url

    @property
    def runs(self) -> int:
        """How many runs are planned."""
        return int(self._read()["runs"])

    @property
    def table(self) -> str:
        """The table of its results."""
        return str(self._known()["table"])

    @property
    def columns(self) -> dict[str, str] | None:
        """The columns of its results with their types; None before they are known."""
        columns = self._known()["columns"]
        return None if columns is None else dict(columns)

    @property
    def many(self) -> bool | None:
        """True if a run gives a list of rows; None before the form is known."""
        many: bool | None = self._known()["many"]
        return many

    # Running

    def run(
        self,
        workers: int | None = None,
        *,
        progress: bool | None = None,
        accept_code: bool = False,
        store_wait: float = 60.0,
    ) -> Report:
        """Run it with worker processes of this machine until it has ended, and return its report.

        A campaign that is paused is resumed. Ctrl-C ends the workers; what was stored stays, and
        ``run`` goes on with it.

        Args:
            workers: How many processes; without it as many as there are processors. With 0 it waits
                for those that serve the store (``tidewire worker``), which then do all runs; Ctrl-C
                ends the waiting alone.
            progress: True if progress is shown. By default a notebook and a terminal show it,
                and other outputs get one line at the end.
            accept_code: Works although the code has changed since the campaign began; the store
                keeps a note of it.
            store_wait: Seconds for which a store that is away is waited for.

        Raises:
            InvalidArgument: if an argument is not what is allowed.
            CodeChanged: if workers have other code than the campaign.
            CampaignError: if workers can't work at it, or die one after the other.
            StoreUnavailable: if the store is away for too long.
        """
        return self._run(self._supervision(workers, progress, accept_code, store_wait))

    async def run_async(
        self,
        workers: int | None = None,
        *,
        progress: bool | None = None,
        accept_code: bool = False,
        store_wait: float = 60.0,
    ) -> Report:
        """Do what ``run`` does, without blocking the event loop. If it is cancelled the workers end
        after their runs.
        """
        import asyncio

        supervision = self._supervision(workers, progress, accept_code, store_wait)
        working = asyncio.get_running_loop().run_in_executor(None, self._run, supervision)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            supervision.stop()
            with contextlib.suppress(Exception):
                await working
            raise

    def _supervision(
        self, workers: int | None, progress: bool | None, accept_code: bool, store_wait: float
    ) -> _Supervision:
        codes.check_guard()
        options = Options(
            self.store,
            checked_workers("workers", workers, least=0),
            accept_code or self._accept_code,
            seconds("store_wait", store_wait, 0, 86_400),
        )
        return _Supervision(options, progress_of(progress))

    def _run(self, supervision: _Supervision) -> Report:
        # A connection of its own: this may be another thread.
        store = Connection(self.store)()
        owner = this_process()
        state = self.status().state
        if state in ("draft", "paused"):
            store.transition(self.id, "running", owner.note("run"))
        elif state == "running":
            # The supervisor waits for a store that is away.
            with contextlib.suppress(StoreUnavailable):
                store.note(self.id, owner.note("run"))
        if not self.status().ended:
            try:
                supervision.run(store, self.id, self.name)
            finally:
                with contextlib.suppress(TidewireError):
                    if not self.status().ended:
                        store.note(self.id, owner.note("left"))
        return self.report()

    def start(self, reason: str = "") -> None:
        """Let the processes that serve its store (``tidewire worker``) run it, and return at once.
        One that is paused goes on.

        Raises:
            CampaignError: if it has ended.
            StoreUnavailable: if the store is away.
        """
        self._connection.ask(lambda store: store.transition(self.id, "running", reason or "started"))

    def extend(self, more: int) -> None:
        """Add runs behind the last one. One that was done can run again; its runs stay as they are.

        Raises:
            InvalidArgument: if there would be too many.
            CampaignError: if it was cancelled or has failed.
        """
        self._connection().extend(self.id, integer("more", more, 0, _RUNS_MAX))

    def pause(self, reason: str = "") -> None:
        """Pause it: no range is leased any more, and results of leased ranges are still stored.

        Raises:
            CampaignError: if it has ended.
        """
        self._connection.ask(lambda store: store.transition(self.id, "paused", reason or "paused"))

    def resume(self, reason: str = "") -> None:
        """Go on after a pause.

        Raises:
            CampaignError: if it has ended.
        """
        self._connection.ask(lambda store: store.transition(self.id, "running", reason or "resumed"))

    def cancel(self, reason: str = "") -> None:
        """End it: results of leased ranges are not stored, and stored ones stay.

        Raises:
            CampaignError: if it has ended otherwise.
        """
        self._connection.ask(lambda store: store.transition(self.id, "cancelled", reason or "cancelled"))

    # Looking

    def status(self) -> Status:
        """Return counters, workers and pace, at a cost that does not depend on the number of
        runs.
        """
        return Status(**self._status_fields())

    def report(self) -> Report:
        """Return the report of what is stored now."""
        status = self._status_fields()
        ended = status["done"] + status["failed"] + status["quarantined"]
        if status["seconds"] > 0:
            status["rate"] = ended / status["seconds"]
        return Report(**status, function=self.function, seed=self.seed, created=self.created, campaign=self)

    def _status_fields(self) -> dict[str, Any]:
        row = self._connection.ask(lambda store: store.status(self.id))
        events = self._connection.ask(lambda store: store.events(self.id)) if row["state"] == "running" else ()
        return status_fields(row, condition_of(row, events, self._plan["lease_us"]))

    def events(self) -> list[Event]:
        """Return what happened to it as a whole, oldest first: its states with time and reason, and
        notes.
        """
        rows = self._connection.ask(lambda store: store.events(self.id))
        return [Event(time_of(at), before, after, reason) for at, before, after, reason in rows]

    def errors(self) -> Iterator[FailedRun]:
        """Yield the runs that failed or were quarantined, in order."""
        at = 0
        while rows := self._failures(at):
            for row in rows:
                yield FailedRun(
                    **{key: value for key, value in row.items() if key != "at_us"}, at=time_of(row["at_us"])
                )
            at = rows[-1]["run"] + 1

    def parameters(self, set: int = 0) -> dict[str, Any]:
        """Return a parameter set.

        Raises:
            InvalidArgument: if there are not so many.
        """
        import json

        values: dict[str, Any] = json.loads(self._connection.ask(lambda store: store.parameters(self.id, set))[0])
        return values

    def _stored_sets(self) -> parameter_sets.StoredSets:
        return parameter_sets.StoredSets(
            lambda first, most: self._connection.ask(lambda store: store.parameters(self.id, first, most))
        )

    # Results

    def results(self) -> Iterator[Row]:
        """Yield the stored rows in order of run, at constant memory: ``row.run``, ``row.hits``,
        ``row["hits"]``.
        """
        if self.columns is not None:
            yield from rows_of(self.batches(), self.columns, bool(self.many), self.sets)

    def batches(self, rows_max: int = _ROWS_AT_ONCE, from_run: int = 0) -> Iterator[Batch]:
        """Yield the stored rows in order of run, by columns, about ``rows_max`` at once. Runs are
        never cut.
        """
        integer("rows_max", rows_max, 1, 1_000_000)
        columns = self.columns
        while columns is not None:
            runs, rows, values, digest = self._rows(from_run, rows_max)
            if not runs:
                return
            yield Batch(runs, rows, dict(zip(columns, values, strict=True)), digest)
            from_run = runs[-1] + 1

    def verify(self) -> str:
        """Return the digest computed again from the stored rows, to be compared with
        ``status().digest``.
        """
        return f"{sum(batch.digest for batch in self.batches()) & _MASK:032x}"

    def summary(self, by: str | Sequence[str] | None = None) -> Summary:
        """Return count, mean, standard error, ends and quantiles of each numeric column, in one
        pass at constant memory. Each element of a column of arrays has an entry, such as
        ``curve[0]``: of the first 1,000, and of fewer if there are more than 200 groups.

        Args:
            by: Names of parameters or columns: one group for each of their values. ``"param_set"``
                is the number of the set.

        Raises:
            InvalidArgument: if a name is no parameter and no column, or there are more than 100,000
                groups.
        """
        from tidewire._campaigns.summary import summary

        return summary(self, by)

    def differences(self, baseline: int = 0) -> Summary:
        """Return the statistics of differences between parameter sets, for each numeric column in
        one pass: the value of a run minus that of the baseline's run in the same replication.

        ``missing`` counts replications with one of both values. See ``Run.common``.

        Args:
            baseline: The number of a set; each other one has entries, ``by={"param_set": number}``.

        Raises:
            InvalidArgument: if there is no such set, one set or over 100,000, or rows per run.
        """
        from tidewire._campaigns.differences import differences

        return differences(self, baseline)

    def to_csv(self, path: str | os.PathLike[str] | IO[str]) -> int:
        """Write the rows as CSV in order of run, at constant memory, and return how many. Missing
        values are empty.

        The file appears when it is whole. A campaign that still runs gives the rows that are stored
        when they are come to.

        Args:
            path: A file, or one that is open for text.

        Raises:
            InvalidArgument: if there are no results yet, or the file can't be written.
        """
        from tidewire._campaigns.export import to_csv

        return to_csv(self, path)

    def to_parquet(self, path: str | os.PathLike[str]) -> int:
        """Write the rows as Parquet in order of run, by groups of 100,000, and return how many. It
        needs ``tidewire[parquet]``.

        Raises:
            InvalidArgument: if there are no results yet, pyarrow is not installed, or the file
                can't be written.
        """
        from tidewire._campaigns.export import to_parquet

        return to_parquet(self, path)

    def frame(self, kind: Literal["pandas", "polars"] | None = None) -> Any:
        """Return all rows as a data frame, in memory.

        Args:
            kind: The library; without it the one that is imported already, or that is installed.

        Raises:
            InvalidArgument: if there are no results yet, or no library is installed.
        """
        from tidewire._campaigns.export import frame

        return frame(self, kind)

    def replay(self, run: int) -> Any:
        """Call the function for one run, here and now, and return what it returns: for debugging.
        Nothing is stored.

        Raises whatever the function raises.
        """
        integer("run", run, 0, _RUNS_MAX)
        plan = self._read()
        function, _ = codes.load(plan["function"], plan["pickled"], plan["code"])
        params = parameter_sets.Parameters(function, self.sets, self._stored_sets())(run)
        return function(Run(run, campaign_seed=self.seed, params=params, sets=self.sets))

    def __repr__(self) -> str:
        return f"<Campaign {self.name!r}, number {self.id} of {shown(self.store)}>"

    def _failures(self, from_run: int) -> list[dict[str, Any]]:
        return self._connection.ask(lambda store: store.errors(self.id, from_run, _FAILURES_AT_ONCE))

    def _rows(self, from_run: int, most: int) -> tuple[list[int], list[int], list[list[Any]], int]:
        return self._connection.ask(lambda store: store.read_rows(self.id, from_run, most))

    def _read(self) -> dict[str, Any]:
        self._plan = self._connection.ask(lambda store: store.campaign(self.id))
        return self._plan

    def _known(self) -> dict[str, Any]:
        return self._plan if self._plan["columns"] is not None else self._read()


class _Supervision:
    """The workers of one ``run``; a stop request may come before it begins."""

    def __init__(self, options: Options, progress: Any) -> None:
        self._options = options
        self._progress = progress
        self._supervisor: Supervisor | None = None
        self._stopped = self._was_interrupted = False

    def run(self, store: Any, campaign: int, name: str) -> None:
        status, spans = None, _trace_context.spans
        self._supervisor = Supervisor(store, campaign, self._options, self._progress)
        try:
            if self._stopped:
                self._supervisor.stop()
            span = contextlib.nullcontext() if spans is None else spans.campaign(name, self._options)
            with span, stopped_by(self._interrupt, signal.SIGINT):
                status = self._supervisor.run()
        finally:
            self._progress.end(status)
        if self._was_interrupted:
            raise KeyboardInterrupt

    def stop(self) -> None:
        self._stopped = True
        if self._supervisor is not None:
            self._supervisor.stop()

    def _interrupt(self) -> None:
        self._was_interrupted = True
        self.stop()


# Plans


def _create_numbered(connection: Connection, plan: dict[str, Any], title: str) -> Campaign:
    number = len(connection().campaigns()) + 1
    while True:
        try:
            return Campaign(connection, connection().create(name=f"{title}-{number}", **plan))
        except NameTaken:
            number += 1


def _go_on(connection: Connection, name: str, plan: dict[str, Any], accept_code: bool) -> Campaign:
    """Return the stored campaign of a name, if its plan is this one."""
    try:
        found = Campaign(connection, connection().find(name), accept_code)
    except NoSuchCampaign:
        raise CampaignError(f"name: {name!r} was taken and is gone again: try again") from None
    stored = found._plan
    given = {**plan, "seed": written_seed(plan["campaign_seed"])}
    differs = [
        f"{field} is {short(stored[field])} there and {short(given[field])} here"
        for field in ("function", "seed", "attempts", "timeout_us", "failed_max", "lease_us", "range_us", "until")
        if stored[field] != given[field]
    ]
    if stored["sets"] != len(plan["parameters"]) or not found._stored_sets().match(plan["parameters"]):
        differs.append("the parameters differ")
    if (
        plan["columns"] is not None
        and stored["columns"] is not None
        and (plan["columns"], plan["many"]) != (stored["columns"], stored["many"])
    ):
        differs.append("the columns differ")
    if plan["runs"] < stored["runs"]:
        differs.append(f"it has {stored['runs']:,} runs and {plan['runs']:,} are asked for")
    if differs:
        raise NameTaken(f"name: another campaign is called {name!r}: {'; '.join(differs)}. Choose another name")
    differs_in = codes.check_same(stored["code"], plan["code"], accept_code)
    if differs_in is not None:
        connection().note(found.id, f"other code was accepted: {differs_in}")
    if plan["runs"] > stored["runs"]:
        found.extend(plan["runs"] - stored["runs"])
    return found
