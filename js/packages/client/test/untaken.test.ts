/** Stories in virtual time of answers that their callers do not take. */
import assert from "node:assert/strict";
import test from "node:test";
import { LINK_QUEUE_BYTES } from "../src/generated/limits.js";
import type { Node } from "../src/node.js";
import { decodeLenient } from "../src/text.js";
import { writeValue } from "../src/values/writer.js";
import { type Frame, Kind } from "../src/wire/frames.js";
import { type Said, World } from "./virtual.js";

const MIB = 2 ** 20;
const LIMIT_EXCEEDED = 14;
const FLAGS = 2;

/** A node that serves long answers, and nodes of other numbers that call it. */
class Stage {
	private slots = 0;

	private constructor(
		readonly world: World,
		readonly node: Node,
		private readonly to: Frame,
	) {}

	static async set(): Promise<Stage> {
		const world = new World();
		const joining = world.join();
		await world.pass(0);
		const node = await joining;
		const long = new Uint8Array(MIB);
		await node.serve("shelf", {
			long: () => long,
			short: () => "short",
			async *items() {
				for (;;) {
					yield long;
				}
			},
		});
		const to = world.last.of(Kind.SUBSCRIBE).find(({ head }) => head.pattern === "svc.shelf.*");
		assert.ok(to);
		return new Stage(world, node, to.frame);
	}

	/** Calls for a node of a number, and gives the slot of the call. */
	async call(origin: number, method: string, credit = 0): Promise<number> {
		const slot = this.slots++;
		const { slot: at, generation } = this.to;
		const head = { origin, to: { slot: at, generation }, deadlineMs: 0, choice: 0, credit, fields: [] };
		const subject = `svc.shelf.${method}`;
		this.world.last.say(Kind.CALL, FLAGS, { slot, generation: 1 }, { ...head, subject }, writeValue([]));
		await this.world.pass(0);
		return slot;
	}

	/** The last frame about a call. */
	said(slot: number): Said | undefined {
		return this.world.last.said.findLast(({ frame }) => frame.answer && frame.slot === slot && frame.generation === 1);
	}

	/** Calls that were told that their answers were let go. */
	letGo(slots: readonly number[]): number[] {
		return slots.filter((slot) => this.said(slot)?.head.number === LIMIT_EXCEEDED);
	}

	get waiting(): number {
		return this.node.statistics().link.waitingBytes;
	}

	async calls(origin: number, method: string, count: number): Promise<number[]> {
		const slots: number[] = [];
		for (let n = 0; n < count; n++) {
			slots.push(await this.call(origin, method));
		}
		return slots;
	}
}

test("of a node that takes none of its answers the newest go when others need the room", async () => {
	const stage = await Stage.set();
	const greedy = await stage.calls(9, "long", 150);
	assert.ok(stage.waiting <= LINK_QUEUE_BYTES + MIB);
	// Alone it has all there is, and hears of each that found no room.
	const refused = stage.letGo(greedy).length;
	assert.ok(refused > 0 && refused < 30, `${refused} were refused`);
	const modest = await stage.calls(10, "long", 10);
	assert.deepEqual(stage.letGo(modest), []);
	const gone = stage.letGo(greedy);
	assert.ok(gone.length >= refused + 9, `${gone.length} after ${refused}`);
	assert.deepEqual(gone, greedy.slice(-gone.length), "the newest");
	assert.match(decodeLenient(stage.said(gone[0] as number)?.frame.payload ?? new Uint8Array()), /was not taken/);
	// A second one that takes nothing gets as much as the first.
	await stage.calls(11, "long", 150);
	assert.ok(stage.letGo(greedy).length > 75);
	const short = await stage.call(12, "short");
	assert.equal(stage.said(short)?.kind, Kind.REPLY);
	assert.ok(stage.waiting <= LINK_QUEUE_BYTES + MIB);
	assert.ok(stage.node.publish("news", 1), "what the node itself has to say has room");
	const own = Promise.resolve(stage.node.client("other").ask?.());
	await stage.world.pass(0);
	assert.equal(stage.world.last.of(Kind.CALL).length, 1);
	own.catch(() => {});
	assert.equal(stage.world.connections.length, 1, "the link stays");
});

test("an answer whose caller gives up, or is gone, waits no longer", async () => {
	const stage = await Stage.set();
	const slots = await stage.calls(9, "long", 20);
	assert.ok(stage.waiting > 10 * MIB);
	for (const slot of slots) {
		stage.world.last.say(Kind.CANCEL, FLAGS, { slot, generation: 1 }, {});
	}
	await stage.world.pass(0);
	assert.equal(stage.waiting, 0);
});

test("streams of long items that nobody takes leave room for streams that are read", async () => {
	const stage = await Stage.set();
	for (let n = 0; n < 100; n++) {
		await stage.call(9, "items", 100);
	}
	assert.ok(stage.waiting <= LINK_QUEUE_BYTES / 2 + MIB, `${stage.waiting} bytes wait`);
	const read = await stage.call(10, "items", 100);
	assert.equal(stage.said(read)?.frame.lane, FLAGS);
	const before = stage.world.last.said.filter(({ frame }) => frame.answer && frame.slot === read).length;
	stage.world.last.say(Kind.WINDOW, FLAGS, { slot: read, generation: 1 }, { bytes: 4 * MIB });
	await stage.world.pass(0);
	const after = stage.world.last.said.filter(({ frame }) => frame.answer && frame.slot === read).length;
	assert.ok(after > before + 16, `${after - before} frames`);
	assert.ok(stage.waiting <= LINK_QUEUE_BYTES / 2 + 2 * MIB);
});
