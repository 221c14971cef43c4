/** Commands that a node of Python does, and leases, at a hub with a data folder. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { after, before, describe } from "node:test";
import {
	CallCancelled,
	type Command,
	connect,
	InvalidArgument,
	LeaseLost,
	LimitExceeded,
	type Node,
	NoResponders,
	NotFound,
	named,
	PayloadTooLarge,
	SettingsDiffer,
	typeOf,
} from "tidewire";
import { Hub, Peer, PYTHON } from "./python.js";

interface Books {
	go_on(): Promise<void>;
	fix(): Promise<void>;
	start(command: string, args: readonly unknown[], id: string): Promise<string>;
	reindex: Command<[shard: number | bigint, name?: string], Quote>;
	close_year: Command<[year: number | bigint], string>;
}

interface Quote {
	readonly symbol: string;
	readonly price: number;
	readonly qty: number;
}

describe("a hub with a data folder, for commands and leases", { timeout: 120_000 }, () => {
	let folder: string;
	let hub: Hub;
	let node: Node;
	let other: Node;
	let worker: Peer | undefined;

	before(async () => {
		folder = mkdtempSync(join(tmpdir(), "tidewire-"));
		hub = await Hub.start(["--data", folder]);
		node = await connect(hub.url, { name: "page" });
		other = await connect(hub.url, { name: "other" });
	});

	after(async () => {
		await node?.close();
		await other?.close();
		await worker?.stop();
		await hub?.stop();
		rmSync(folder, { recursive: true });
	});

	test("a command is started before somebody does it, followed, and found again by its id", async () => {
		const commands = await node.commands();
		const run = await commands.start<Quote>("books", "reindex", [7, named({ name: "north" })], { key: "shard-7" });
		const { stage, attempt, key, caller, worker: nobody, isOver, began } = await run.info();
		assert.deepEqual(
			[stage, attempt, key, caller, nobody, isOver, began],
			["queued", 0, "shard-7", "page", undefined, false, undefined],
		);
		worker = await Peer.start("worker", hub.url);
		const seen: [number, string][] = [];
		for await (const { fraction, note, attempt, time } of run.progress()) {
			seen.push([fraction, note]);
			assert.equal(attempt, 1);
			assert.ok(Math.abs(Date.now() - time.getTime()) < 60_000);
			await node.client<Books>("books").go_on();
		}
		assert.deepEqual(seen, [[0.5, "half of 7"]]);
		const again = (await other.commands()).find<Quote>(run.id);
		for (const result of [await run.result(), await again.result()]) {
			assert.equal(typeOf(result), "__main__:Quote");
			assert.deepEqual({ ...result }, { symbol: "north", price: 0.5, qty: 7 });
		}
		const done = await again.info();
		assert.deepEqual([done.stage, done.isOver, done.fraction, done.worker], ["succeeded", true, 1, "worker"]);
		assert.ok((done.began as Date) <= (done.ended as Date));
		const listed = await commands.list({ service: "books", stage: "succeeded" });
		assert.deepEqual(
			listed.map(({ id }) => id),
			[run.id],
		);
		assert.deepEqual(await commands.list({ stage: "running" }), []);
		assert.deepEqual([await run.cancel(), await run.retry()], [false, false]);
	});

	test("what an attempt raises is the error of its result, and it begins anew after a fix", async () => {
		const commands = await node.commands();
		const run = await commands.start<string>("books", "close_year", [2026], { id: "close-2026" });
		await assert.rejects(run.result(), (error: LimitExceeded) => {
			assert.ok(error instanceof LimitExceeded);
			assert.match(error.remoteTraceback, /close_year/);
			return error.message === "no balance of 2025";
		});
		assert.match((await run.info()).error, /no balance of 2025/);
		await node.client<Books>("books").fix();
		assert.equal(await run.retry(), true);
		assert.equal(await run.result(), "2026 is closed");
	});

	test("an id is started once, by whichever language, and with other arguments it is refused", async () => {
		const commands = await node.commands();
		const python = other.client<Books>("books");
		const first = await commands.start("books", "close_year", [2027], { id: "close-2027" });
		assert.equal(await python.start("close_year", [2027], "close-2027"), first.id);
		await assert.rejects(commands.start("books", "close_year", [2028], { id: "close-2027" }), SettingsDiffer);
		assert.equal(await python.start("close_year", [2030], "close-2030"), "close-2030");
		const second = await commands.start<string>("books", "close_year", [2030], { id: "close-2030" });
		assert.equal(await second.result(), "2030 is closed");
	});

	test("a client starts commands by their names, with the types that the hub has for them", async () => {
		const books = node.client<Books>("books");
		const run = await books.reindex.with({ key: "shard-9", id: "typed" }).start(9, named({ name: "west" }));
		const { symbol, qty }: Quote = await run.result();
		assert.deepEqual([run.id, symbol, qty, (await run.info()).key], ["typed", "west", 9, "shard-9"]);
		const year: string = await (await books.close_year.start(2031)).result();
		assert.equal(year, "2031 is closed");
		const text = execFileSync(PYTHON, ["-m", "tidewire", "generate", "ts", "--url", hub.url], { encoding: "utf8" });
		assert.match(text, /import type \{ Command \} from "tidewire";/);
		assert.match(text, /\treindex: Command<\[shard: number \| bigint, name\?: string\], Quote>;/);
	});

	test("what is not allowed is refused with its name", async () => {
		const commands = await node.commands();
		const start = (options: object): Promise<unknown> => commands.start("books", "close_year", [1], options);
		await assert.rejects(commands.start("books", "a.b"), /command: "a\.b" is not allowed/);
		await assert.rejects(commands.start("books", "close_year", 7 as never), /args: 7 is not allowed/);
		await assert.rejects(commands.start("books", "close_year", [Symbol("x")]), /books\.close_year\[0\]\[0\]: a symbol/);
		await assert.rejects(start({ id: "two words" }), InvalidArgument);
		await assert.rejects(start({ priority: "soon" }), /priority: "soon" is not allowed/);
		await assert.rejects(start({ key: "" }), /key: "" is not allowed/);
		await assert.rejects(commands.start("books", "close_year", ["x".repeat(600_000)]), PayloadTooLarge);
		await assert.rejects(commands.find("nobody").result(), NotFound);
		await assert.rejects(commands.find("nobody").info(), NotFound);
		await assert.rejects(commands.list({ stage: "late" as never }), /stage: "late" is not allowed/);
		const raw = node.client("tidewire-commands");
		await assert.rejects(
			raw.start?.("books", "close_year", new Uint8Array([1]), null, "odd", "normal") as Promise<unknown>,
			/arguments: give a list/,
		);
		const waiting = (await commands.start("books", "nobody_does_it")).result({ signal: AbortSignal.timeout(20) });
		await assert.rejects(waiting, { name: "TimeoutError" });
	});

	test("of those who want a lease one holds it, and each next one has a greater fence", async () => {
		const lease = await node.lease("nightly", { ttl: 60_000 });
		assert.ok(lease.isHeld && !lease.signal.aborted);
		await assert.rejects(other.lease("nightly", { signal: AbortSignal.timeout(50) }), { name: "TimeoutError" });
		const next = other.lease("nightly");
		const { fence } = lease;
		await lease.release();
		await lease.release();
		assert.equal(lease.isHeld, false);
		assert.throws(() => lease.fence, LeaseLost);
		const second = await next;
		const { fence: greater } = second;
		assert.ok(greater > fence);
		// A page that is closed gives it back at once, and not when its time is over.
		const page = await connect(hub.url);
		await second.release();
		const kept = await page.lease("nightly", { ttl: 60_000 });
		assert.ok(kept.fence > greater);
		const lost = new Promise((resolve) => kept.signal.addEventListener("abort", resolve));
		await page.close();
		await lost;
		await assert.rejects(kept.release(), LeaseLost);
		const third = await node.lease("nightly", { ttl: 60_000 });
		assert.ok(third.fence > greater);
		await third[Symbol.asyncDispose]();
		await assert.rejects(node.lease("nightly", { ttl: 1 }), /ttl: 1 is not allowed/);
		await assert.rejects(node.lease("nightly", { signal: AbortSignal.abort(new Error("too late")) }), /too late/);
	});

	test("a lease is renewed for as long as it is held", async () => {
		const lease = await node.lease("renewed", { ttl: 1_000 });
		await assert.rejects(other.lease("renewed", { signal: AbortSignal.timeout(2_500) }), { name: "TimeoutError" });
		assert.ok(lease.isHeld);
		await lease.release();
	});

	// Promises: P17.57.
	test("a hub that is killed ends leases, and who waits for a command waits on", async () => {
		const commands = await node.commands();
		const lease = await node.lease("held", { ttl: 60_000 });
		const lost = new Promise((resolve) => lease.signal.addEventListener("abort", resolve));
		const run = await commands.start<string>("books", "nobody_does_it");
		const result = run.result();
		const port = new URL(hub.url).port;
		await worker?.stop();
		await hub.stop();
		await lost;
		await assert.rejects(lease.release(), LeaseLost);
		hub = await Hub.start(["--data", folder], port);
		await run.cancel();
		await assert.rejects(result, CallCancelled);
	});
});

test("a hub without a data folder says what is missing", async () => {
	const hub = await Hub.start([]);
	const node = await connect(hub.url);
	const missing = (error: Error): boolean => error instanceof NoResponders && error.message.includes("--data DIR");
	const commands = await node.commands();
	await assert.rejects(commands.start("books", "reindex"), missing);
	await assert.rejects(commands.list(), missing);
	await assert.rejects(commands.find("x").result(), missing);
	await assert.rejects(node.lease("nightly"), missing);
	await assert.rejects(node.stream("orders", { subjects: ["orders"] }), missing);
	await assert.rejects(node.kv("config"), missing);
	await node.close();
	await hub.stop();
});
