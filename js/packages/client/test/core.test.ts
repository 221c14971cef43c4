/** Stories of the core in virtual time: no socket, no timer. */
import assert from "node:assert/strict";
import test from "node:test";
import {
	AskTimeout,
	InvalidArgument,
	LimitExceeded,
	LinkLost,
	NameTaken,
	NodeStopped,
	Overloaded,
} from "../src/generated/errors.js";
import { join } from "../src/node.js";
import "../src/lazy_chunk.js";
import { readValue } from "../src/values/reader.js";
import { writeValue } from "../src/values/writer.js";
import { fieldBytes, Kind } from "../src/wire/frames.js";
import { type Said, settled, World } from "./virtual.js";

const NO_RESPONDERS = 17;
const OVERLOADED = 50;

async function joined(world = new World()): Promise<{ world: World; node: Awaited<ReturnType<World["join"]>> }> {
	const joining = world.join();
	await world.pass(0);
	return { world, node: await joining };
}

test("a call is sent once, awaited or not, and ends with its reply", async () => {
	const { world, node } = await joined();
	const call = node.client("pricing").quote?.("X");
	assert.equal(world.last.of(Kind.CALL).length, 0);
	await settled();
	const [sent] = world.last.of(Kind.CALL);
	assert.ok(sent);
	const answer = Promise.resolve(call);
	await settled();
	assert.equal(world.last.of(Kind.CALL).length, 1);
	assert.equal(sent.head.subject, "svc.pricing.quote");
	assert.equal(sent.head.deadlineMs, 30_000);
	assert.deepEqual([...(readValue(sent.frame.payload) as unknown[])], ["X"]);
	world.last.say(Kind.REPLY, 2 | 8, sent.frame, {}, writeValue(7));
	assert.equal(await answer, 7);
	assert.equal(node.statistics().open.mine, 1); // the subscription for what it gives
});

test("a call that is late is cancelled, and tells what its callee was doing", async () => {
	const { world, node } = await joined();
	const late = node.client("pricing").with({ timeout: 500 }).quote?.("X");
	const failed = assert.rejects(
		Promise.resolve(late),
		(error) => error instanceof AskTimeout && error.blockedMs === 40,
	);
	await settled();
	const [sent] = world.last.of(Kind.CALL);
	assert.ok(sent);
	world.last.say(Kind.ALIVE, 2 | 8, sent.frame, { blockedMs: 40 });
	await world.pass(499);
	assert.equal(world.last.of(Kind.CANCEL).length, 0);
	await world.pass(1);
	await failed;
	assert.equal(world.last.of(Kind.CANCEL).length, 1);
	// Late frames are skipped, and the slot is used again under another generation.
	world.last.say(Kind.REPLY, 2 | 8, sent.frame, {}, writeValue(7));
	const again = Promise.resolve(node.client("pricing").quote?.("Y"));
	await settled();
	const next = world.last.of(Kind.CALL)[1];
	assert.ok(next);
	assert.equal(next.frame.slot, sent.frame.slot);
	assert.notEqual(next.frame.generation, sent.frame.generation);
	world.last.say(Kind.REPLY, 2 | 8, next.frame, {}, writeValue(8));
	assert.equal(await again, 8);
});

test("a silent hub is noticed after two heartbeats, and joined again with services and subscriptions", async () => {
	const { world, node } = await joined();
	const events: string[] = [];
	node.on("lost", (reason) => events.push(`lost: ${reason}`));
	node.on("joined", (hub) => events.push(`joined ${hub}`));
	await node.serve("math", { add: (a: number, b: number) => a + b }, { instance: "one" });
	await node.subscribe("orders.*", () => {});
	const open = Promise.resolve(node.client("pricing").quote?.("X"));
	const failed = assert.rejects(open, LinkLost);
	const first = world.last;
	first.isKind = false;
	await world.pass(9_999);
	assert.deepEqual(events, []);
	await world.pass(1);
	await failed;
	assert.deepEqual(events, ["lost: nothing was heard of the hub for 10000 ms"]);
	await world.pass(1_000);
	assert.deepEqual(events.slice(1), ["joined hub"]);
	assert.notEqual(world.last, first);
	const hello = world.last.of(Kind.HELLO)[0];
	const resume = hello?.head.fields?.find(([name]) => name === "resume")?.[1];
	assert.equal(Buffer.from(resume ?? []).toString(), "secret");
	const patterns = world.last.of(Kind.SUBSCRIBE).map(({ head }) => head.pattern);
	assert.deepEqual(patterns, ["$node.3.>", "svc.math.one.*", "svc.math.*", "orders.*"]);
});

test("attempts to join again wait longer and longer, and no longer than a second", async () => {
	const { world, node } = await joined();
	world.isUp = false;
	world.last.cut();
	await world.pass(60_000);
	const attempts = world.connections.length - 1;
	assert.ok(attempts > 55 && attempts < 130, `${attempts} attempts in a minute`);
	world.isUp = true;
	await world.pass(1_000);
	assert.equal(node.hub, "hub");
});

test("a program whose timers are throttled to one a minute keeps its link while the hub is heard", async () => {
	const { world, node } = await joined();
	let lost = 0;
	node.on("lost", () => lost++);
	for (let second = 0; second < 600; second++) {
		await world.pass(1_000, 60_000);
		// The hub asks for signs of life, and messages are no timers.
		world.last.say(Kind.PING, 0, { slot: 1, generation: 0 }, {});
		await settled();
	}
	assert.equal(lost, 0);
	assert.ok(world.last.of(Kind.PONG).length >= 600);
});

test("a program that slept for an hour asks before it gives its link up", async () => {
	const { world, node } = await joined();
	let lost = 0;
	node.on("lost", () => lost++);
	world.at += 3_600_000;
	const before = world.last.of(Kind.PING).length;
	await world.pass(0);
	assert.equal(world.last.of(Kind.PING).length, before + 1);
	await world.pass(60_000);
	assert.equal(lost, 0);
});

test("a stream asks for more as it is read, and an early end waits for the other side", async () => {
	const { world, node } = await joined();
	const items = node.client("pricing").ticks?.()[Symbol.asyncIterator]();
	assert.ok(items);
	const first = items.next();
	await settled();
	const [sent] = world.last.of(Kind.CALL);
	assert.ok(sent);
	assert.equal(sent.head.credit, 64);
	for (let n = 0; n < 64; n++) {
		world.last.say(Kind.ITEM, 2 | 8, sent.frame, {}, writeValue(n));
	}
	assert.deepEqual(await first, { done: false, value: 0 });
	for (let n = 1; n < 32; n++) {
		assert.equal((await items.next()).value, n);
	}
	await settled();
	assert.deepEqual(
		world.last.of(Kind.CREDIT).map(({ head }) => head.items),
		[32],
	);
	let isOver = false;
	const over = items.return?.().then(() => {
		isOver = true;
	});
	await settled();
	assert.equal(world.last.of(Kind.CREDIT)[1]?.head.items, 0);
	assert.equal(isOver, false);
	world.last.say(Kind.END, 2 | 8, sent.frame, {});
	await over;
	assert.deepEqual(await items.next(), { done: true, value: undefined });
});

test("a hub that sends more items than were asked for is left", async () => {
	const { world, node } = await joined();
	const items = node.client("pricing").ticks?.()[Symbol.asyncIterator]();
	const reading = assert
		.rejects(
			(async () => {
				for (;;) {
					if ((await items?.next())?.done) {
						return;
					}
					// It reads nothing of the rest.
					await new Promise(() => {});
				}
			})(),
		)
		.catch(() => {});
	await settled();
	const [sent] = world.last.of(Kind.CALL);
	assert.ok(sent);
	for (let n = 0; n <= 64; n++) {
		world.last.say(Kind.ITEM, 2 | 8, sent.frame, {}, writeValue(n));
	}
	await settled();
	assert.equal(world.connections[0]?.isClosed, true);
	assert.equal(world.connections[0]?.of(Kind.ERROR).length, 1);
	void reading;
	assert.equal(node.statistics().lost, 1);
});

test("a long payload goes in chunks, as far as the window allows, and small calls overtake it", async () => {
	const { world, node } = await joined();
	const blobs = node.client("blobs");
	const long = Promise.resolve(blobs.put?.(new Uint8Array(2_000_000)));
	await settled();
	const [sent] = world.last.of(Kind.CALL);
	assert.ok(sent?.frame.stated);
	const chunks = (): number => world.last.of(Kind.CHUNK).reduce((sum, { frame }) => sum + frame.payload.length, 0);
	assert.equal(chunks(), 524_288);
	const small = Promise.resolve(blobs.size?.());
	await settled();
	const overtaking = world.last.of(Kind.CALL)[1];
	assert.ok(overtaking);
	world.last.say(Kind.REPLY, 2 | 8, overtaking.frame, {}, writeValue(1));
	assert.equal(await small, 1);
	world.last.say(Kind.WINDOW, 2 | 8, sent.frame, { bytes: 2_000_000 });
	await settled();
	assert.equal(chunks(), sent.frame.total);
	world.last.say(Kind.REPLY, 2 | 8, sent.frame, {}, writeValue(true));
	assert.equal(await long, true);
});

test("a long answer is put together, and its sender asked for more in time", async () => {
	const { world, node } = await joined();
	const call = Promise.resolve(node.client("blobs").get?.());
	await settled();
	const [sent] = world.last.of(Kind.CALL);
	assert.ok(sent);
	const blob = writeValue(Uint8Array.from({ length: 1_500_000 }, (_, at) => at & 0xff));
	const total = new Uint8Array(8);
	new DataView(total.buffer).setBigUint64(0, BigInt(blob.length), true);
	world.last.say(Kind.REPLY, 2 | 4 | 8, sent.frame, {}, total);
	let allowed = 524_288;
	for (let at = 0; at < blob.length; at += 65_536) {
		const part = blob.subarray(at, at + 65_536);
		const isLast = at + part.length === blob.length;
		allowed += world.last.of(Kind.WINDOW).reduce((sum, { head }) => sum + (head.bytes as number), 0);
		world.last.said.length = 0;
		assert.ok(at + part.length <= allowed, "the sender may send what it does");
		world.last.say(Kind.CHUNK, 2 | 8 | (isLast ? 0 : 4), sent.frame, {}, part);
		await settled();
	}
	const value = (await call) as Uint8Array;
	assert.equal(value.length, 1_500_000);
	assert.equal(value[1_499_999], 1_499_999 & 0xff);
});

test("garbage ends a link, never the program, and nothing that it states is allocated", async () => {
	const { world, node } = await joined();
	let seed = 7;
	const dice = (end: number): number => {
		seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
		return (seed >>> 8) % end;
	};
	const before = process.memoryUsage().arrayBuffers;
	for (let round = 0; round < 3_000; round++) {
		if (node.hub === undefined) {
			await world.pass(1_100);
		}
		const open = round % 3 === 0 ? Promise.resolve(node.client("a").b?.()).catch(() => {}) : undefined;
		await settled();
		const bytes = Uint8Array.from({ length: 16 + dice(40) }, () => dice(256));
		const view = new DataView(bytes.buffer);
		if (dice(4) > 0) {
			// A frame that is in order as far as its length and kind, and about exchanges that
			// there are.
			view.setUint32(0, bytes.length - 4, true);
			bytes[4] = 1 + dice(22);
			view.setUint16(6, dice(2) ? 0 : dice(bytes.length - 15), true);
			view.setUint32(8, dice(3), true);
			view.setUint32(12, 1 + dice(3), true);
		}
		world.last.raw(bytes);
		void open;
	}
	await world.pass(5_000);
	assert.equal(node.hub, "hub");
	assert.ok(node.statistics().lost > 100);
	assert.ok(process.memoryUsage().arrayBuffers - before < 200 * 2 ** 20);
	assert.deepEqual(world.reported, []);
});

test("a hub that refuses is not asked again", async () => {
	const world = new World();
	const joining = world.join({ joinTimeout: 60_000 });
	const refused = assert.rejects(joining, NameTaken);
	world.answer = (to, said) => {
		if (said.kind === Kind.HELLO) {
			to.say(Kind.ERROR, 0, { slot: 0, generation: 0 }, { number: 6 }, new TextEncoder().encode("page is taken"));
		}
	};
	await world.pass(60_000);
	await refused;
	assert.equal(world.connections.length, 1);
});

test("a hub that is not there is looked for as long as it was said", async () => {
	const world = new World();
	world.isUp = false;
	await assert.rejects(world.join(), LinkLost);
	const joining = world.join({ joinTimeout: 10_000 });
	await world.pass(5_000);
	world.isUp = true;
	await world.pass(2_000);
	assert.equal((await joining).hub, "hub");
});

test("what can't be done is told at the call, with its place and the fix", async () => {
	const { node } = await joined();
	const wrong = async (run: () => unknown, text: RegExp, kind = InvalidArgument): Promise<void> => {
		await assert.rejects(
			async () => run(),
			(error) => error instanceof kind && text.test(error.message),
		);
	};
	await wrong(
		() => node.publish("orders.new", { items: [1, { price: () => 1 }] }),
		/^value\['items'\]\[1\]\['price'\]: a function can't be sent/,
	);
	await wrong(() => node.publish("orders.*", 1), /token 2 holds a blank or a wildcard/);
	await wrong(() => node.client("a b"), /client: service: 'a b' is not allowed/);
	await wrong(() => node.client("a").with({ timeout: -1 }), /with: timeout: -1 is not allowed: give milliseconds/);
	await wrong(() => node.client("a").with({ headers: { "tw-x": "1" } }), /'tw-x' is not allowed/);
	await wrong(() => node.client("a").b?.(new Date(Number.NaN)), /a\.b\[0\]: an invalid Date/);
	await wrong(() => node.client("a").b?.(2n ** 64n), /a\.b\[0\]: an integer of more than 64 bits/);
	await wrong(() => node.client("a").b?.("\ud800"), /half a pair of surrogates/);
	const ring: unknown[] = [];
	ring.push(ring);
	await wrong(() => node.client("a").b?.(ring), /more than 64 containers, or contains itself/);
	await wrong(() => node.serve("math", { "a.b": () => 1 }), /method "a\.b" is not allowed/);
	await wrong(() => node.serve("math", {}), /it has no functions/);
	await node.close();
	await wrong(() => node.publish("a", 1), /the node was closed/, NodeStopped);
	await wrong(() => node.client("a").b?.(), /the node was closed/, NodeStopped);
});

// Promises: P13.112, P13.113.
test("a call that an instance has no capacity for goes to others within its time, and fails with the first reason", async () => {
	const world = new World();
	const { node } = await joined(world);
	const client = node.client("desk", { timeout: 1000, policy: "first" });
	/** Answers the last call, and gives its choice and the milliseconds that it has. */
	const answer = async (number: number, text = ""): Promise<[unknown, unknown]> => {
		await settled();
		const said = world.last.of(Kind.CALL).at(-1);
		assert.ok(said);
		if (number === 0) {
			world.last.say(Kind.REPLY, 2 | 8, said.frame, {}, writeValue(text));
		} else {
			world.last.say(Kind.FAIL, 2 | 8, said.frame, { number }, new TextEncoder().encode(text));
		}
		await settled();
		return [said.head.choice, said.head.deadlineMs];
	};
	const spilled = Promise.resolve(client.hold?.());
	await settled();
	await world.pass(300);
	assert.deepEqual(await answer(OVERLOADED, "Berlin is full"), [1, 1000]);
	assert.deepEqual(await answer(0, "paris"), [3, 700]);
	assert.equal(await spilled, "paris");

	for (const again of [false, true]) {
		const refused = Promise.resolve(client.with({ idempotent: again }).hold?.());
		refused.catch(() => {});
		assert.deepEqual(await answer(OVERLOADED, "Berlin is full"), [1, 1000]);
		assert.equal((await answer(OVERLOADED, "Paris is full"))[0], 3);
		assert.equal((await answer(NO_RESPONDERS, "nobody is left"))[0], 3);
		await assert.rejects(refused, (error) => error instanceof Overloaded && /Berlin is full/.test(error.message));
	}
	// A function of the caller stays at its hub, and a request on a subject is for one subscriber.
	const calls = (): number => world.last.of(Kind.CALL).length;
	for (const ask of [() => Promise.resolve(client.hold?.(() => 1)), () => node.request("desk.hold", 1)]) {
		const before = calls();
		const refused = ask();
		refused.catch(() => {});
		while (calls() === before) {
			await settled();
		}
		await answer(OVERLOADED, "Berlin is full");
		await assert.rejects(refused, Overloaded);
		assert.equal(calls(), before + 1);
	}
});

test("more is never open than the hub allows, and each slot comes back", async () => {
	const world = new World();
	world.welcome = { "in-flight": "16" };
	const { node } = await joined(world);
	const calls = Array.from({ length: 15 }, () => Promise.resolve(node.client("a").b?.()));
	await settled();
	await assert.rejects(Promise.resolve(node.client("a").b?.()), LimitExceeded);
	for (const { frame } of world.last.of(Kind.CALL)) {
		world.last.say(Kind.REPLY, 2 | 8, frame, {}, writeValue(1));
	}
	assert.equal((await Promise.all(calls)).length, 15);
	assert.equal(node.statistics().open.mine, 1);
});

test("a message that can't be read is left out, and the link stays", async () => {
	const { world, node } = await joined();
	const reading = node.subscription("news");
	const first = reading.next();
	await settled();
	const heard: unknown[] = [];
	await node.subscribe("news", (value) => heard.push(value));
	const say = (payload: Uint8Array): void =>
		world.last.say(
			Kind.PUBLISH,
			2,
			{ slot: 0, generation: 0 },
			{ origin: 0, to: { slot: 0, generation: 0 }, subject: "news", fields: [] },
			payload,
		);
	say(Uint8Array.of(0xc1));
	say(writeValue("good"));
	assert.equal((await first).value?.value, "good");
	await settled();
	assert.deepEqual(heard, ["good"]);
	assert.equal(world.reported.length, 2);
	assert.equal(node.statistics().lost, 0);
});

test("a URL of NATS is refused with the hub to start", async () => {
	const { shell } = new World();
	const places = [
		["nats://ann:secret@one:4222,two:4222?name=x", "nats://one:4222,two:4222"],
		["tls://one", "tls://one"],
	] as const;
	for (const [url, place] of places) {
		const message =
			`connect: url: '${place}' is no hub: run \`tidewire up ` + `--nats ${place} --listen ws://127.0.0.1:7421\``;
		await assert.rejects(
			async () => join(shell, url),
			(error) => {
				assert.ok(error instanceof InvalidArgument);
				assert.equal(error.message, message);
				return true;
			},
		);
	}
});

test("what strangers have announced to an older hub is skipped and counted", async () => {
	const { world, node } = await joined();
	const method = { name: "quote" };
	const info = { name: "shop", methods: [method], instances: ["one"] };
	const asked = node.services();
	await settled();
	const [sent] = world.last.of(Kind.CALL);
	assert.equal(sent?.head.subject, "$hub.services");
	const listed = Buffer.concat([
		entry("svc.shop.one.*", { service: info }),
		entry("svc.shop.two.*", { service: info }),
		entry("svc.shop.two.*", { service: { ...info, instances: ["two"], methods: [null] } }),
		entry("svc.shop.two.*", { service: 7 }),
		entry("agent.ann", { agent: { id: "ann" } }),
		entry("news", {}),
	]);
	world.last.say(Kind.REPLY, 2 | 8, (sent as Said).frame, {}, writeValue(Uint8Array.from(listed)));
	assert.deepEqual(
		(await asked).map(({ name, instances }) => [name, instances]),
		[["shop", ["one"]]],
	);
	assert.equal(node.statistics().skipped, 3);
});

function entry(pattern: string, says: Record<string, unknown>): Buffer {
	const encoder = new TextEncoder();
	const fields = fieldBytes(Object.entries(says).map(([name, value]) => [name, encoder.encode(JSON.stringify(value))]));
	const sized = (text: string): Buffer => Buffer.from([text.length, 0, ...encoder.encode(text)]);
	const rest = Buffer.alloc(8);
	rest.writeUInt32LE(fields.length, 4);
	return Buffer.concat([sized("ann"), sized(""), sized(pattern), rest, fields]);
}
