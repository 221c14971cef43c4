"""Worker of the deployment: a service that waits for its hub."""

import logging
import os

import tidewire as tw


class Pricing(tw.Service):
    @tw.method(idempotent=True)  # a call that a restart interrupts is sent again
    async def quote(self, symbol: str) -> float:
        return 2.5 * len(symbol)


async def main() -> None:
    wait_s = float(os.environ.get("HUB_WAIT", "60"))
    async with tw.Node(os.environ["TIDEWIRE_URL"], join_timeout=wait_s) as node:
        await node.serve(Pricing())
        await node.run_forever()


logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
tw.run(main())
