/** Streams and buckets of a hub with a data folder. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { after, before, describe } from "node:test";
import {
	connect,
	InvalidArgument,
	LimitExceeded,
	type Node,
	NoResponders,
	NotFound,
	PublishFailed,
	RevisionConflict,
	remote,
	SettingsDiffer,
	StaleDelivery,
	type StreamEvent,
	StreamFull,
} from "tidewire";
import { Hub, Peer } from "./python.js";

interface Driver {
	store(stream: string, subject: string, name: string): Promise<number>;
	stored(stream: string, sequence: number, name: string): Promise<string>;
	entry(bucket: string, key: string, value: unknown): Promise<number>;
}

describe("a hub with a data folder", { timeout: 120_000 }, () => {
	let folder: string;
	let hub: Hub;
	let server: Peer;
	let node: Node;
	let other: Node;

	before(async () => {
		folder = mkdtempSync(join(tmpdir(), "tidewire-"));
		hub = await Hub.start(["--data", folder]);
		server = await Peer.start("server", hub.url);
		node = await connect(hub.url, { name: "page" });
		other = await connect(hub.url, { name: "other" });
	});

	after(async () => {
		await node?.close();
		await other?.close();
		await server?.stop();
		await hub?.stop();
		rmSync(folder, { recursive: true });
	});

	test("messages are acked in the order in which they were published, and an id is stored once", async () => {
		const orders = await node.stream<number>("orders", { subjects: ["orders.>"] });
		const acks = await Promise.all(Array.from({ length: 2_500 }, (_, n) => orders.publish("orders.created", n)));
		assert.deepEqual(
			acks.map(({ sequence }) => sequence),
			Array.from({ length: 2_500 }, (_, n) => n + 1),
		);
		assert.ok(acks.every(({ durability, duplicate }) => durability === "disk" && !duplicate));
		const first = await orders.publish("orders.paid", 1, { id: "one", key: "ana", headers: { tenant: "x" } });
		const second = await orders.publish("orders.paid", 1, { id: "one" });
		assert.deepEqual([second.sequence, second.duplicate], [first.sequence, true]);
		const read: StreamEvent<number>[] = [];
		for await (const event of orders.read()) {
			read.push(event);
		}
		assert.deepEqual(
			read.map(({ value }) => value),
			[...Array.from({ length: 2_500 }, (_, n) => n), 1],
		);
		const { subject, key, id, headers, delivery, time } = read.at(-1) as StreamEvent;
		assert.deepEqual([subject, key, id, delivery], ["orders.paid", "ana", "one", 0]);
		assert.equal(headers.tenant, "x");
		assert.ok(Math.abs(Date.now() - time.getTime()) < 60_000);
		const some: number[] = [];
		for await (const { sequence } of orders.read({ start: 2_500, stop: 2_600, filter: "orders.paid" })) {
			some.push(sequence);
		}
		assert.deepEqual(some, [2_501]);
		const found = await (await other.stream("orders")).info();
		assert.deepEqual([found.messages, found.first, found.last, found.subjects], [2_501, 1, 2_501, ["orders.>"]]);
		assert.deepEqual(
			(await node.streams()).map(({ name }) => name),
			["orders"],
		);
		assert.equal(await orders.purge({ keep: 1 }), 2_500);
	});

	test("a schedule beats until it is cancelled, and is kept when it is said again", async () => {
		const reports = await node.stream<string>("reports", { subjects: ["reports.>"] });
		const pulse = await reports.schedule("pulse", 1_000, "reports.pulse", "alive", { key: "k", ttl: 60_000 });
		assert.deepEqual(
			[pulse.change, pulse.when, pulse.value, pulse.key, pulse.ttl],
			["made", "@every 1s", "alive", "k", 60_000],
		);
		const options = { timeZone: "Europe/Berlin", headers: { a: "b" } };
		for (const change of ["made", "kept"]) {
			const nightly = await reports.schedule("nightly", "0 22 * * mon-fri", "reports.due", "x", options);
			assert.deepEqual([nightly.change, nightly.timeZone], [change, "Europe/Berlin"]);
			assert.ok(nightly.nextTime !== undefined && nightly.nextTime > new Date() && nightly.headers.a === "b");
		}
		for await (const event of reports.read({ follow: true })) {
			assert.deepEqual([event.value, event.key, event.headers["Tidewire-Schedule"]], ["alive", "k", "pulse"]);
			break;
		}
		const names = async () => (await reports.schedules()).map(({ name, value }) => [name, value]);
		assert.deepEqual(await names(), [
			["nightly", "x"],
			["pulse", "alive"],
		]);
		assert.equal(await reports.cancelSchedule("pulse"), true);
		assert.equal(await reports.cancelSchedule("pulse"), false);
		assert.deepEqual(await names(), [["nightly", "x"]]);
		await assert.rejects(reports.schedule("wrong", "0 25 * * *", "reports.due", "x"), InvalidArgument);
		await assert.rejects(reports.schedule("wrong", 1_500, "reports.due", "x"), InvalidArgument);
		await reports.delete();
	});

	test("what is not acked comes again, and ends as a dead letter with its error", async () => {
		const jobs = await node.stream<string>("jobs", { subjects: ["jobs.*"] });
		const work = await jobs.consumer("work", { start: "all", maxDeliver: 2, backoff: [10], order: "key" });
		for (const job of ["good", "poison", "late", "hopeless"]) {
			await jobs.publish("jobs.new", job, { key: job });
		}
		const seen: string[] = [];
		for await (const event of work) {
			seen.push(`${event.value} ${event.delivery}`);
			if (event.value === "poison") {
				await event.nak({ error: new RangeError("no such customer"), wait: true });
			} else if (event.value === "hopeless") {
				await event.term("nobody wants it");
			} else {
				await event.working();
				await event.ack({ wait: event.value === "late" });
				await assert.rejects(event.ack(), StaleDelivery);
			}
			if (seen.includes("poison 2") && seen.length === 5) {
				break;
			}
		}
		assert.deepEqual(seen.toSorted(), ["good 1", "hopeless 1", "late 1", "poison 1", "poison 2"]);
		await work.flush();
		const dead = await work.deadLetters();
		assert.deepEqual(
			dead.map(({ event, reason, error, deliveries }) => [event?.value, reason, error, deliveries]),
			[
				["poison", "max_deliver", "RangeError: no such customer", 2],
				["hopeless", "nobody wants it", "", 1],
			],
		);
		assert.match(dead[0]?.traceback ?? "", /streams\.test/);
		assert.equal(await work.requeue(dead[0]?.sequence as number), 1);
		const again = await work.next();
		assert.deepEqual([again?.value, again?.delivery], ["poison", 1]);
		await again?.ack({ wait: true });
		assert.equal(await work.dropDead(dead[1]?.sequence as number), 1);
		const { lag, dead: left, inFlight } = await work.info();
		assert.deepEqual([lag, left, inFlight], [0, 0, 0]);
		assert.equal(await work.next({ timeout: 1 }), undefined);
	});

	test("two pages share the events of a consumer, and what one leaves goes to the other", async () => {
		const jobs = await node.stream<number>("shared", { subjects: ["shared"] });
		const [one, two] = await Promise.all([
			jobs.consumer("work", { start: "all" }),
			(await other.stream<number>("shared")).consumer("work", { start: "all" }),
		]);
		await Promise.all(Array.from({ length: 300 }, (_, n) => jobs.publish("shared", n)));
		const seen = new Set<number>();
		const firsts: number[] = [];
		for await (const event of one) {
			seen.add(event.value);
			firsts.push(event.delivery);
			await event.ack();
			if (seen.size === 100) {
				break; // What was fetched ahead goes back.
			}
		}
		assert.equal(one.statistics().ready, 0);
		while (seen.size < 300) {
			const event = (await two.next()) as StreamEvent<number>;
			assert.ok(!seen.has(event.value));
			seen.add(event.value);
			firsts.push(event.delivery);
			await event.ack();
		}
		await two.close();
		assert.ok(firsts.every((delivery) => delivery === 1));
		assert.deepEqual([(await two.info()).lag, two.statistics().stale], [0, 0]);
		const all = await jobs.consumer("all", { mode: "broadcast", start: "all" });
		const every = await jobs.consumer("all", { mode: "broadcast", start: "all" });
		assert.deepEqual([(await all.next())?.value, (await every.next())?.value], [0, 0]);
		await all.delete();
		assert.equal((await jobs.consumers()).length, 2);
	});

	test("a wait that is given up takes nothing with it", async () => {
		const jobs = await node.stream<number>("waits", { subjects: ["waits"] });
		const work = await jobs.consumer("work", { start: "all" });
		const controller = new AbortController();
		const waiting = assert.rejects(work.next({ signal: controller.signal }), /enough/);
		await work.info();
		controller.abort(new Error("enough"));
		await waiting;
		await jobs.publish("waits", 7);
		assert.equal((await work.next())?.value, 7);
		await work.seek("all");
		assert.deepEqual(await work.next().then((event) => [event?.value, event?.delivery]), [7, 1]);
		await work.pause();
		assert.ok((await work.info()).isPaused);
		await work.resume();
	});

	test("a batch is stored whole, or not at all", async () => {
		const pairs = await node.stream("pairs", { subjects: ["pairs.*"], maxMessages: 4 });
		const messages = [1, 2, 3].map((value) => ({ subject: "pairs.a", value }));
		assert.deepEqual(
			(await pairs.batch(messages)).map(({ sequence }) => sequence),
			[1, 2, 3],
		);
		await assert.rejects(
			pairs.batch([
				{ subject: "pairs.a", value: 4 },
				{ subject: "elsewhere", value: 5 },
			]),
			(error) =>
				error instanceof PublishFailed && error.failures.some((line) => /message 1: InvalidArgument/.test(line)),
		);
		assert.equal((await pairs.info()).last, 3);
		await pairs.publish("pairs.a", 4);
		await assert.rejects(pairs.publish("pairs.a", 5), StreamFull);
		await pairs.delete();
		await assert.rejects(pairs.info(), NotFound);
	});

	test("values and JSON are the same for Python, and bytes are bytes", async () => {
		const values = await node.stream("values", { subjects: ["values"] });
		const driver = node.client<Driver>("driver");
		const names = (await node.client<{ names(): Promise<string[]> }>("values").names()) as string[];
		for (const name of names) {
			const sequence = await driver.store("values", "values", name);
			for await (const { value } of values.read({ start: sequence, stop: sequence })) {
				const back = await values.publish("values", value);
				assert.equal(await driver.stored("values", back.sequence, name), "", name);
			}
		}
		const { sequence } = await values.publish("values", { a: [1] }, { content: "json" });
		await values.publish("values", new Uint8Array([1, 2]), { content: "bytes" });
		const read: unknown[] = [];
		for await (const event of values.read({ start: sequence })) {
			read.push(event.value);
		}
		assert.deepEqual(read, [{ a: [1] }, new Uint8Array([1, 2])]);
	});

	test("a bucket: compare and set, history, keys, and a watch that hears of others", async () => {
		const config = await node.kv<{ most: number }>("config", { history: 3 });
		const revision = await config.create("limits.eu", { most: 3 });
		await assert.rejects(config.create("limits.eu", { most: 4 }), RevisionConflict);
		await config.update("limits.eu", { most: 4 }, { revision });
		await assert.rejects(config.update("limits.eu", { most: 5 }, { revision }), RevisionConflict);
		assert.deepEqual((await config.get("limits.eu"))?.value, { most: 4 });
		assert.deepEqual((await config.get("limits.eu", { revision }))?.value, { most: 3 });
		assert.equal(await config.get("limits.us"), undefined);
		const seen: unknown[] = [];
		const controller = new AbortController();
		const watching = (async () => {
			for await (const entry of (await other.kv("config")).watch("limits.*", { signal: controller.signal })) {
				seen.push([entry.key, entry.value, entry.isDeleted]);
				if (entry.isDeleted) {
					controller.abort(new Error("seen"));
				} else if (seen.length === 1) {
					await node.client<Driver>("driver").entry("config", "limits.us", { most: 9 });
				} else {
					await config.delete("limits.eu");
				}
			}
		})();
		await assert.rejects(watching, /seen/);
		assert.deepEqual(seen, [
			["limits.eu", { most: 4 }, false],
			["limits.us", { most: 9 }, false],
			["limits.eu", undefined, true],
		]);
		assert.deepEqual(await config.keys(), ["limits.us"]);
		assert.deepEqual(
			(await config.history("limits.eu")).map((entry) => entry.value?.most),
			[3, 4, undefined],
		);
		const info = await config.info();
		assert.deepEqual([info.history, info.ttl, info.maxBytes, info.keys], [3, undefined, undefined, 1]);
		assert.equal((await node.buckets()).length, 1);
		await assert.rejects(node.kv("config", { history: 5 }), SettingsDiffer);
		await config.purge();
		await assert.rejects(node.kv("config"), NotFound);
	});

	test("what is not allowed is told at the call, with its field", async () => {
		const stream = await node.stream("misuse", { subjects: ["misuse"] });
		const wrong = (call: Promise<unknown>, text: RegExp): Promise<void> =>
			assert.rejects(call, (error) => error instanceof InvalidArgument && text.test(error.message));
		await wrong(stream.publish("misuse", Symbol("x")), /misuse/);
		await wrong(stream.publish("misuse", 1, { delay: -1 }), /delay/);
		await wrong(stream.publish("misuse", 1, { delay: 5, at: new Date() }), /delay: it is given together with at/);
		await wrong(stream.publish("misuse", 1, { content: "bytes" }), /value: 1 is not allowed with content/);
		await wrong(stream.publish("misuse", 1, { content: "xml" as "json" }), /content: 'xml'/);
		await wrong(stream.consumer("work", { start: -1 }), /start: -1/);
		await wrong(stream.consumer("work", { maxInFlight: 0 }), /maxInFlight: 0/);
		await wrong(stream.consumer("work", { order: "odd" as "key" }), /order: 'odd'/);
		await wrong(node.stream("misuse", { subjects: "misuse" as unknown as string[] }), /subjects/);
		await wrong(node.kv("misuse", { ttl: -1 }), /ttl: -1/);
		await assert.rejects(node.stream("nothing"), NotFound);
		const waiting = Array.from({ length: 10_000 }, (_, n) => stream.publish("misuse", n));
		await assert.rejects(stream.publish("misuse", 1), LimitExceeded);
		await stream.room();
		await stream.publish("misuse", 1);
		await Promise.all(waiting);
		for await (const event of stream.read({ stop: 1 })) {
			await wrong(event.ack(), /it was read, not delivered/);
		}
	});

	test("an option that is undefined has its default", async () => {
		const none = undefined;
		await using page = await connect(hub.url, { name: none, token: none, joinTimeout: none, signal: none });
		await using _ = await page.serve(
			"plain",
			{ echo: (value: number) => value },
			{ description: none, visibility: none, instance: none, version: none, metadata: none, concurrency: none },
		);
		const plain = page.client<{ echo(value: number): number }>("plain", { timeout: none, policy: none, headers: none });
		assert.equal(await plain.with({ idempotent: none, instance: none, priority: none }).echo(1), 1);
		await using _subscription = await page.subscribe("plain", () => 2, { queue: none });
		assert.ok(page.publish("plain", 1, { headers: none, priority: none }));
		assert.equal(await page.request("plain", 1, { timeout: none }), 2);
		const settings = { maxAge: none, maxBytes: none, maxMessages: none, full: none, dedupe: none, replicas: none };
		const stream = await page.stream<number>("plain", { subjects: ["plain.>"], ...settings });
		await stream.publish("plain.one", 1, { key: none, id: none, headers: none, content: none, delay: none, ttl: none });
		const consumer = await stream.consumer("plain", { start: "all", mode: none, backoff: none, ackWait: none });
		const event = await consumer.next({ timeout: none, signal: none });
		await event?.ack({ wait: none });
		assert.equal(event?.value, 1);
		assert.equal(await stream.purge({ before: none, keep: none, filter: none }), 1);
		const bucket = await page.kv<number>("plain", { history: none, ttl: none, maxBytes: none, replicas: none });
		const revision = await bucket.put("one", 1, { ttl: none });
		assert.equal((await bucket.get("one", { revision: none }))?.revision, revision);
		await using lease = await page.lease("plain", { ttl: none, holder: none, signal: none });
		assert.ok(lease.isHeld);
		await page.close({ timeout: none });
	});

	test("an option that does not exist is refused, with the most similar name", async () => {
		const lax = node as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>;
		const stream = await node.stream<number>("typed", { subjects: ["typed.>"] });
		const laxStream = stream as unknown as typeof lax;
		const bucket = (await node.kv("typed", {})) as unknown as typeof lax;
		const consumer = (await stream.consumer("typed")) as unknown as typeof lax;
		const commands = (await node.commands()) as unknown as typeof lax;
		await stream.publish("typed.one", 1);
		const event = (await (await stream.consumer("all", { start: "all" })).next()) as unknown as typeof lax;
		const join = connect as (url: string, options: unknown) => Promise<unknown>;
		const give = remote as (target: object, options: unknown) => unknown;
		const service = { f: () => {} };
		const mistakes: [call: () => unknown, title: string, near: string][] = [
			[() => join(hub.url, { tokn: "x" }), "connect", "token"],
			[() => join(hub.url, { join_timeout: 1 }), "connect", "joinTimeout"],
			[() => lax.serve?.("x", service, { concurency: 1 }), "serve", "concurrency"],
			[() => lax.serve?.("x", service, { methods: { f: { params: [] } } }), "serve: methods: f", "parameters"],
			[() => lax.subscribe?.("x", () => {}, { Queue: "x" }), "subscribe", "queue"],
			[() => lax.subscription?.("x", { group: "x" }), "subscribe", "queue"],
			[() => lax.publish?.("x", 1, { header: {} }), "publish", "headers"],
			[() => lax.request?.("double", 1, { time_out: 1 }), "request", "timeout"],
			[() => lax.client?.("x", { idempotant: true }), "with", "idempotent"],
			[() => lax.close?.({ timeOut: 1 }), "close", "timeout"],
			[() => give(service, { leese: 1 }), "remote", "lease"],
			[() => lax.stream?.("x", { subjects: ["x"], max_age: 1 }), "stream", "maxAge"],
			[() => lax.kv?.("x", { tll: 1 }), "kv", "ttl"],
			[() => lax.lease?.("x", { tt: 1 }), "lease", "ttl"],
			[() => laxStream.publish?.("typed.x", 1, { kei: "x" }), "publish", "key"],
			[() => laxStream.schedule?.("x", 60_000, "typed.x", 1, { timezone: "UTC", ttk: 1 }), "schedule", "timeZone"],
			[() => laxStream.consumer?.("x", { ackwait: 1 }), "consumer", "ackWait"],
			[() => laxStream.read?.({ begin: 1 }), "read", "start"],
			[() => laxStream.purge?.({ kep: 1 }), "purge", "keep"],
			[() => bucket.put?.("x", 1, { til: 1 }), "put", "ttl"],
			[() => bucket.update?.("x", 1, { revison: 1 }), "update", "revision"],
			[() => bucket.watch?.(">", { before: 1 }), "watch", "after"],
			[() => consumer.next?.({ timout: 1 }), "next", "timeout"],
			[() => consumer.deadLetters?.({ max: 1 }), "deadLetters", "start"],
			[() => event.nak?.({ dealy: 1 }), "nak", "delay"],
			[() => commands.start?.("x", "x", [], { kay: "x" }), "start", "key"],
			[() => commands.list?.({ state: "queued" }), "list", "stage"],
		];
		for (const [call, title, near] of mistakes) {
			await assert.rejects(
				async () => await call(),
				(error) =>
					error instanceof InvalidArgument &&
					error.message.startsWith(`${title}: there is no option '`) &&
					error.message.includes(`the most similar is '${near}'`),
				`${title}: ${near}`,
			);
		}
		assert.equal(node.statistics().services + node.statistics().subscriptions, 0);
	});
});

describe("a hub that is killed", { timeout: 120_000 }, () => {
	test("has all that it acked when it is back, and those who read go on", async () => {
		const folder = mkdtempSync(join(tmpdir(), "tidewire-"));
		let hub = await Hub.start(["--data", folder]);
		const node = await connect(hub.url, { heartbeat: 5_000 });
		const orders = await node.stream<number>("orders", { subjects: ["orders"] });
		const config = await node.kv<number>("config", {});
		const work = await orders.consumer("work", { start: "all", backoff: [10] });
		await Promise.all(Array.from({ length: 50 }, (_, n) => orders.publish("orders", n)));
		await config.put("a", 1);
		const [handled, followed] = [new Map<number, number>(), [] as number[]];
		const watch = config.watch()[Symbol.asyncIterator]();
		assert.equal((await watch.next()).value?.value, 1);
		const change = watch.next();
		let half = (): void => {};
		const halfway = new Promise<void>((resolve) => {
			half = resolve;
		});
		const working = (async () => {
			for await (const event of work) {
				handled.set(event.value, (handled.get(event.value) ?? 0) + 1);
				await event.ack({ wait: true });
				if (handled.size === 50) {
					half();
				} else if (handled.size === 100) {
					break;
				}
			}
		})();
		const reading = (async () => {
			for await (const { value } of orders.read({ follow: true })) {
				followed.push(value);
				if (followed.length === 100) {
					break;
				}
			}
		})();
		await halfway;
		const joined = new Promise((resolve) => node.on("joined", resolve));
		const port = new URL(hub.url).port;
		await hub.stop();
		hub = await Hub.start(["--data", folder], port);
		await joined;
		for (let n = 50; n < 100; n++) {
			// Not known whether it was stored, it is published again: its id tells.
			for (;;) {
				try {
					await orders.publish("orders", n, { id: `order-${n}` });
					break;
				} catch (error) {
					assert.ok((error as { retryable: boolean }).retryable || error instanceof NoResponders, String(error));
				}
			}
		}
		await config.put("b", 2);
		await Promise.all([working, reading]);
		assert.deepEqual(
			followed,
			Array.from({ length: 100 }, (_, n) => n),
		);
		assert.ok([...handled.values()].every((times) => times === 1));
		assert.equal((await change).value?.key, "b");
		await node.close();
		await hub.stop();
		rmSync(folder, { recursive: true });
	});
});
