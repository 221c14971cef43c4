/**
 * A network that is cut without a word: a proxy between a page and its hub keeps connections open,
 * and passes nothing on.
 */
import assert from "node:assert/strict";
import type { AddressInfo } from "node:net";
import { createServer, connect as dial, type Server, type Socket } from "node:net";
import test from "node:test";
import { connect, LinkLost } from "tidewire";
import { Peer } from "./python.js";

const ATTEMPTS = 3;

/**
 * Passes bytes on, until it is cut: then it takes them, and those of new connections, and keeps
 * them.
 */
class Relay {
	isCut = false;
	private readonly pairs = new Set<readonly [Socket, Socket]>();
	private tried = (): void => {};

	private constructor(private readonly server: Server) {}

	static async before(port: number): Promise<Relay> {
		const server = createServer((near) => {
			if (proxy.isCut) {
				// Packets are lost: nobody answers.
				near.on("error", () => {});
				proxy.tried();
				return;
			}
			const far = dial(port, "127.0.0.1");
			proxy.pairs.add([near, far]);
			for (const [from, to] of [
				[near, far],
				[far, near],
			] as const) {
				from.on("data", (bytes) => proxy.isCut || to.write(bytes));
				from.on("error", () => {});
				from.on("close", () => proxy.isCut || to.destroy());
			}
		});
		const proxy = new Relay(server);
		await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
		return proxy;
	}

	get url(): string {
		return `ws://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
	}

	/** Ends when so many connections were tried in vain. */
	async triedInVain(times: number): Promise<void> {
		let left = times;
		await new Promise<void>((resolve) => {
			this.tried = () => --left === 0 && resolve();
		});
	}

	close(): void {
		this.server.close();
		for (const pair of this.pairs) {
			for (const socket of pair) {
				socket.destroy();
			}
		}
	}
}

test("a network that is cut is noticed, and what was there is back after it", { timeout: 180_000 }, async () => {
	const hub = await Peer.start("hub");
	const server = await Peer.start("server", hub.url);
	const proxy = await Relay.before(Number(new URL(hub.url).port));
	const node = await connect(proxy.url, { name: "page", heartbeat: 2_000 });
	const witness = await connect(hub.url, { name: "witness" });
	const seen: unknown[] = [];
	let heard = (): void => {};
	await node.serve("math", { add: (a: number, b: number) => a + b });
	await node.subscribe("news", (value) => {
		seen.push(value);
		heard();
	});
	const lost = new Promise<string>((resolve) => node.on("lost", resolve));
	const joined = new Promise<string>((resolve) => node.on("joined", resolve));
	const open = assert.rejects(Promise.resolve(node.client("pricing").slow?.()), LinkLost);
	await node.services();

	proxy.isCut = true;
	const inVain = proxy.triedInVain(ATTEMPTS);
	assert.match(await lost, /^nothing was heard of the hub for 4000 ms/);
	await open;
	assert.throws(() => node.publish("news", 1), LinkLost);
	assert.equal(node.hub, undefined);
	// Connections that nobody answers are given up, and tried again.
	await inVain;
	proxy.isCut = false;

	assert.equal(await joined, "hub");
	assert.equal(await node.client("driver").call?.("math", "add", [1, 2], {}), 3);
	const news = new Promise<void>((resolve) => {
		heard = resolve;
	});
	await node.services(); // the hub answers in order: it knows the subscription by now
	witness.publish("news", "back");
	await news;
	assert.deepEqual(seen, ["back"]);
	assert.ok(node.statistics().lost >= 1);
	await node.close();
	await witness.close();
	proxy.close();
	await server.stop();
	await hub.stop();
});
