/**
 * Stories of what a page does before the later part of the client is loaded: this file is a process
 * of its own, in which nothing has loaded it yet.
 */
import assert from "node:assert/strict";
import test from "node:test";
import { CallCancelled, InvalidArgument, RemoteError } from "../src/generated/errors.js";
import type { Node } from "../src/node.js";
import { readValue, Unloaded } from "../src/values/reader.js";
import { writeValue } from "../src/values/writer.js";
import { Kind } from "../src/wire/frames.js";
import { type Said, settled, World } from "./virtual.js";

const MOMENT = new Date(1_700_000_000_000);
const ANSWER = 2 | 8;

async function joined(): Promise<{ world: World; node: Node }> {
	const world = new World();
	const joining = world.join();
	await world.pass(0);
	return { world, node: await joining };
}

/** The frame of the call that is made next; loading is not of the virtual clock. */
async function sent(world: World, kind: Kind = Kind.CALL): Promise<Said> {
	for (let turn = 0; turn < 1000; turn++) {
		await settled();
		const [said] = world.last.of(kind);
		if (said !== undefined) {
			return said;
		}
	}
	throw new Error(`no frame of kind ${kind} came`);
}

test("a call for what was never given is told so", async () => {
	const { world } = await joined();
	const head = { origin: 5, to: { slot: 0, generation: 0 }, deadlineMs: 1000, choice: 0, credit: 0, fields: [] };
	world.last.say(Kind.CALL, 2, { slot: 3, generation: 1 }, { ...head, subject: "$node.3.abc.call" }, writeValue(null));
	const fail = await sent(world, Kind.FAIL);
	assert.equal(fail.head.number, 30);
	assert.match(Buffer.from(fail.frame.payload).toString(), /\$node\.3\.abc\.call: this node has given nothing/);
});

test("answers and errors with values of rare kinds are read once those are loaded", async () => {
	assert.throws(() => readValue(writeValue(MOMENT)), Unloaded);
	const { world, node } = await joined();
	const pricing = node.client("pricing");
	const answer = Promise.resolve(pricing.last?.());
	const failed = assert.rejects(
		Promise.resolve(pricing.fail?.()),
		(raised) => raised instanceof RemoteError && raised.typeName === "shop:Late",
	);
	await settled();
	const calls = new Map(world.last.of(Kind.CALL).map(({ head, frame }) => [head.subject, frame]));
	const [one, other] = ["last", "fail"].map((name) => calls.get(`svc.pricing.${name}`));
	assert.ok(one && other);
	const error = Object.assign(new RemoteError("no"), { typeName: "shop:Late", due: MOMENT });
	world.last.say(Kind.REPLY, ANSWER, one, {}, writeValue({ at: MOMENT }));
	world.last.say(Kind.FAIL, ANSWER, other, { number: 15 }, writeValue(error));
	assert.throws(() => readValue(writeValue(MOMENT)), Unloaded);
	assert.deepEqual(await answer, { at: MOMENT });
	await failed;
	assert.deepEqual(readValue(writeValue(MOMENT)), MOMENT);
});

test("a stream is asked for once the code that reads it is loaded, and its items come in order", async () => {
	const { world, node } = await joined();
	const items: unknown[] = [];
	const read = (async () => {
		for await (const item of node.client("pricing").ticks?.() ?? []) {
			items.push(item);
		}
	})();
	const { frame } = await sent(world);
	world.last.say(Kind.ITEM, ANSWER, frame, {}, writeValue(MOMENT));
	world.last.say(Kind.ITEM, ANSWER, frame, {}, writeValue(2));
	world.last.say(Kind.END, ANSWER, frame, {});
	await read;
	assert.deepEqual(items, [MOMENT, 2]);
});

test("a call that gives a function waits for what answers calls, unless its signal ends it", async () => {
	const { world, node } = await joined();
	const shop = node.client("shop");
	void Promise.resolve(shop.pack?.(3, () => {})).catch(() => {});
	const { frame } = await sent(world);
	const [boxes] = readValue(frame.payload, () => "given") as unknown[];
	assert.equal(boxes, 3);
	assert.equal(node.statistics().remote.given, 1);

	const gone = new AbortController();
	const other = (await joined()).node;
	const cut = Promise.resolve(
		other
			.client("shop")
			.with({ signal: gone.signal })
			.pack?.(() => {}),
	);
	gone.abort(new CallCancelled("gone"));
	await assert.rejects(cut, CallCancelled);
	await assert.rejects(Promise.resolve(node.client("shop").pack?.(new (class Box {})())), InvalidArgument);
});
