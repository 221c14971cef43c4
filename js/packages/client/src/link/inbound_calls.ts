/** The calls of the other side of a link: from the frame that opens one to its answer. */

import { LimitExceeded, PayloadTooLarge, WireError } from "../generated/errors.js";
import { LINK_QUEUE_BYTES } from "../generated/limits.js";
import { encode } from "../text.js";
import type { Frame, Head, Id } from "../wire/frames.js";
import { Kind } from "../wire/frames.js";
import type { Assemblies } from "./assembly.js";
import type { Agreed, Callee, SessionEvents } from "./exchanges.js";
import { inLane, type Outbox } from "./outbox.js";
import type { Timer, Timers } from "./timers.js";

interface InboundExchange {
	readonly generation: number;
	readonly lane: number;
	/** The number of the node that called. */
	origin: number;
	isOpen: boolean;
	callee: Callee | undefined;
	credit: number;
	unread: boolean;
	timer: Timer | undefined;
}

const ALIVE_LEAST_MS = 50;
const UNTAKEN =
	"link_queue_bytes: the answer was not taken, and others need the room: read faster, or ask for less at a time";
const NODE_STOPPED = 13;
const LIMIT_EXCEEDED = 14;
const PAYLOAD_TOO_LARGE = 18;

export class InboundCalls {
	/** True if no new calls are taken. */
	isLeaving = false;
	private readonly calls = new Map<number, InboundExchange>();

	constructor(
		private readonly agreed: Agreed,
		private readonly timers: Timers,
		private readonly events: SessionEvents,
		private readonly out: Outbox,
		private readonly parts: Assemblies,
	) {}

	get size(): number {
		return this.calls.size;
	}

	/** True if a call is open. */
	has(id: Id): boolean {
		return this.open(id) !== undefined;
	}

	// Frames of this side

	reply(id: Id, payload: Uint8Array): void {
		const theirs = this.open(id);
		if (theirs !== undefined) {
			this.fits(payload.length);
			this.makeRoom(payload.length, theirs.origin);
			this.end(id, theirs);
			this.out.send(Kind.REPLY, inLane(theirs.lane, true), id, {}, payload, -1, theirs.origin);
		}
	}

	/** Sends one item of an answer; the caller checks the credit. */
	item(id: Id, payload: Uint8Array): void {
		const theirs = this.open(id);
		if (theirs !== undefined) {
			this.fits(payload.length);
			this.out.send(Kind.ITEM, inLane(theirs.lane, true), id, {}, payload, -1, theirs.origin);
		}
	}

	/**
	 * True if an item may be sent now; false if the outbox must be written first. An item of a
	 * call that has ended may be sent, and is dropped.
	 */
	hasCapacity(id: Id): boolean {
		const theirs = this.open(id);
		return theirs === undefined || !this.out.holdsBack(id, theirs.origin);
	}

	/**
	 * If there is no room for a payload to the node of a number, it is taken from nodes that don't
	 * take their answers: those fail.
	 *
	 * @throws LimitExceeded if there is none all the same.
	 */
	makeRoom(payload: number, called: number): void {
		for (const { id, lane } of this.out.makeRoom(payload, called)) {
			this.out.send(Kind.FAIL, inLane(lane, true), id, { number: LIMIT_EXCEEDED }, encode(UNTAKEN));
		}
		if (payload > this.out.chunkBytes && this.out.bytes > LINK_QUEUE_BYTES) {
			throw new LimitExceeded(
				`link_queue_bytes=${LINK_QUEUE_BYTES}: so much waits to be sent already: try again later`,
			);
		}
	}

	endItems(id: Id): void {
		const theirs = this.open(id);
		if (theirs !== undefined) {
			this.end(id, theirs);
			this.out.send(Kind.END, inLane(theirs.lane, true), id, {});
		}
	}

	fail(id: Id, number: number, payload: Uint8Array): void {
		const theirs = this.open(id);
		if (theirs !== undefined) {
			this.end(id, theirs);
			if (payload.length <= this.out.chunkBytes) {
				this.out.drop(id, true);
			}
			this.out.send(Kind.FAIL, inLane(theirs.lane, true), id, { number }, payload, -1, theirs.origin);
		}
	}

	/** Refuses a payload that the other side does not take. */
	fits(bytes: number): void {
		const max = this.agreed.theirPayloadBytes;
		if (bytes > max) {
			throw new PayloadTooLarge(
				`a payload of ${bytes} bytes is longer than payload_bytes=${max} of the hub: send less at once, or use a stream`,
			);
		}
	}

	// Frames of the other side

	/** A payload begins that opens an exchange. */
	openSlot({ slot, generation, lane }: Frame): void {
		if (slot >= this.agreed.ownInFlight) {
			throw new LimitExceeded(`link_in_flight=${this.agreed.ownInFlight}: slot ${slot} is beyond it`);
		}
		if (generation === 0 || this.calls.has(slot)) {
			throw new WireError(`slot ${slot} is in use, or its generation is 0`);
		}
		this.calls.set(slot, {
			generation,
			lane,
			origin: 0,
			isOpen: false,
			callee: undefined,
			credit: 0,
			unread: false,
			timer: undefined,
		});
	}

	/** A publication in a slot has arrived: nothing answers it. */
	published({ slot }: Frame): void {
		this.calls.delete(slot);
	}

	/** A call is here with all that belongs to it. */
	called(id: Id, lane: number, head: Head, payload: Uint8Array, now: number): void {
		const theirs = this.calls.get(id.slot);
		if (theirs?.generation !== id.generation) {
			return;
		}
		theirs.isOpen = true;
		theirs.origin = head.origin ?? 0;
		if (this.isLeaving) {
			this.fail(id, NODE_STOPPED, encode("the node takes no new calls"));
			return;
		}
		const { origin, to, subject, fields, deadlineMs, credit } = head as Required<Head>;
		const callee = this.events.called({ id, origin, to, subject, fields, payload, deadlineMs, credit, lane }, now);
		if (callee === undefined || !this.has(id)) {
			return;
		}
		theirs.callee = callee;
		const beat = this.agreed.heartbeatMs / 2;
		const every = Math.max(ALIVE_LEAST_MS, deadlineMs > 0 ? Math.min(beat, deadlineMs / 4) : beat);
		theirs.timer = this.timers.add(now + every, (at) => this.alive(id, theirs, every, at));
		if (theirs.credit > 0) {
			callee.credited(theirs.credit);
		}
		if (theirs.unread) {
			callee.credited(0);
		}
	}

	credited(frame: Frame, items: number): void {
		const theirs = frame.answer ? undefined : this.of(frame);
		if (theirs?.isOpen) {
			theirs.callee?.credited(items);
		} else if (theirs !== undefined) {
			theirs.credit += items;
			theirs.unread ||= items === 0;
		}
	}

	cancelled(frame: Frame): void {
		const theirs = this.of(frame);
		// Drops queued parts of the answer, too: the caller does not ask for them.
		this.out.drop(frame, true);
		if (theirs !== undefined) {
			this.end(frame, theirs);
			theirs.callee?.cancelled();
		}
	}

	/** A payload that this side does not take: its sender is notified. */
	turnedAway(frame: Frame, error: Error): void {
		const theirs = this.of(frame);
		if (theirs !== undefined) {
			this.end(frame, theirs);
			theirs.callee?.cancelled();
			if (frame.kind !== Kind.PUBLISH) {
				const number = error instanceof PayloadTooLarge ? PAYLOAD_TOO_LARGE : LIMIT_EXCEEDED;
				this.out.send(Kind.FAIL, inLane(theirs.lane, true), frame, { number }, encode(error.message));
			}
		}
	}

	/** The link has ended. */
	lost(): void {
		for (const theirs of this.calls.values()) {
			this.timers.cancel(theirs.timer);
			theirs.callee?.cancelled();
		}
		this.calls.clear();
	}

	private of(id: Id): InboundExchange | undefined {
		const theirs = this.calls.get(id.slot);
		return theirs?.generation === id.generation ? theirs : undefined;
	}

	private open(id: Id): InboundExchange | undefined {
		const theirs = this.of(id);
		return theirs?.isOpen ? theirs : undefined;
	}

	private end(id: Id, theirs: InboundExchange): void {
		this.timers.cancel(theirs.timer);
		this.calls.delete(id.slot);
		this.parts.forget(id, false);
	}

	private alive(id: Id, theirs: InboundExchange, every: number, now: number): void {
		theirs.timer = this.timers.add(now + every, (at) => this.alive(id, theirs, every, at));
		if (this.out.bytes <= LINK_QUEUE_BYTES) {
			this.out.send(Kind.ALIVE, inLane(theirs.lane, true), id, { blockedMs: 0 });
		}
	}
}
