/** A lease in virtual time: when it is renewed, how long it is believed, and when it is lost. */
import assert from "node:assert/strict";
import test from "node:test";
import { HomeBusy, LeaseLost } from "../src/generated/errors.js";
import { Timers } from "../src/link/timers.js";
import type { Node } from "../src/node.js";
import { Lease } from "../src/streams/lease.js";

const TTL = 1_500;

/**
 * A hub that gives the lease, and says of each renewal what the test says; and a clock that stands
 * still.
 */
class World {
	time = 10;
	readonly renewals: number[] = [];
	released = 0;
	renew: () => Promise<void> = async () => {};
	/** Ends the stream that the hub holds the lease by. */
	end = (): void => {};
	private readonly timers = new Timers();

	async lease(): Promise<Lease> {
		const ended = new Promise<IteratorResult<number>>((resolve) => {
			this.end = () => resolve({ done: true, value: undefined });
		});
		let isFirst = true;
		const held = {
			next: async () => {
				const first = isFirst;
				isFirst = false;
				return first ? { done: false, value: 7 } : ended;
			},
			return: async () => {
				this.end();
				return { done: true, value: undefined };
			},
		};
		const client = {
			hold: () => ({ [Symbol.asyncIterator]: () => held }),
			act: async () => this.released++,
			call: async () => {
				this.renewals.push(this.time);
				await this.renew();
			},
		};
		const clock = {
			now: () => this.time,
			at: (at: number, run: () => void) => {
				const timer = this.timers.add(at, run);
				return () => this.timers.cancel(timer);
			},
		};
		return Lease.acquire({ name: "page", client: () => client } as unknown as Node, clock, "nightly", { ttl: TTL });
	}

	async pass(ms: number): Promise<void> {
		const until = this.time + ms;
		while (this.timers.next <= until) {
			this.time = Math.max(this.time, this.timers.next);
			this.timers.fire(this.time);
			await settled();
		}
		this.time = until;
	}
}

async function settled(): Promise<void> {
	for (let turn = 0; turn < 20; turn++) {
		await undefined;
	}
}

test("it is renewed every third of its time", async () => {
	const world = new World();
	const lease = await world.lease();
	assert.deepEqual([lease.fence, world.renewals], [7, [10]]);
	await world.pass(1_600);
	assert.deepEqual(world.renewals, [10, 510, 1_010, 1_510]);
	await lease.release();
	assert.equal(world.released, 1);
	await world.pass(10_000);
	assert.equal(world.renewals.length, 4);
});

test("a renewal that fails is tried again soon, and the lease is believed for no longer than its time", async () => {
	const world = new World();
	const lease = await world.lease();
	world.renew = async () => {
		throw new HomeBusy("later");
	};
	await world.pass(720);
	assert.deepEqual(world.renewals, [10, 510, 610, 710]);
	world.renew = async () => {};
	await world.pass(90);
	assert.deepEqual([world.renewals.at(-1), lease.isHeld], [810, true]);
	world.renew = () => new Promise(() => {});
	await world.pass(1_489);
	assert.deepEqual([world.time, lease.isHeld, lease.signal.aborted], [810 + TTL - 1, true, false]);
	await world.pass(1);
	assert.deepEqual([lease.isHeld, lease.signal.aborted], [false, true]);
	await assert.rejects(lease.release(), LeaseLost);
	assert.equal(world.released, 0);
});

test("timers that come late do not make it held for longer", async () => {
	const world = new World();
	const lease = await world.lease();
	world.time += TTL;
	assert.equal(lease.isHeld, false);
	assert.throws(() => lease.fence, LeaseLost);
	await world.pass(0);
	assert.ok(lease.signal.aborted);
});

test("it is lost when the hub lets it go, and when a renewal says so", async () => {
	for (const lose of [
		(world: World) => world.end(),
		(world: World) => {
			world.renew = async () => {
				throw new LeaseLost("another has it");
			};
		},
	]) {
		const world = new World();
		const lease = await world.lease();
		lose(world);
		await world.pass(600);
		assert.ok(lease.signal.aborted && !lease.isHeld);
		assert.ok(lease.signal.reason instanceof LeaseLost);
		await assert.rejects(lease[Symbol.asyncDispose](), LeaseLost);
		await world.pass(10_000);
		assert.ok(world.renewals.length <= 2);
	}
});
