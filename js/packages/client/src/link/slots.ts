/** The exchanges of one side of a link: slots that are used again under other generations. */
import type { Id } from "../wire/frames.js";

interface Slot<T> {
	generation: number;
	value: T | undefined;
}

/** Those that this side opened. */
export class Slots<T> {
	private readonly slots: Slot<T>[] = [];
	private readonly free: number[] = [];
	private count = 0;

	/** @param max How many there may be at once. */
	constructor(readonly max: number) {}

	get size(): number {
		return this.count;
	}

	/** Takes a slot; undefined if all are in use. */
	insert(value: T): Id | undefined {
		const free = this.free.pop();
		const slot = free ?? this.slots.length;
		if (free === undefined) {
			if (slot >= this.max) {
				return undefined;
			}
			this.slots.push({ generation: 0, value: undefined });
		}
		const entry = this.slots[slot] as Slot<T>;
		// No id is 0, and no slot has the same generation twice in a row.
		entry.generation = entry.generation === 0xffff_ffff ? 1 : entry.generation + 1;
		entry.value = value;
		this.count++;
		return { slot, generation: entry.generation };
	}

	get(id: Id): T | undefined {
		const entry = this.slots[id.slot];
		return entry !== undefined && entry.generation === id.generation ? entry.value : undefined;
	}

	/** Ends an exchange. Its slot is free at once. */
	remove(id: Id): void {
		if (this.retire(id)) {
			this.release(id.slot);
		}
	}

	/**
	 * Ends an exchange. Its slot is free once it is released: when the frame that says so is on the
	 * wire.
	 */
	retire(id: Id): boolean {
		const entry = this.slots[id.slot];
		if (entry === undefined || entry.generation !== id.generation || entry.value === undefined) {
			return false;
		}
		entry.value = undefined;
		return true;
	}

	release(slot: number): void {
		this.free.push(slot);
		this.count--;
	}

	*values(): Generator<T> {
		for (const { value } of this.slots) {
			if (value !== undefined) {
				yield value;
			}
		}
	}
}
