/** Stories with a hub and a node of Python, both ways. */
import assert from "node:assert/strict";
import test, { after, before, describe } from "node:test";
import {
	connect,
	context,
	NdArray,
	type Node,
	NoResponders,
	named,
	type RemoteFunction,
	RemoteGone,
	remote,
	typeOf,
} from "tidewire";
import { Hub, Peer } from "./python.js";

/** Half of them calls, half of them published; `npm run soak` takes a million. */
const MESSAGES = Number(process.env.MESSAGES ?? 100_000);

interface Quote {
	symbol: string;
	price: number;
	qty: number;
}

interface Pricing {
	quote(symbol: string, qty?: number): Promise<Quote>;
	headers(): Promise<Record<string, string>>;
}

interface Driver {
	call(service: string, method: string, args: unknown[], kwargs: object): Promise<unknown>;
	read(service: string, method: string, args: unknown[], count: number): Promise<unknown[]>;
	failure(service: string, method: string, args: unknown[]): Promise<Record<string, string>>;
	give_up(service: string, method: string, seconds: number): Promise<string>;
	callback(service: string): Promise<number[]>;
	publish(subject: string, value: unknown, times?: number): Promise<null>;
	request(subject: string, value: unknown): Promise<unknown>;
}

interface Shop {
	pack(boxes: number, progress: (box: number) => unknown): Promise<string>;
	total(numbers: AsyncIterable<number> | Iterable<number>): Promise<number>;
	first(numbers: AsyncIterable<number>, count: number): Promise<number[]>;
	greet(cart: unknown): Promise<string>;
	counter(): Promise<unknown>;
	adder(by: number): Promise<RemoteFunction<(number: number) => Promise<number>>>;
	is_mine(counter: unknown): Promise<boolean>;
}

interface Counter {
	add(by?: number): Promise<number>;
	upto(end: number): AsyncIterable<number>;
	dispose(): void;
}

/**
 * Waits until something is so: looks again whenever the hub has answered a question, which it does
 * in order.
 */
async function until(node: Node, check: () => Promise<boolean> | boolean, what: string): Promise<void> {
	for (const end = Date.now() + 30_000; Date.now() < end; await node.services()) {
		if (await check()) {
			return;
		}
	}
	assert.fail(`not within 30 s: ${what}`);
}

describe("with a hub and a node of Python", { timeout: 120_000 + MESSAGES / 2 }, () => {
	let hub: Peer;
	let server: Peer;
	let node: Node;

	before(async () => {
		hub = await Peer.start("hub");
		server = await Peer.start("server", hub.url);
		node = await connect(hub.url, { name: "page" });
	});

	after(async () => {
		await node?.close();
		await server?.stop();
		await hub?.stop();
	});

	test("calls, by position and by name", async () => {
		const pricing = node.client<Pricing>("pricing");
		const quote = await pricing.quote("X", named({ qty: 3 }));
		assert.deepEqual(quote, { symbol: "X", price: 7.5, qty: 3 });
		assert.equal(typeOf(quote), "__main__:Quote");
		assert.equal((await pricing.quote("Y", 2)).price, 5);
		const many = await Promise.all(Array.from({ length: 500 }, (_, qty) => pricing.quote("X", qty)));
		assert.deepEqual(
			many.map(({ price }) => price),
			Array.from({ length: 500 }, (_, qty) => qty * 2.5),
		);
		assert.deepEqual(await pricing.with({ headers: { tenant: "ana" }, priority: "high" }).headers(), { tenant: "ana" });
	});

	test("functions, objects and streams as arguments", async () => {
		const shop = node.client<Shop>("shop");
		const seen: number[] = [];
		assert.equal(await shop.pack(3, (box: number) => seen.push(box)), "packed");
		assert.deepEqual(seen, [0, 1, 2]);
		assert.equal(
			await shop.total(
				(async function* () {
					for (let n = 1; n <= 200; n++) {
						yield n;
					}
				})(),
			),
			20_100,
		);
		let closed = false;
		const endless = (async function* () {
			try {
				for (let n = 0; ; n++) {
					yield n;
				}
			} finally {
				closed = true;
			}
		})();
		assert.deepEqual(await shop.first(endless, 3), [0, 1, 2]);
		await until(node, () => closed, "the generator was closed");
		const cart = remote({
			title: async (name: string) => `the cart of ${name}`,
		});
		assert.equal(await shop.greet(cart), "the cart of Ana");
	});

	test("functions and objects as results, given back to their owner, and let go", async () => {
		const shop = node.client<Shop>("shop");
		const add = await shop.adder(3);
		assert.equal(await add(4), 7);
		add.dispose();
		await assert.rejects(add(4), RemoteGone);
		const counter = (await shop.counter()) as Counter;
		assert.equal(await counter.add(), 1);
		assert.equal(await counter.add(named({ by: 4 }) as unknown as number), 5);
		const items: number[] = [];
		for await (const item of counter.upto(5)) {
			items.push(item);
		}
		assert.deepEqual(items, [0, 1, 2, 3, 4]);
		assert.equal(await shop.is_mine(counter), true);
		counter.dispose();
		await until(node, () => node.statistics().remote.held === 0, "nothing is held");
	});

	test("Python calls what a page serves", async () => {
		let closed = 0;
		let begun = 0;
		let aborted = 0;
		const serving = await node.serve(
			"math",
			{
				add: (a: number, b: number) => a + b,
				async *count(n: number) {
					try {
						for (let i = 0; i < n; i++) {
							yield i;
						}
					} finally {
						closed++;
					}
				},
				fail: (text: string) => {
					throw new RangeError(text);
				},
				who: () => context().node,
				slow: () =>
					new Promise((_, reject) => {
						begun++;
						const { signal } = context();
						signal.addEventListener("abort", () => {
							aborted++;
							reject(signal.reason as Error);
						});
					}),
				each: async (count: number, callback: (n: number) => Promise<unknown>) => {
					for (let n = 0; n < count; n++) {
						await callback(n);
					}
				},
			},
			{
				description: "Numbers.",
				methods: { add: { parameters: ["a", "b"], description: "Add." } },
			},
		);
		const driver = node.client<Driver>("driver");
		assert.equal(await driver.call("math", "add", [2, 3], {}), 5);
		assert.equal(await driver.call("math", "add", [2], { b: 4 }), 6);
		assert.deepEqual(await driver.read("math", "count", [3], 100), [0, 1, 2]);
		assert.deepEqual(
			await driver.read("math", "count", [1e9], 150),
			Array.from({ length: 150 }, (_, n) => n),
		);
		assert.equal(closed, 2);
		assert.equal(await driver.call("math", "who", [], {}), "server");
		assert.deepEqual(await driver.callback("math"), [0, 1, 2]);
		const failure = await driver.failure("math", "fail", ["too far"]);
		assert.equal(failure.type, "RemoteError");
		assert.equal(failure.type_name, "javascript:RangeError");
		assert.match(failure.traceback ?? "", /hub\.test/);
		const missing = await driver.failure("math", "nothing", []);
		assert.equal(missing.type, "NoSuchMethod");
		const unnamed = await driver.failure("math", "add", [1]);
		assert.equal(unnamed.type, undefined); // NaN is a value
		// As above: one that begins in time.
		do {
			assert.equal(await driver.give_up("math", "slow", 0.05), "late");
		} while (begun === 0);
		await until(node, () => aborted === 1, "the handler was told");
		const info = (await node.services()).find(({ name }) => name === "math");
		assert.equal(info?.description, "Numbers.");
		assert.deepEqual(
			info?.methods.map(({ name, stream }) => [name, stream]),
			[
				["add", false],
				["count", true],
				["fail", false],
				["who", false],
				["slow", false],
				["each", false],
			],
		);
		assert.ok(serving.statistics().calls >= 8);
		await serving.stop();
		await until(
			node,
			async () => !(await node.services()).some(({ name }) => name === "math"),
			"it is not listed any more",
		);
	});

	test("several instances: the hub chooses, or the caller, or all are asked", async () => {
		const blue = await node.serve(
			"places",
			{ where: () => "blue" },
			{
				instance: "blue",
				version: "1.4.2",
				metadata: { zone: "eu" },
			},
		);
		const green = await node.serve("places", { where: () => "green" }, { instance: "green" });
		const places = node.client<{ where(): Promise<string> }>("places");
		const listed = (await node.services()).find(({ name }) => name === "places");
		assert.deepEqual(listed?.details, [
			{ id: "blue", node: "page", version: "1.4.2", metadata: { zone: "eu" } },
			{ id: "green", node: "page", version: "", metadata: {} },
		]);
		const refused = node.serve("places", { where: () => "red" }, { instance: "red", version: "1.4" });
		await assert.rejects(refused, /version: "1\.4" is not allowed .*give a semantic version such as "1\.4\.2"/);
		assert.equal(await places.with({ instance: "green" }).where(), "green");
		assert.equal(await places.with({ policy: "first" }).where(), "blue");
		const answers = (await places.with({ policy: "all" }).where()) as unknown as { instance: string; value: string }[];
		assert.deepEqual(answers.map(({ instance, value }) => `${instance} ${value}`).sort(), ["blue blue", "green green"]);
		await blue.stop();
		assert.equal(await places.where(), "green");
		await green.stop();
	});

	test("subjects: published here and there, queue groups, loops and requests", async () => {
		const driver = node.client<Driver>("driver");
		const seen: unknown[] = [];
		const subscription = await node.subscribe("orders.*", (value, { subject, node: from }) => {
			seen.push([subject, value, from]);
		});
		node.publish("orders.created", { id: 7 });
		await driver.publish("orders.paid", { id: 8 });
		await until(node, () => seen.length === 2, "both came");
		assert.deepEqual(seen, [
			["orders.created", { id: 7 }, "page"],
			["orders.paid", { id: 8 }, "server"],
		]);
		subscription.stop();
		const shared: string[] = [];
		await using one = await node.subscribe("jobs", () => shared.push("one"), {
			queue: "workers",
		});
		await using two = await node.subscribe("jobs", () => shared.push("two"), {
			queue: "workers",
		});
		await driver.publish("jobs", 1, 100);
		await until(node, () => shared.length === 100, "each job came once");
		assert.ok(one.statistics().received > 0 && two.statistics().received > 0);
		const found: unknown[] = [];
		const reading = (async () => {
			for await (const { value } of node.subscription("ticks.>")) {
				found.push(value);
				if (found.length === 3) {
					break;
				}
			}
		})();
		await until(
			node,
			async () => {
				await driver.publish("ticks.a.b", found.length);
				return found.length === 3;
			},
			"three ticks came",
		);
		await reading;
		assert.equal(await node.request("double", 21, { timeout: 1000 }), 42);
		const triple = await node.subscribe("triple", (value) => (value as number) * 3);
		assert.equal(await driver.request("triple", 14), 42);
		assert.equal(await node.request("triple", 14), 42);
		triple.stop();
		await assert.rejects(node.request("nobody.there", 1), NoResponders);
		assert.equal(node.statistics().subscriptions, 2);
	});

	test("every type of Python comes, and goes back as what it was", async () => {
		const values = node.client<{
			names(): Promise<string[]>;
			get(name: string): Promise<unknown>;
			check(name: string, value: unknown): Promise<string>;
			type_of(value: unknown): Promise<string>;
			echo(value: unknown): Promise<unknown>;
		}>("values");
		for (const name of await values.names()) {
			assert.equal(await values.check(name, await values.get(name)), "", name);
		}
		assert.equal(await values.type_of(3), "int 3");
		assert.equal(await values.type_of(2 ** 53), "float 9007199254740992.0");
		assert.equal(await values.type_of(new Float32Array([1, 2])), "ndarray array([1., 2.], dtype=float32)");
		assert.equal(await values.type_of(new Uint8ClampedArray([1, 300])), "ndarray array([  1, 255], dtype=uint8)");
		const far = new NdArray(
			Float64Array.from({ length: 300_000 }, (_, at) => at),
			[100, 3000],
		);
		const back = (await values.echo(far)) as NdArray<Float64Array>;
		assert.deepEqual(back.shape, [100, 3000]);
		assert.equal(back.data[299_999], 299_999);
		assert.equal(await values.type_of(new Error("odd")), "RemoteError RemoteError('javascript:Error: odd')");
	});

	test(`${MESSAGES} messages leave nothing behind`, async (t) => {
		const echo = node.client<{ echo(value: unknown): Promise<unknown> }>("values");
		let handled = 0;
		const counting = await node.subscribe("growth", () => handled++);
		const round = async (count: number): Promise<void> => {
			for (let done = 0; done < count; done += 500) {
				await Promise.all(Array.from({ length: 500 }, (_, n) => echo.echo(n)));
			}
			for (let done = 0; done < count; done += 500) {
				for (let n = 0; n < 500; n++) {
					node.publish("growth", n);
				}
				await until(node, () => handled >= done + 500, "published messages were handled");
			}
			handled = 0;
		};
		await round(10_000);
		const collect = (globalThis as { gc?: () => void }).gc;
		collect?.();
		const before = process.memoryUsage().heapUsed;
		await round(MESSAGES / 2);
		collect?.();
		const grown = process.memoryUsage().heapUsed - before;
		t.diagnostic(`${grown} bytes more`);
		assert.ok(grown < 8 * 2 ** 20, `${grown} bytes more`);
		counting.stop();
		assert.equal(node.statistics().open.theirs, 0);
	});

	test("a node that closes ends its streams", async () => {
		const closing = await connect(hub.url, { name: "closing" });
		await closing.serve("late", {
			async *endless() {
				for (let n = 0; ; n++) {
					yield n;
				}
			},
		});
		const items = node.client<{ endless(): AsyncIterable<number> }>("late").endless()[Symbol.asyncIterator]();
		await items.next();
		const cut = assert.rejects(
			async () => {
				while (!(await items.next()).done) {
					// It reads on until it is cut.
				}
			},
			(error) => (error as { code: string }).code === "node_stopped",
		);
		await closing.close();
		await cut;
	});
});

interface GreetingService {
	greet(name: string): Promise<string>;
	count(end: number): AsyncIterable<number>;
}

test("a node calls a service and reads a stream of another hub as those of its own", async () => {
	// The service is at a hub that the hub of the caller has joined.
	const paris = await Hub.start(["--name", "paris"]);
	const berlin = await Hub.start(["--join", paris.url, "--as", "berlin", "--export", "greeting"]);
	const server = await connect(berlin.url, { name: "server" });
	const caller = await connect(paris.url, { name: "caller" });
	try {
		await server.serve("greeting", {
			greet: async (name: string) => `hello ${name} of ${context().user}`,
			async *count(end: number) {
				for (let number = 0; number < end; number += 1) yield number;
			},
		});
		for await (const change of caller.watchServices("berlin:greeting")) {
			assert.equal(change.kind, "joined");
			break;
		}
		const greeting = caller.client<GreetingService>("berlin:greeting");
		assert.equal(await greeting.greet("ada"), "hello ada of paris");
		const numbers: number[] = [];
		for await (const number of greeting.count(100)) numbers.push(number);
		assert.deepEqual(numbers, [...Array(100).keys()]);
	} finally {
		await Promise.all([server.close(), caller.close()]);
		await Promise.all([berlin.stop(), paris.stop()]);
	}
});
