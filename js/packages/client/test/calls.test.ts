/** Calls in handlers, also across Python; interceptors of calls; calls over a cluster of NATS. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { after, before, describe } from "node:test";
import * as opentelemetry from "@opentelemetry/api";
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-node";
import { AskTimeout, CallCancelled, connect, context, InvalidArgument, type Node, named } from "tidewire";
import { instrument } from "tidewire/opentelemetry";
import { Hub, Nats, Peer } from "./python.js";

interface Seen {
	trace: string;
	parent?: string;
	baggage?: string;
	remaining: number;
}

interface Driver {
	call(service: string, method: string, args: unknown[], kwargs: object): Promise<unknown>;
}

interface Back {
	seen(): Promise<Seen>;
	traces(): AsyncIterable<string>;
	forever(): Promise<never>;
}

interface Pricing {
	quote(symbol: string, qty?: number): Promise<{ price: number }>;
	ticks(symbol: string, count?: number): AsyncIterable<number>;
	headers(): Promise<Record<string, string>>;
	state(): Promise<{ open: number }>;
}

function gate<T = void>(): { readonly promise: Promise<T>; readonly open: (value: T) => void } {
	let open: (value: T) => void = () => {};
	const promise = new Promise<T>((resolve) => {
		open = resolve;
	});
	return { promise, open };
}

describe("calls", { timeout: 60_000 }, () => {
	const folder = mkdtempSync(join(tmpdir(), "tidewire-"));
	let hub: Hub;
	let python: Peer;
	let node: Node;
	let caller: Node;
	let back: Node;
	/** Of the handlers of `back.forever`. */
	let begun = gate<AbortSignal>();
	let calls = 0;

	before(async () => {
		hub = await Hub.start(["--data", folder]);
		python = await Peer.start("server", hub.url);
		node = await connect(hub.url, { name: "middle" });
		caller = await connect(hub.url, { name: "caller" });
		back = await connect(hub.url, { name: "back" });
		await back.serve("back", {
			seen: () => {
				calls++;
				const { trace, remaining, headers } = context();
				return { trace, remaining, parent: headers.traceparent, baggage: headers.baggage };
			},
			traces: async function* () {
				yield context().trace;
				await undefined;
				yield context().trace;
			},
			forever: () => {
				const { signal } = context();
				begun.open(signal);
				return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error)));
			},
		});
	});

	after(async () => {
		await back?.close();
		await caller?.close();
		await node?.close();
		await python?.stop();
		await hub?.stop();
		rmSync(folder, { recursive: true });
	});

	test("each handler has its own context behind each await", async () => {
		let inside = 0;
		const both = gate();
		const serving = await node.serve("who", {
			async called(name: string) {
				inside++;
				await (inside === 2 ? both.open() : both.promise);
				return [name, context().headers.name, context().node];
			},
		});
		const call = (name: string) => caller.client<"called">("who").with({ headers: { name } }).called(name);
		const answers = await Promise.all(["ada", "bob"].map(call));
		assert.deepEqual(answers.flat(), ["ada", "ada", "caller", "bob", "bob", "caller"]);
		assert.throws(context, InvalidArgument);
		await serving.stop();
	});

	test("a nested call has the trace and at most the time of the outer one, also through Python", async () => {
		const serving = await node.serve("front", {
			async seen() {
				const own = context().trace;
				await undefined;
				const through = await node.client<Driver>("driver").call("back", "seen", [], {});
				const direct = await node.client<Back>("back").with({ timeout: 60_000 }).seen();
				const short = await node.client<Back>("back").with({ timeout: 1_000 }).seen();
				const [all] = (await node.client<"seen">("back").with({ policy: "all" }).seen()) as [{ value: Seen }];
				const traces: string[] = [];
				for await (const trace of node.client<Back>("back").traces()) {
					traces.push(trace);
				}
				return { own, traces, seen: [through, direct, all.value, short] };
			},
		});
		interface Front {
			seen(): Promise<{ own: string; traces: string[]; seen: Seen[] }>;
		}
		const front = caller.client<Front>("front").with({ timeout: 9_000 });
		const parent = `00-${"4b".repeat(16)}-00f067aa0ba902b7-01`;
		const headers = { traceparent: parent, baggage: "shop=north", other: "1" };
		const [first, second] = [await front.with({ headers }).seen(), await front.seen()];
		assert.match(first.own, /^[0-9a-f]{32}$/);
		assert.notEqual(first.own, second.own);
		assert.deepEqual(first.traces, [first.own, first.own]);
		for (const { trace, remaining, ...fields } of first.seen) {
			assert.equal(trace, first.own);
			assert.deepEqual(fields, { parent, baggage: "shop=north" });
			assert.ok(remaining > 0 && remaining <= 9_000, `${remaining}`);
		}
		assert.ok((first.seen.at(-1)?.remaining ?? 0) <= 1_000);
		await serving.stop();
	});

	// Promises: P13.97.
	test("calls, handlers, messages and callbacks are one tree of spans, also through Python", async () => {
		const { propagation, ROOT_CONTEXT, SpanKind } = opentelemetry;
		const exported = new InMemorySpanExporter();
		new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exported)] }).register();
		const [shop, page] = [await connect(hub.url), await connect(hub.url)];
		instrument(shop, opentelemetry);
		instrument(page, opentelemetry);
		const heard = gate<string | undefined>();
		await page.subscribe("news.*", (_, { headers }) => heard.open(headers.baggage));
		const stream = await shop.stream("orders", { subjects: ["orders.>"] });
		await shop.serve("stock", {
			take: (item: string) => {
				throw new RangeError(item);
			},
			*parts() {
				yield 1;
				yield 2;
			},
		});
		await shop.serve("orders", {
			async order(item: string, notify: (item: string) => Promise<string>) {
				await assert.rejects(shop.client<Driver>("driver").call("stock", "take", [item], {}));
				for await (const part of shop.client<"parts">("stock").parts()) {
					assert.equal(part, 1);
					break;
				}
				await stream.publish("orders.new", item);
				shop.publish("news.order", item);
				return notify(item);
			},
		});
		const baggage = propagation.createBaggage({ shop: { value: "north" } });
		const order = () => page.client<"order">("orders").order("tea", (item: string) => `${item} comes`);
		assert.equal(await opentelemetry.context.with(propagation.setBaggage(ROOT_CONTEXT, baggage), order), "tea comes");
		assert.equal(await heard.promise, "shop=north");
		const { value: event } = await stream.read().next();
		await Promise.all([shop.close(), page.close()]);
		const spans = exported.getFinishedSpans();
		const titles = new Map(spans.map((one) => [one.spanContext().spanId, `${SpanKind[one.kind]} ${one.name}`]));
		assert.equal(titles.get(event?.headers.traceparent?.split("-")[2] ?? ""), "PRODUCER publish orders.new");
		const tree = spans.map(({ parentSpanContext: parent, kind, name, attributes }) =>
			[titles.get(parent?.spanId ?? "") ?? "", `${SpanKind[kind]} ${name}`, attributes["error.type"] ?? ""].join(" | "),
		);
		assert.deepEqual(tree.sort(), [
			" | CLIENT orders/order | ",
			"CLIENT driver/call | SERVER stock/take | RangeError",
			"CLIENT orders/order | SERVER orders/order | ",
			"CLIENT stock/parts | SERVER stock/parts | ",
			"PRODUCER publish news.order | CONSUMER process news.order | ",
			"SERVER orders/order | CLIENT driver/call | RemoteError",
			"SERVER orders/order | CLIENT stock/parts | ",
			"SERVER orders/order | PRODUCER publish news.order | ",
			"SERVER orders/order | PRODUCER publish orders.new | ",
			"SERVER orders/order | SERVER function | ",
		]);
	});

	test("a cancelled call ends its nested calls, and makes no new ones", async () => {
		const failures: unknown[] = [];
		const ended = gate();
		const serving = await node.serve("front", {
			async hang() {
				const back = node.client<Back>("back");
				failures.push(await back.forever().catch((error: unknown) => error));
				failures.push(await back.seen().catch((error: unknown) => error));
				ended.open();
			},
		});
		const before = calls;
		begun = gate();
		const given = new AbortController();
		const hanging = caller.client("front").with({ signal: given.signal }).hang?.();
		const inner = await begun.promise;
		given.abort(new Error("enough"));
		await assert.rejects(hanging as Promise<unknown>, /enough/);
		await ended.promise;
		assert.deepEqual(
			failures.map((failure) => failure instanceof CallCancelled),
			[true, true],
		);
		await new Promise<void>((resolve) =>
			inner.aborted ? resolve() : inner.addEventListener("abort", () => resolve()),
		);
		assert.equal(calls, before);

		begun = gate();
		await assert.rejects(caller.client("front").with({ timeout: 300 }).hang?.() as Promise<unknown>, AskTimeout);
		const late = await begun.promise;
		await new Promise<void>((resolve) => (late.aborted ? resolve() : late.addEventListener("abort", () => resolve())));
		await serving.stop();
	});

	test("work that goes on after the answer has the trace, and time of its own", async () => {
		const answered = gate();
		const seen = gate<Seen>();
		const heard = gate();
		// A message is no part of the call that published it.
		await using _ = await node.subscribe("work.done", () => {
			assert.throws(context, InvalidArgument);
			heard.open();
		});
		const serving = await node.serve("front", {
			begin() {
				void answered.promise.then(async () => seen.open(await node.client<Back>("back").seen()));
				node.publish("work.done", null);
				return context().trace;
			},
		});
		const trace = await caller.client("front").with({ timeout: 5_000 }).begin?.();
		answered.open();
		const late = await seen.promise;
		assert.equal(late.trace, trace);
		assert.ok(late.remaining > 5_000, `${late.remaining}`);
		await heard.promise;
		await serving.stop();
	});

	test("calls pass interceptors in order, with their arguments, options, results and errors", async () => {
		await using page = await connect(hub.url);
		const pricing = page.client<Pricing>("pricing");
		assert.deepEqual(await pricing.headers(), {});
		const seen: unknown[] = [];
		page.use(async (call, next) => {
			seen.push([call.service, call.method, ...call.args, call.isStream]);
			try {
				const result = await next({ ...call, options: { ...call.options, headers: { tenant: "ana" } } });
				seen.push("done");
				return result;
			} catch (error) {
				seen.push("failed");
				throw error;
			}
		});
		page.use(async (call, next) => {
			if (call.method === "quote" && call.args[0] === "mine") {
				return { price: 1 };
			}
			seen.push(call.options.headers);
			return next(call.args[0] === "old" ? { ...call, args: ["new", ...call.args.slice(1)] } : call);
		});
		assert.deepEqual(await pricing.headers(), { tenant: "ana" });
		assert.deepEqual(seen.splice(0), [["pricing", "headers", false], { tenant: "ana" }, "done"]);
		assert.deepEqual({ ...(await pricing.quote("old", named({ qty: 3 }))) }, { symbol: "new", price: 7.5, qty: 3 });
		assert.deepEqual(await pricing.quote("mine"), { price: 1 });
		seen.length = 0;
		const items: number[] = [];
		for await (const item of pricing.ticks("X")) {
			items.push(item);
			if (items.length === 3) {
				break; // closes the generator there
			}
		}
		assert.deepEqual(items, [0, 0.5, 1]);
		assert.deepEqual(seen.splice(0), [["pricing", "ticks", "X", true], { tenant: "ana" }, "done"]);
		assert.equal((await pricing.state()).open, 0);
		await assert.rejects(async () => page.client("pricing").broken?.("salt"), /KeyError/);
		assert.equal(seen.at(-1), "failed");
		page.use((call, next) => next({ ...call, options: { timeout: -1 } }));
		await assert.rejects(async () => pricing.quote("X"), InvalidArgument);
	});
});

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
