/**
 * A node at a hub that is on NATS: it reaches the services of the cluster, and the cluster those of
 * the node.
 */
import assert from "node:assert/strict";
import test from "node:test";
import { connect } from "tidewire";
import { Hub, Nats, Peer } from "./python.js";

test("a node reaches the services of a cluster over NATS, and the cluster its own", { timeout: 120_000 }, async (t) => {
	const nats = await Nats.start();
	try {
		if (nats.url === undefined) {
			t.skip("there is no server of NATS");
			return;
		}
		const far = await Peer.start("server", nats.url);
		const hub = await Hub.start(["--nats", nats.url, "--http", "127.0.0.1:0"]);
		try {
			await using node = await connect(hub.url);
			const quote = (await node.client("pricing").quote?.("X", 2)) as { price: number };
			assert.equal(quote.price, 5);
			const items = node.client("pricing").ticks?.("X", 3);
			assert.ok(items);
			const ticks = [];
			for await (const tick of items) {
				ticks.push(tick);
			}
			assert.deepEqual(ticks, [0, 0.5, 1]);

			await node.serve("desk", { greet: (name: string) => `hello ${name}` }, { visibility: "public" });
			assert.equal(await node.client("driver").call?.("desk", "greet", ["far"], {}), "hello far");
			const answer = await fetch(`${hub.http}/services/desk/greet`, {
				method: "POST",
				headers: { "content-type": "application/json" },
				body: JSON.stringify(["web"]),
			});
			assert.equal(await answer.json(), "hello web");
		} finally {
			await hub.stop();
			await far.stop();
		}
	} finally {
		await nats.stop("SIGTERM");
	}
});
