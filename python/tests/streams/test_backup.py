"""``tidewire log backup`` and ``restore``: copies of a folder while a process writes it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from command_support import run_all, said
from link_processes import Programs

WRITER = """
import asyncio, sys
import tidewire as tw

async def main():
    async with tw.Node(data=sys.argv[1]) as node:
        orders = await node.stream("orders", subjects=["orders.>"], dedupe=0)
        # Their segments are small: files of them come and go, or are rewritten, all the time.
        recent = await node.stream("recent", subjects=["recent.>"], dedupe=0, max_bytes=80_000, full="drop_old")
        prices = await node.stream("prices", subjects=["prices.>"], dedupe=0, compact="key", max_age=8.0)
        billing, totals, n = await orders.consumer("billing", start="all"), await node.kv("totals"), 0
        while True:
            for stream, subject in ((orders, "orders.a"), (recent, "recent.a"), (prices, "prices.a")):
                await asyncio.gather(
                    *(stream.publish(subject, [n + i, "x" * 300 + "\\0" * 90], key=f"k{i % 7}") for i in range(60))
                )
            n += 60
            await totals.put("stored", n)
            for _ in range(60):
                await (await anext(billing)).ack()
            await billing.flush()
            print(n, file=sys.stderr, flush=True)

asyncio.run(main())
"""


def tidewire(*args: object) -> tuple[int, Any]:
    [ended] = run_all(["log", *map(str, args), "--json"])
    return said(ended)


@pytest.mark.promise("P17.128")
@pytest.mark.parametrize("seed", range(2))
async def test_a_backup_of_a_folder_that_is_written_has_all_that_was_acked_before(
    seed: int, tmp_path: Path, started: Programs
) -> None:
    chosen, data, copy, restored = random.Random(seed), *(tmp_path / name for name in ("data", "copy", "restored"))
    writer = started.run("-c", WRITER, str(data))
    for _ in range(4):
        for _ in range(chosen.randrange(1, 40) + writer.log.qsize()):
            acked = int(str(writer.log.get()))
        code, told = tidewire("backup", data, copy)
        assert code == 0, told
        assert tidewire("restore", copy, restored) == (0, told)
        async with tw.Node(data=restored) as node:
            orders = await node.find_stream("orders")
            numbers = [event.value[0] async for event in orders.read()]
            assert numbers == list(range(len(numbers))) and len(numbers) >= acked
            recent = [event.value[0] async for event in (await node.find_stream("recent")).read()]
            assert recent == list(range(recent[0], recent[-1] + 1)) and recent[-1] >= acked - 1
            prices = [event.value[0] async for event in (await node.find_stream("prices")).read()]
            assert len(prices) == len(set(prices)) and prices == sorted(prices) and prices[-1] >= acked - 1
            stored = await (await node.find_kv("totals")).get("stored")
            [billing] = await orders.consumers()
            assert acked <= stored.value <= len(numbers) and acked <= billing.acked_to <= len(numbers)
            assert (await orders.publish("orders.a", [0, ""])).sequence == len(numbers) + 1
        [shutil.rmtree(folder) for folder in (copy, restored)]


@pytest.mark.promise("P17.128")
def test_a_copy_keeps_what_is_in_its_target_and_refuses_damage(tmp_path: Path) -> None:
    data, copy, new = (tmp_path / name for name in ("data", "copy", "new"))
    with tw.Node(data=data) as node:
        node.sync.stream("orders", subjects=["orders.>"]).publish("orders.a", "text")
    assert tidewire("backup", data, copy)[0] == 0
    for action, source, target in (("restore", copy, data), ("backup", data, copy)):
        code, told = tidewire(action, source, target)
        assert (code, told["error"]["code"]) == (2, "invalid_argument")
        assert f"{str(target)!r} is not empty: give a new folder" in told["error"]["message"]
    code, told = tidewire("restore", tmp_path / "nothing", new)
    assert (code, told["error"]["code"], new.exists()) == (1, "not_found", False)
    [log] = copy.glob("streams/*/*.log")
    log.write_bytes(log.read_bytes().replace(b"text", b"test"))
    code, told = tidewire("restore", copy, new)
    assert (code, told["error"]["code"]) == (1, "data_corrupt") and "tidewire log salvage" in told["error"]["message"]
    assert [one.name for one in new.iterdir()] == ["tidewire.lock"]
    # A copy that was killed has no journal yet.
    shutil.rmtree(copy / "state")
    with pytest.raises(tw.DataCorrupt, match="it is not there, but streams are"), tw.Node(data=copy) as node:
        node.sync.kv("totals")
