/** The send queue of a link: frames by lane, long payloads in chunks, bounded in bytes. */

import { LINK_QUEUE_BYTES, LINK_WINDOW_BYTES } from "../generated/limits.js";
import type { Parts } from "../platform/shell.js";
import { Queue } from "../queue.js";
import { FIXED, Flag, type Head, type Id, Kind, NORMAL, putFixed, writeFrame } from "../wire/frames.js";

const LANES = 4;
/** Frames that go in one message together. */
const MESSAGE_BYTES = 65_536;
/** Share of the items for one node in the capacity that remains for items. */
const ITEM_SHARE = 3;
/** Size of a frame that reports a dropped answer. */
const TOLD_BYTES = 256;

interface QueuedFrame {
	readonly bytes: Uint8Array;
	/** The slot that is free once this is on the wire; -1: none. */
	readonly ends: number;
	/** A payload whose chunks follow this frame. */
	readonly opens?: Transfer;
}

/** A long payload on its way. */
interface Transfer {
	readonly id: Id;
	readonly answer: boolean;
	readonly lane: number;
	readonly payload: Uint8Array;
	readonly kind: Kind;
	/** The number of the node whose call it answers; 0: it answers none. */
	readonly called: number;
	at: number;
	window: number;
	/** Frames of its exchange, or of the publications in its lane, that follow it. */
	readonly behind: QueuedFrame[];
}

interface Lane {
	readonly frames: Queue<QueuedFrame>;
	readonly transfers: Queue<Transfer>;
	/** Publications go in order: one long payload at a time. */
	publishing: Transfer | undefined;
}

export class Outbox {
	private readonly lanes: Lane[] = Array.from({ length: LANES }, () => ({
		frames: new Queue<QueuedFrame>(),
		transfers: new Queue<Transfer>(),
		publishing: undefined,
	}));
	/** Long payloads by exchange and side. */
	private readonly transfers = new Map<string, Transfer>();
	/** Bytes that wait. */
	bytes = 0;

	/**
	 * @param chunkBytes The longest payload that goes in one frame.
	 * @param release Called with a slot that is free.
	 */
	constructor(
		readonly chunkBytes: number,
		private readonly release: (slot: number) => void,
	) {}

	/**
	 * Sends a frame, in chunks if its payload is long. `ends`: the slot that is free once it is on
	 * the wire; `called`: the number of the node whose call it answers.
	 */
	send(kind: Kind, flags: number, id: Id, head: Head, payload?: Uint8Array, ends = -1, called = 0): void {
		const lane = this.lanes[flags & Flag.LANE] as Lane;
		const isPublished = kind === Kind.PUBLISH;
		const isLong = payload !== undefined && payload.length > this.chunkBytes && kind !== Kind.CHUNK;
		let opens: Transfer | undefined;
		let bytes: Uint8Array;
		if (isLong) {
			const total = new Uint8Array(8);
			new DataView(total.buffer).setBigUint64(0, BigInt(payload.length), true);
			bytes = writeFrame(kind, flags | Flag.MORE, id, head, total);
			const answer = (flags & Flag.ANSWER) !== 0;
			opens = {
				id,
				answer,
				lane: flags & Flag.LANE,
				payload,
				kind,
				called,
				at: 0,
				window: LINK_WINDOW_BYTES,
				behind: [],
			};
			this.bytes += payload.length;
		} else {
			bytes = writeFrame(kind, flags, id, head, payload);
		}
		this.bytes += bytes.length;
		const waiting: QueuedFrame = opens === undefined ? { bytes, ends } : { bytes, ends, opens };
		const before = isPublished
			? lane.publishing
			: this.transfers.size > 0
				? this.transfers.get(keyOf(id, flags))
				: undefined;
		// Only the end of an exchange overtakes its own long payload: the rest of that does not
		// come.
		if (before !== undefined && !OVERTAKES.has(kind)) {
			before.behind.push(waiting);
		} else {
			this.queue(lane, waiting);
		}
	}

	/** Drops a long payload, and the frames behind it, as its exchange has ended. */
	drop(id: Id, answer: boolean): void {
		if (this.transfers.size === 0) {
			return;
		}
		const transfer = this.transfers.get(keyOf(id, answer ? Flag.ANSWER : 0));
		if (transfer !== undefined) {
			transfer.behind.length = 0;
			this.bytes -= remainingOf(transfer);
			transfer.at = transfer.payload.length;
			this.finish(transfer);
		}
	}

	/** The receiver of a long payload takes so many further bytes. */
	window(id: Id, answer: boolean, bytes: number): void {
		const transfer = this.transfers.get(keyOf(id, answer ? Flag.ANSWER : 0));
		if (transfer !== undefined) {
			transfer.window += bytes;
		}
	}

	/** How much of what one exchange sends waits behind its long payload, or is that itself. */
	waitingOf(id: Id, answer: boolean): number {
		const transfer = this.transfers.size > 0 ? this.transfers.get(keyOf(id, answer ? Flag.ANSWER : 0)) : undefined;
		return transfer === undefined ? 0 : remainingOf(transfer);
	}

	/**
	 * True if the next item of an answer to the node `called` is to wait. It waits while an item
	 * before it does, while items take more than half of the queue, or while items for that node
	 * take more than its share of that half. The other half is for urgent frames.
	 */
	holdsBack(id: Id, called: number): boolean {
		if (this.bytes <= MESSAGE_BYTES) {
			return false;
		}
		const isItem = ({ kind }: Transfer): boolean => kind === Kind.ITEM;
		const items = this.bytes - this.untaken((transfer) => !isItem(transfer));
		const own = this.untaken((transfer) => isItem(transfer) && transfer.called === called);
		const half = LINK_QUEUE_BYTES / 2;
		return this.waitingOf(id, true) > 0 || items > half || own > ITEM_SHARE * (half - items);
	}

	/**
	 * Makes capacity for a payload to the node `called`, or to no node (0). It drops long answers
	 * of the node with the longest queue, the newest first, as long as more waits for that node
	 * than for `called`. Returns the dropped answers. If that does not make enough capacity,
	 * nothing is dropped (longest queue drop: Suter et al., IEEE INFOCOM 1998).
	 */
	makeRoom(payload: number, called: number): readonly { readonly id: Id; readonly lane: number }[] {
		if (this.bytes <= LINK_QUEUE_BYTES) {
			return [];
		}
		const own = payload + this.untaken((transfer) => transfer.called === called);
		const stuck = [...this.transfers.values()].filter((one) => isStuck(one) && one.called !== called);
		const waiting = new Map<number, number>();
		for (const one of stuck) {
			waiting.set(one.called, (waiting.get(one.called) ?? 0) + remainingOf(one));
		}
		const beyond = [...waiting.values()].reduce((sum, bytes) => sum + Math.max(0, bytes - own), 0);
		const dropped: Transfer[] = [];
		// Each dropped answer needs capacity for its FAIL.
		while (this.bytes <= LINK_QUEUE_BYTES + beyond && this.bytes + dropped.length * TOLD_BYTES > LINK_QUEUE_BYTES) {
			const [most, bytes] = [...waiting].reduce((one, other) => (other[1] > one[1] ? other : one), [0, own]);
			const at = stuck.findLastIndex((one) => one.called === most);
			const newest = bytes > own ? stuck.splice(at, 1)[0] : undefined;
			if (newest === undefined) {
				break;
			}
			waiting.set(most, bytes - remainingOf(newest));
			this.drop(newest.id, true);
			dropped.push(newest);
		}
		return dropped;
	}

	/** Bytes of long payloads that wait. */
	private untaken(of: (transfer: Transfer) => boolean): number {
		let bytes = 0;
		for (const transfer of this.transfers.values()) {
			bytes += of(transfer) ? remainingOf(transfer) : 0;
		}
		return bytes;
	}

	/** The next message; undefined if nothing may be sent now. */
	take(): Parts | undefined {
		const parts: Uint8Array[] = [];
		let length = 0;
		for (const lane of this.lanes) {
			for (let next = lane.frames.first; next !== undefined; next = lane.frames.first) {
				if (length > 0 && length + next.bytes.length > MESSAGE_BYTES) {
					return parts;
				}
				lane.frames.shift();
				this.sent(lane, next);
				parts.push(next.bytes);
				length += next.bytes.length;
			}
			if (length > 0) {
				continue;
			}
			const chunk = this.chunk(lane);
			if (chunk !== undefined) {
				return chunk;
			}
		}
		return length > 0 ? parts : undefined;
	}

	private sent(lane: Lane, waiting: QueuedFrame): void {
		this.bytes -= waiting.bytes.length;
		if (waiting.ends >= 0) {
			this.release(waiting.ends);
		}
		if (waiting.opens !== undefined && waiting.opens.at < waiting.opens.payload.length) {
			lane.transfers.push(waiting.opens);
		}
	}

	/** The next chunk of a lane: its long payloads take turns. */
	private chunk(lane: Lane): Parts | undefined {
		for (let turns = lane.transfers.size; turns > 0; turns--) {
			const transfer = lane.transfers.shift() as Transfer;
			const remaining = transfer.payload.length - transfer.at;
			const bytes = Math.min(this.chunkBytes, transfer.window, remaining);
			if (remaining === 0) {
				continue;
			}
			if (bytes <= 0) {
				lane.transfers.push(transfer);
				continue;
			}
			const fixed = new Uint8Array(FIXED);
			const flags = transfer.lane | (transfer.answer ? Flag.ANSWER : 0) | (bytes < remaining ? Flag.MORE : 0);
			putFixed(new DataView(fixed.buffer), Kind.CHUNK, flags, transfer.id, 0, bytes);
			const part = transfer.payload.subarray(transfer.at, transfer.at + bytes);
			transfer.at += bytes;
			transfer.window -= bytes;
			this.bytes -= bytes;
			if (bytes < remaining) {
				lane.transfers.push(transfer);
			} else {
				this.finish(transfer);
			}
			return [fixed, part];
		}
		return undefined;
	}

	/** Queues the frames that follow a long payload. */
	private finish(transfer: Transfer): void {
		const lane = this.lanes[transfer.lane] as Lane;
		this.transfers.delete(keyOf(transfer.id, transfer.answer ? Flag.ANSWER : 0));
		if (transfer.kind === Kind.PUBLISH) {
			this.release(transfer.id.slot);
		}
		if (lane.publishing === transfer) {
			lane.publishing = undefined;
		}
		const behind = transfer.behind.splice(0);
		for (const [at, waiting] of behind.entries()) {
			this.queue(lane, waiting);
			if (waiting.opens !== undefined) {
				waiting.opens.behind.push(...behind.slice(at + 1));
				break;
			}
		}
	}

	private queue(lane: Lane, waiting: QueuedFrame): void {
		lane.frames.push(waiting);
		if (waiting.opens !== undefined) {
			this.transfers.set(keyOf(waiting.opens.id, waiting.opens.answer ? Flag.ANSWER : 0), waiting.opens);
			if (waiting.opens.kind === Kind.PUBLISH) {
				lane.publishing = waiting.opens;
			}
		}
	}
}

function remainingOf({ payload, at }: Transfer): number {
	return payload.length - at;
}

/** True if a transfer is a whole answer that waits for its receiver. */
function isStuck({ called, window, kind }: Transfer): boolean {
	return called !== 0 && window === 0 && (kind === Kind.REPLY || kind === Kind.FAIL);
}

const OVERTAKES: ReadonlySet<number> = new Set([Kind.CANCEL, Kind.FAIL, Kind.CREDIT, Kind.WINDOW, Kind.ALIVE]);

/** The flags of a control frame of a lane. */
export function inLane(lane: number = NORMAL, answer = false): number {
	return lane | (answer ? Flag.ANSWER : 0);
}

function keyOf(id: Id, flags: number): string {
	return `${id.slot}/${id.generation}/${flags & Flag.ANSWER}`;
}
