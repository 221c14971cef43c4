"""Pools of a node: its settings, its ledger, its dead letters; agents that use them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import tidewire as tw
from pool_functions import increment

PATIENCE = 30.0


@pytest.mark.promise("P8.15")
def test_a_node_stops_its_pools_after_its_actors_and_counts_their_tasks() -> None:
    async def main() -> tw.Ledger:
        async with tw.Node() as node:
            pool = node.pool(increment, workers=2, kind="process")

            async def handler(payload: int) -> int:
                result: int = await pool.submit(payload)
                return result

            node.agent(handler, id="worker", concurrency=10)
            sender = node.agent(lambda payload: None, id="sender")
            for n in range(50):
                await sender.send(n, to="worker")
        assert pool.state == "stopped"
        assert node.ledger is not None
        return node.ledger

    ledger = asyncio.run(main())
    assert ledger.balanced
    assert (ledger.accepted, ledger.handled) == (100, 100)


def test_a_quarantined_task_is_a_dead_letter_that_can_be_submitted_again(node: tw.Node) -> None:
    calls: list[int] = []
    again = threading.Event()

    def fail_first(value: int) -> int:
        calls.append(value)
        if len(calls) == 1:
            raise ValueError(value)
        again.set()
        return value

    pool = node.pool(fail_first, workers=1, name="p")
    with pytest.raises(ValueError, match="7"):
        pool.sync.submit(7)
    (letter,) = node.dead_letters.list(name="p")
    assert node.dead_letters.list(name="pool:p") == [letter]
    assert (letter.reason, letter.error, letter.message.args) == ("failed", "ValueError: 7", (7,))
    node.dead_letters.requeue(letter)
    assert again.wait(PATIENCE)
    assert calls == [7, 7]


def test_the_configuration_gives_what_a_call_does_not_say() -> None:
    broker = tw.BrokerConfig(pool_workers=3, pool_batch_size=7, pool_capacity=5)
    with tw.Node(config={"broker": broker}) as node:
        sizes: list[int] = []

        def batch(values: list[int]) -> list[int]:
            sizes.append(len(values))
            return values

        pool = node.pool(batch, batch=True)
        assert list(pool.sync.map(range(100))) == list(range(100))
        assert max(sizes) <= 7
        assert pool.statistics()["workers_wanted"] == 3
        assert node.broker == broker
        with pytest.raises(tw.InvalidArgument, match="workers: 0"):
            node.pool(increment, workers=0)
        node.pool(increment, name="taken")
        with pytest.raises(tw.NameTaken):
            node.pool(increment, name="taken")


def test_wrong_settings_are_named_all_at_once_wherever_they_come_from(tmp_path: Any) -> None:
    with pytest.raises(tw.ConfigError) as caught:
        tw.BrokerConfig(pool_workers=0, retry_limit=-1, agent_mailbox=True)
    assert [text.split(":")[0] for text in caught.value.problems] == [
        "broker.agent_mailbox",
        "broker.retry_limit",
        "broker.pool_workers",
    ]
    file = tmp_path / "node.toml"
    file.write_text("[broker]\npool_worker = 2\nretry_limit = 4\n")
    environment = {"TIDEWIRE_BROKER__RETRY_LIMIT": "5", "TIDEWIRE_BROKER__POOL_WORKERS": "many"}
    with pytest.raises(tw.ConfigError) as caught:
        tw.Node(config=tw.Config({"broker": {"queue_warning": 0}}, file=file, environment=environment))
    assert len(caught.value.problems) == 3
    for part in ("did you mean pool_workers?", "node.toml", "TIDEWIRE_BROKER__POOL_WORKERS", "many"):
        assert part in str(caught.value)
    file.write_text("[broker]\nretry_limit = 4\n")
    node = tw.Node(config=tw.Config(file=file, environment={"TIDEWIRE_BROKER__RETRY_LIMIT": "5"}))
    assert node.broker.retry == tw.Retry(5, 100, 10_000)


@pytest.mark.parametrize("kind", ["function", "agent"])
def test_the_name_of_a_pool_that_has_stopped_is_free(node: tw.Node, kind: str) -> None:
    options = {} if kind == "function" else {"id": "agent"}
    for _ in range(3):
        pool = node.pool(lambda x: x, workers=1, name="doubles", **options)
        assert pool.sync.submit(1) == 1
        pool.sync.stop()
    node.pool(lambda x: x, workers=1, name="doubles", **options)


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_pool_is_in_the_statistics_before_its_first_task(kind: str) -> None:
    def rows() -> list[dict[str, Any]]:
        return [row for row in node.statistics()["pools"] if row["name"] == "fresh"]

    with tw.Node() as node:
        pool = node.pool(increment, 2, kind, name="fresh")  # type: ignore[call-overload]
        (before,) = rows()
        assert (before["accepted"], before["waiting"], before["workers"], before["workers_wanted"]) == (0, 0, [], 2)
        assert pool.sync.submit(1) == 2
        (after,) = rows()
        assert (after["accepted"], after["handled"]) == (1, 1)
        assert set(after) == set(before)
        pool.sync.stop()
        assert rows() == []
