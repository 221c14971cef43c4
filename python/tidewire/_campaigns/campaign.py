"""Campaigns: seeded runs of a function on many workers, each stored once."""

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
    seed_text,
    short,
    title_of,
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
    """Plan seeded runs of a function, and store the plan. ``Campaign.run`` executes them.

    If the store has a campaign of this name with the same plan, return it. A greater ``runs``
    extends it.

    Args:
        function: Function that takes a ``tw.Run`` and returns its result: a data class, typed dict,
            ``msgspec.Struct``, named tuple, dict of plain values or a single value, or a list of
            these for several rows; or its path ``"module:name"``.
        runs: Number of runs over all parameter sets, 0 to 2^48.
        seed: An integer of any sign, or text. The random numbers of run i depend only on the seed
            and i.
        params: Parameters of every run, as ``run.params``.
        sweep: Parameter sets, such as those of ``tw.grid`` or ``tw.latin_hypercube``, each merged
            into ``params``. Run i has set ``i % len(sweep)``.
        name: Unique name in the store, 1 to 128 bytes. By default the name of the function with a
            number.
        store: The URL of the store, or the path of a file such as ``farm.db``. By default the
            environment variable ``TIDEWIRE_STORE``, or ``sqlite:///tidewire.db``.
        until: Precision of a mean that ends the campaign early.
        attempts: Most attempts of a run that raises, 1 to 100.
        timeout: The time limit of a run in seconds. A run that exceeds it is killed, and fails
            after its last attempt.
        failed_max: Most failed or quarantined runs; with more, the campaign fails. None for no
            limit.
        lease: Seconds after which the runs of a silent worker are leased to another, 0.1 to
            86,400.
        range: Seconds of work in one lease, which are stored together, 0.001 to 3,600.
        accept_code: True to continue a stored campaign with changed code; the store records this as
            an event.

    Raises:
        InvalidArgument: if an argument is not allowed, or workers can't import the function.
        NameTaken: if this name belongs to another campaign; the message has the differences.
        CodeChanged: if a stored campaign has other code.
        CampaignError: if the store is unusable.
        StoreUnavailable: if the store is unreachable.
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
        return _open_stored(connection, name, plan, accept_code)
    return Campaign(connection, number, accept_code)


def campaigns(store: str | None = None) -> list[Campaign]:
    """Return all campaigns of a store, newest first.

    Raises:
        CampaignError: if the store is unusable.
        StoreUnavailable: if the store is unreachable, or its file does not exist.
    """
    connection = Connection(url_of(store))
    return [Campaign(connection, row["id"]) for row in connection().campaigns()]


def open_campaign(store: str | None, name_or_id: str | int) -> Campaign:
    """Return the campaign with this name, or else the one with this number.

    Raises:
        NoSuchCampaign: if it does not exist.
        CampaignError: if the store is unusable.
        StoreUnavailable: if the store is unreachable, or its file does not exist.
    """
    connection = Connection(url_of(store))
    return Campaign(connection, connection().find(str(name_or_id)))


class Campaign:
    """A stored campaign, from ``tw.campaign``, ``tw.open_campaign`` or ``tw.campaigns``."""

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
        """Number of planned runs."""
        return int(self._read_plan()["runs"])

    @property
    def table(self) -> str:
        """Name of the table of its results."""
        return str(self._plan_with_columns()["table"])

    @property
    def columns(self) -> dict[str, str] | None:
        """The columns of its results and their types; None before they are known."""
        columns = self._plan_with_columns()["columns"]
        return None if columns is None else dict(columns)

    @property
    def many(self) -> bool | None:
        """True if a run returns a list of rows; None before this is known."""
        many: bool | None = self._plan_with_columns()["many"]
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
        """Run the campaign with worker processes of this machine, and return its report at the end.

        Resumes a paused campaign. Ctrl-C ends the workers. Stored results remain, and a later
        ``run`` continues from them.

        Args:
            workers: Number of processes; by default one for each processor. With 0 the processes
                that serve the store (``tidewire worker``) do all runs, and this call waits for
                them; Ctrl-C then only ends the wait.
            progress: True to show the progress. By default notebooks and terminals show it, and
                other outputs get one line at the end.
            accept_code: True to run changed code; the store records this as an event.
            store_wait: Seconds to wait for an unreachable store.

        Raises:
            InvalidArgument: if an argument is not allowed.
            CodeChanged: if the workers have other code than the campaign.
            CampaignError: if the workers can't run it, or die repeatedly.
            StoreUnavailable: if the store is unreachable for longer than ``store_wait``.
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
        """Run the campaign as ``run`` does, without blocking the event loop. Cancelled, it ends the
        workers after their current runs.
        """
        import asyncio

        supervision = self._supervision(workers, progress, accept_code, store_wait)
        future = asyncio.get_running_loop().run_in_executor(None, self._run, supervision)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            supervision.stop()
            with contextlib.suppress(Exception):
                await future
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
        # A connection of its own, because this may be another thread.
        store = Connection(self.store)()
        owner = this_process()
        state = self.status().state
        if state in ("draft", "paused"):
            store.transition(self.id, "running", owner.note("run"))
        elif state == "running":
            # The supervisor waits for an unreachable store.
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
        """Start or resume the campaign on the processes that serve its store
        (``tidewire worker``). Do not wait for them.

        Raises:
            CampaignError: if it has ended.
            StoreUnavailable: if the store is unreachable.
        """
        self._connection.ask(lambda store: store.transition(self.id, "running", reason or "started"))

    def extend(self, more: int) -> None:
        """Add runs at the end. A campaign that is done can run again; its results remain.

        Raises:
            InvalidArgument: if the campaign would have too many runs.
            CampaignError: if it was cancelled or has failed.
        """
        self._connection().extend(self.id, integer("more", more, 0, _RUNS_MAX))

    def pause(self, reason: str = "") -> None:
        """Pause the campaign: it leases no more ranges, but stores the results of leased ones.

        Raises:
            CampaignError: if it has ended.
        """
        self._connection.ask(lambda store: store.transition(self.id, "paused", reason or "paused"))

    def resume(self, reason: str = "") -> None:
        """Resume the campaign after a pause.

        Raises:
            CampaignError: if it has ended.
        """
        self._connection.ask(lambda store: store.transition(self.id, "running", reason or "resumed"))

    def cancel(self, reason: str = "") -> None:
        """Cancel the campaign: results of leased ranges are dropped, stored ones remain.

        Raises:
            CampaignError: if it has ended in another state.
        """
        self._connection.ask(lambda store: store.transition(self.id, "cancelled", reason or "cancelled"))

    # Status

    def status(self) -> Status:
        """Return counters, workers and rate. The cost does not depend on the number of runs."""
        return Status(**self._status_fields())

    def report(self) -> Report:
        """Return the report of the stored results."""
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
        """Return the events of the campaign, oldest first: changes of state with time and reason,
        and notes.
        """
        rows = self._connection.ask(lambda store: store.events(self.id))
        return [Event(time_of(at), before, after, reason) for at, before, after, reason in rows]

    def errors(self) -> Iterator[FailedRun]:
        """Iterate over the failed and quarantined runs, in order."""
        at = 0
        while rows := self._failures(at):
            for row in rows:
                yield FailedRun(
                    **{key: value for key, value in row.items() if key != "at_us"}, at=time_of(row["at_us"])
                )
            at = rows[-1]["run"] + 1

    def parameters(self, set: int = 0) -> dict[str, Any]:
        """Return the parameter set of a number.

        Raises:
            InvalidArgument: if there is no such set.
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
        """Iterate over the stored rows in order of run, in constant memory: ``row.run``,
        ``row.hits``, ``row["hits"]``.
        """
        if self.columns is not None:
            yield from rows_of(self.batches(), self.columns, bool(self.many), self.sets)

    def batches(self, rows_max: int = _ROWS_AT_ONCE, from_run: int = 0) -> Iterator[Batch]:
        """Iterate over the stored rows in order of run, as batches of about ``rows_max`` rows by
        column. A batch has whole runs.
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
        """Compute the digest from the stored rows, for comparison with ``status().digest``."""
        return f"{sum(batch.digest for batch in self.batches()) & _MASK:032x}"

    def summary(self, by: str | Sequence[str] | None = None) -> Summary:
        """Return count, mean, standard error, minimum, maximum and quantiles of each numeric
        column, in one pass and constant memory. In a column of arrays each of the first 1,000
        elements has an entry, such as ``curve[0]``; with more than 200 groups fewer elements.

        Args:
            by: Names of parameters or columns: one group for each of their values. ``"param_set"``
                is the number of the set.

        Raises:
            InvalidArgument: if a name is neither a parameter nor a column, or there are more than
                100,000 groups.
        """
        from tidewire._campaigns.summary import summary

        return summary(self, by)

    def differences(self, baseline: int = 0) -> Summary:
        """Return the statistics of differences between parameter sets, for each numeric column in
        one pass: the value of a run minus that of the baseline's run in the same replication.

        ``missing`` counts replications with only one of the two values. See ``Run.common``.

        Args:
            baseline: Number of a set; each other set has entries, ``by={"param_set": number}``.

        Raises:
            InvalidArgument: if there is no such set, only one set or more than 100,000, or if runs
                have several rows.
        """
        from tidewire._campaigns.differences import differences

        return differences(self, baseline)

    def to_csv(self, path: str | os.PathLike[str] | IO[str]) -> int:
        """Write the rows as CSV in order of run, in constant memory, and return their number.
        Missing values are empty.

        The file appears when it is complete. For a running campaign it has the rows that are
        stored when they are read.

        Args:
            path: Path of a file, or a file that is open for text.

        Raises:
            InvalidArgument: if there are no results yet, or the file can't be written.
        """
        from tidewire._campaigns.export import to_csv

        return to_csv(self, path)

    def to_parquet(self, path: str | os.PathLike[str]) -> int:
        """Write the rows as Parquet in order of run, in row groups of 100,000, and return their
        number. Needs ``tidewire[parquet]``.

        Raises:
            InvalidArgument: if there are no results yet, pyarrow is not installed, or the file
                can't be written.
        """
        from tidewire._campaigns.export import to_parquet

        return to_parquet(self, path)

    def frame(self, kind: Literal["pandas", "polars"] | None = None) -> Any:
        """Return all rows as a data frame, in memory.

        Args:
            kind: The library; by default an imported one, or else an installed one.

        Raises:
            InvalidArgument: if there are no results yet, or no library is installed.
        """
        from tidewire._campaigns.export import frame

        return frame(self, kind)

    def replay(self, run: int) -> Any:
        """Call the function for one run in this process, and return its result, for debugging.
        Nothing is stored.

        Raises the exception of the function.
        """
        integer("run", run, 0, _RUNS_MAX)
        plan = self._read_plan()
        function, _ = codes.load(plan["function"], plan["pickled"], plan["code"])
        params = parameter_sets.Parameters(function, self.sets, self._stored_sets())(run)
        return function(Run(run, campaign_seed=self.seed, params=params, sets=self.sets))

    def __repr__(self) -> str:
        return f"<Campaign {self.name!r}, number {self.id} of {shown(self.store)}>"

    def _failures(self, from_run: int) -> list[dict[str, Any]]:
        return self._connection.ask(lambda store: store.errors(self.id, from_run, _FAILURES_AT_ONCE))

    def _rows(self, from_run: int, most: int) -> tuple[list[int], list[int], list[list[Any]], int]:
        return self._connection.ask(lambda store: store.read_rows(self.id, from_run, most))

    def _read_plan(self) -> dict[str, Any]:
        self._plan = self._connection.ask(lambda store: store.campaign(self.id))
        return self._plan

    def _plan_with_columns(self) -> dict[str, Any]:
        return self._plan if self._plan["columns"] is not None else self._read_plan()


class _Supervision:
    """The workers of one ``run``. ``stop`` may be called before it begins."""

    def __init__(self, options: Options, progress: Any) -> None:
        self._options = options
        self._progress = progress
        self._supervisor: Supervisor | None = None
        self._is_stopping = self._was_interrupted = False

    def run(self, store: Any, campaign: int, name: str) -> None:
        status, spans = None, _trace_context.spans
        self._supervisor = Supervisor(store, campaign, self._options, self._progress)
        try:
            if self._is_stopping:
                self._supervisor.stop()
            span = contextlib.nullcontext() if spans is None else spans.campaign(name, self._options)
            with span, stopped_by(self._interrupt, signal.SIGINT):
                status = self._supervisor.run()
        finally:
            self._progress.end(status)
        if self._was_interrupted:
            raise KeyboardInterrupt

    def stop(self) -> None:
        self._is_stopping = True
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


def _open_stored(connection: Connection, name: str, plan: dict[str, Any], accept_code: bool) -> Campaign:
    """Return the stored campaign of a name, if it has this plan."""
    try:
        existing = Campaign(connection, connection().find(name), accept_code)
    except NoSuchCampaign:
        raise CampaignError(f"name: {name!r} was taken and is gone again: try again") from None
    stored = existing._plan
    planned = {**plan, "seed": seed_text(plan["campaign_seed"])}
    mismatches = [
        f"{field} is {short(stored[field])} there and {short(planned[field])} here"
        for field in ("function", "seed", "attempts", "timeout_us", "failed_max", "lease_us", "range_us", "until")
        if stored[field] != planned[field]
    ]
    if stored["sets"] != len(plan["parameters"]) or not existing._stored_sets().match(plan["parameters"]):
        mismatches.append("the parameters differ")
    if (
        plan["columns"] is not None
        and stored["columns"] is not None
        and (plan["columns"], plan["many"]) != (stored["columns"], stored["many"])
    ):
        mismatches.append("the columns differ")
    if plan["runs"] < stored["runs"]:
        mismatches.append(f"it has {stored['runs']:,} runs and {plan['runs']:,} are asked for")
    if mismatches:
        raise NameTaken(f"name: another campaign is called {name!r}: {'; '.join(mismatches)}. Choose another name")
    code_difference = codes.check_same(stored["code"], plan["code"], accept_code)
    if code_difference is not None:
        connection().note(existing.id, f"other code was accepted: {code_difference}")
    if plan["runs"] > stored["runs"]:
        existing.extend(plan["runs"] - stored["runs"])
    return existing
