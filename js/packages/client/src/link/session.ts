/**
 * Session: one link from WELCOME to its end, with exchanges, credit, deadlines and signs of life.
 * Time and frames are arguments.
 */

import type { TidewireError } from "../error.js";
import {
	AskTimeout,
	InvalidArgument,
	LimitExceeded,
	LinkLost,
	PayloadTooLarge,
	WireError,
} from "../generated/errors.js";
import { LINK_CHUNK_BYTES, LINK_QUEUE_BYTES } from "../generated/limits.js";
import type { Parts } from "../platform/shell.js";
import { decodeLenient } from "../text.js";
import {
	type Fields,
	Flag,
	type Frame,
	fieldBytes,
	fieldText,
	type Head,
	type Id,
	Kind,
	NORMAL,
	readFrames,
	readHead,
} from "../wire/frames.js";
import { inflate } from "../wire/lz4.js";
import { Assemblies, type Progress } from "./assembly.js";
import { type Agreed, type Caller, errorOfNumber, type Outgoing, type Peer, type SessionEvents } from "./exchanges.js";
import { InboundCalls } from "./inbound_calls.js";
import { inLane, Outbox } from "./outbox.js";
import { Slots } from "./slots.js";
import type { Timer, Timers } from "./timers.js";

type OutboundExchange =
	| {
			readonly is: "call";
			readonly caller: Caller;
			readonly lane: number;
			credit: number;
			timer: Timer | undefined;
			blockedMs: number | null;
	  }
	| {
			readonly is: "subscription";
			readonly answered: (error?: TidewireError) => void;
			isOpen: boolean;
	  }
	| { readonly is: "published" };

const NO_ID: Id = { slot: 0, generation: 0 };
const FRAME_ROOM = 20_480;
/**
 * The numbers of PING: a sign of life, and from the second one on the question whether all has
 * arrived.
 */
const HEARTBEAT: Id = { slot: 1, generation: 0 };
const PAYLOADS = new Set<number>([Kind.CALL, Kind.PUBLISH, Kind.REPLY, Kind.FAIL, Kind.ITEM]);

export class Session {
	private readonly out: Outbox;
	private readonly mine: Slots<OutboundExchange>;
	/** The calls of the other side. */
	readonly theirs: InboundCalls;
	private readonly parts: Assemblies;
	private readonly peers = new Map<number, Peer>();
	private readonly pongs = new Map<number, () => void>();
	private pings = 1;
	private heardAt: number;
	private sentAt: number;
	private dueAt: number;
	private ended = false;
	/** Payload bytes and frames that went both ways. */
	readonly counts = { sent: 0, received: 0, dropped: 0 };

	constructor(
		readonly agreed: Agreed,
		private readonly timers: Timers,
		private readonly events: SessionEvents,
		now: number,
	) {
		const chunk = Math.min(LINK_CHUNK_BYTES, agreed.theirFrameBytes - FRAME_ROOM);
		this.out = new Outbox(chunk, (slot) => this.mine.release(slot));
		this.mine = new Slots(agreed.inFlight);
		this.parts = new Assemblies(agreed.payloadBytes);
		this.theirs = new InboundCalls(agreed, timers, events, this.out, this.parts);
		this.heardAt = this.sentAt = now;
		this.dueAt = this.nextAt;
	}

	/** Exchanges that are open: those of this node, and those of others. */
	get open(): { readonly mine: number; readonly theirs: number } {
		return { mine: this.mine.size, theirs: this.theirs.size };
	}

	get waitingBytes(): number {
		return this.out.bytes;
	}

	peer(origin: number): Peer {
		return this.peers.get(origin) ?? { name: "", user: "" };
	}

	/** The next message to send; undefined if nothing may be sent now. */
	take(now: number): Parts | undefined {
		const parts = this.out.take();
		if (parts !== undefined) {
			this.sentAt = now;
			this.counts.sent++;
		}
		return parts;
	}

	// Time

	/** When `tick` has something to do. */
	get nextAt(): number {
		return Math.min(this.heardAt + 2 * this.agreed.heartbeatMs, this.sentAt + this.pingMs);
	}

	private get pingMs(): number {
		return Math.min(this.agreed.theirHeartbeatMs, this.agreed.heartbeatMs) / 2;
	}

	/** Sends signs of life. False: the other side has been silent for too long. */
	tick(now: number): boolean {
		// A program that slept has heard nothing because it did not listen: the other side gets its
		// time anew.
		if (now - this.dueAt > this.agreed.heartbeatMs) {
			this.heardAt = now;
			this.sentAt = Number.NEGATIVE_INFINITY;
		}
		if (now >= this.heardAt + 2 * this.agreed.heartbeatMs) {
			return false;
		}
		if (now >= this.sentAt + this.pingMs) {
			this.sentAt = now;
			this.tell(Kind.PING, 0, HEARTBEAT);
		}
		this.dueAt = this.nextAt;
		return true;
	}

	// Frames of this side

	call(call: Outgoing, caller: Caller, now: number): Id {
		this.theirs.fits(call.payload.length);
		this.theirs.makeRoom(0, 0);
		if (this.out.bytes > LINK_QUEUE_BYTES) {
			throw new LimitExceeded(
				`link_queue_bytes=${LINK_QUEUE_BYTES}: so much waits to be sent already: try again later`,
			);
		}
		const mine: OutboundExchange = {
			is: "call",
			caller,
			lane: call.lane,
			credit: call.credit,
			timer: undefined,
			blockedMs: null,
		};
		const id = this.insert(mine);
		const { subject, fields, deadlineMs, choice, credit } = call;
		const head = {
			origin: 0,
			to: NO_ID,
			deadlineMs: Math.ceil(deadlineMs),
			choice,
			credit,
			subject,
			fields,
		};
		try {
			this.out.send(Kind.CALL, call.lane | (call.again ? Flag.AGAIN : 0), id, head, call.payload);
		} catch (error) {
			this.mine.remove(id);
			throw tooLong(error);
		}
		if (deadlineMs > 0) {
			mine.timer = this.timers.add(now + deadlineMs, () => this.late(id, subject, deadlineMs));
		}
		return id;
	}

	private late(id: Id, subject: string, ms: number): void {
		const mine = this.mine.get(id);
		if (mine?.is === "call") {
			this.cancel(id);
			const error = new AskTimeout(`${subject}: no answer within ${Math.round(ms)} ms`);
			error.blockedMs = mine.blockedMs;
			mine.caller.failed(error);
		}
	}

	/** Gives a call up. Nothing more is heard of it. */
	cancel(id: Id): void {
		const mine = this.mine.get(id);
		if (mine?.is === "call") {
			this.timers.cancel(mine.timer);
			this.mine.retire(id);
			this.parts.forget(id, true);
			this.out.drop(id, false);
			this.out.send(Kind.CANCEL, mine.lane, id, {}, undefined, id.slot);
		}
	}

	/** Takes further items of an answer; 0: none any more, and the other side is to end it. */
	want(id: Id, items: number): void {
		const mine = this.mine.get(id);
		if (mine?.is === "call") {
			mine.credit += items;
			this.tell(Kind.CREDIT, mine.lane, id, { items });
		}
	}

	subscribe(
		pattern: string,
		queue: string,
		listens: boolean,
		fields: Fields,
		answered: (error?: TidewireError) => void,
	): Id {
		const id = this.insert({ is: "subscription", answered, isOpen: false });
		this.out.send(Kind.SUBSCRIBE, NORMAL | (listens ? Flag.AGAIN : 0), id, { queue, pattern }, fieldBytes(fields));
		return id;
	}

	unsubscribe(id: Id): void {
		if (this.mine.get(id)?.is === "subscription" && this.mine.retire(id)) {
			this.out.send(Kind.UNSUBSCRIBE, NORMAL, id, {}, undefined, id.slot);
		}
	}

	/** Publishes. False: there was no room for it. */
	publish(subject: string, fields: Fields, payload: Uint8Array, lane: number): boolean {
		this.theirs.fits(payload.length);
		this.theirs.makeRoom(0, 0);
		if (this.out.bytes > LINK_QUEUE_BYTES) {
			this.counts.dropped++;
			return false;
		}
		const id = payload.length > this.out.chunkBytes ? this.insert({ is: "published" }) : NO_ID;
		try {
			this.out.send(Kind.PUBLISH, lane, id, { origin: 0, to: NO_ID, subject, fields }, payload);
		} catch (error) {
			this.mine.remove(id);
			throw tooLong(error);
		}
		return true;
	}

	/** Takes no new calls; those in progress go on. */
	goodbye(): void {
		if (!this.theirs.isLeaving) {
			this.theirs.isLeaving = true;
			this.tell(Kind.GOODBYE, 0, NO_ID);
		}
	}

	/** Calls `then` when all that was sent before has arrived. */
	arrived(then: () => void): void {
		this.pings++;
		this.pongs.set(this.pings, then);
		// Behind all that waits, whatever its lane.
		this.tell(Kind.PING, 3, { slot: this.pings, generation: 0 });
	}

	/** The link has ended: all exchanges fail. */
	lost(text: string): void {
		if (this.ended) {
			return;
		}
		this.ended = true;
		for (const mine of [...this.mine.values()]) {
			if (mine.is === "call") {
				this.timers.cancel(mine.timer);
				mine.caller.failed(new LinkLost(text));
			} else if (mine.is === "subscription" && !mine.isOpen) {
				mine.answered(new LinkLost(text));
			}
		}
		this.theirs.lost();
		for (const pong of this.pongs.values()) {
			pong();
		}
	}

	private insert(mine: OutboundExchange): Id {
		if (this.ended) {
			throw new LinkLost("the link to the hub is lost: try again once it is back");
		}
		const id = this.mine.insert(mine);
		if (id === undefined) {
			const whose = this.agreed.ofToken.includes("in-flight") ? " of the token" : "";
			throw new LimitExceeded(`link_in_flight=${this.mine.max}${whose}: so many calls are open already`);
		}
		return id;
	}

	private tell(kind: Kind, flags: number, id: Id, head: Head = {}): void {
		this.out.send(kind, flags, id, head);
	}

	// Frames of the other side

	/** Takes a message of the other side; throws a `WireFault` if the link can't go on. */
	received(message: Uint8Array, now: number): void {
		this.heardAt = now;
		this.counts.received++;
		for (const frame of readFrames(message, this.agreed.frameBytes)) {
			this.frame(frame, now);
		}
	}

	private frame(frame: Frame, now: number): void {
		const head = readHead(frame);
		if (frame.stated && frame.flags & Flag.PLACED && PAYLOADS.has(frame.kind)) {
			throw new WireError("PLACED is set, and this side never named the feature shm");
		}
		switch (frame.kind) {
			case Kind.ERROR:
				throw errorOfNumber(head.number as number, decodeLenient(frame.payload));
			case Kind.PING:
				this.tell(Kind.PONG, 0, frame);
				break;
			case Kind.PONG:
				this.pong(frame);
				break;
			case Kind.GOODBYE:
				this.events.goodbye();
				break;
			case Kind.NODE:
				this.named(head);
				break;
			case Kind.OK:
				this.subscribed(frame);
				break;
			case Kind.WINDOW:
				// The flag names the sender of this frame: the frame is about a payload of the
				// other side.
				this.out.window(frame, !frame.answer, head.bytes as number);
				break;
			case Kind.CREDIT:
				this.theirs.credited(frame, head.items as number);
				break;
			case Kind.CALL:
			case Kind.PUBLISH:
			case Kind.REPLY:
			case Kind.FAIL:
			case Kind.ITEM:
			case Kind.CHUNK:
				this.payload(frame, head, now);
				break;
			case Kind.END:
				this.itemsOver(frame);
				break;
			case Kind.ALIVE: {
				const mine = this.mine.get(frame);
				if (mine?.is === "call") {
					mine.blockedMs = head.blockedMs as number;
				}
				break;
			}
			case Kind.CANCEL:
				this.theirs.cancelled(frame);
				break;
			case Kind.TAKEN:
				break;
			default:
				throw new WireError(`a hub does not send frames of kind ${frame.kind} to a node that has joined`);
		}
		if (this.out.bytes > LINK_QUEUE_BYTES * 1.5) {
			throw new LimitExceeded(`link_queue_bytes=${LINK_QUEUE_BYTES}: the hub asks for answers and does not read them`);
		}
	}

	private pong(frame: Frame): void {
		const then = this.pongs.get(frame.slot);
		if (then !== undefined) {
			this.pongs.delete(frame.slot);
			then();
		}
	}

	private named(head: Head): void {
		const [number, fields] = [head.number as number, head.fields as Fields];
		const name = fieldText(fields, "name");
		if (number === 0) {
			return;
		}
		if (name === undefined) {
			if (this.peers.delete(number)) {
				this.events.left(number);
			}
			return;
		}
		this.peers.set(number, { name, user: fieldText(fields, "user") ?? "" });
	}

	private subscribed(id: Id): void {
		const mine = this.mine.get(id);
		if (mine?.is === "subscription" && !mine.isOpen) {
			mine.isOpen = true;
			mine.answered();
		}
	}

	private itemsOver(frame: Frame): void {
		const mine = frame.answer ? this.mine.get(frame) : undefined;
		if (mine?.is === "call") {
			this.endMine(frame, mine);
			mine.caller.completed();
		}
	}

	private endMine(id: Id, mine: OutboundExchange & { is: "call" }): void {
		this.timers.cancel(mine.timer);
		this.mine.remove(id);
		this.parts.forget(id, true);
		this.out.drop(id, false);
	}

	private payload(frame: Frame, head: Head, now: number): void {
		if (frame.kind === Kind.CHUNK) {
			this.progressed(frame, this.parts.chunk(frame), now);
			return;
		}
		if (this.parts.has(frame, frame.answer) && frame.kind !== Kind.FAIL && frame.kind !== Kind.PUBLISH) {
			throw new WireError("a payload begins before the one before it of the same exchange has ended");
		}
		if (this.expects(frame)) {
			this.progressed(frame, this.parts.take(frame), now, head);
		}
	}

	/**
	 * Opens the exchange of a payload, or looks for it. False: it has ended, and the frame is
	 * skipped.
	 */
	private expects(frame: Frame): boolean {
		const { kind } = frame;
		if (kind === Kind.CALL || (kind === Kind.PUBLISH && frame.stated)) {
			this.theirs.openSlot(frame);
			return true;
		}
		if (kind === Kind.PUBLISH) {
			return true;
		}
		const mine = frame.answer ? this.mine.get(frame) : undefined;
		if (kind === Kind.FAIL) {
			this.parts.forget(frame, true);
			return mine !== undefined;
		}
		if (mine?.is !== "call") {
			if (kind === Kind.ITEM && !frame.answer && this.theirs.has(frame)) {
				throw new LimitExceeded("stream_credit=0: an item of the caller came without credit");
			}
			return false;
		}
		if (kind === Kind.ITEM && --mine.credit < 0) {
			throw new LimitExceeded("stream_credit: more items came than were asked for");
		}
		return true;
	}

	private progressed(frame: Frame, progress: Progress, now: number, head?: Head): void {
		if (progress.is === "whole") {
			const first = progress.frame;
			this.complete(first, head ?? readHead(first), progress.payload, now);
		} else if (progress.is === "more") {
			this.tell(Kind.WINDOW, inLane(frame.lane, !frame.answer), frame, {
				bytes: progress.ask,
			});
		} else if (progress.is === "too_long" && progress.bytes < 0) {
			throw new WireError("CHUNK: it is longer than what was asked for, or than what was stated");
		} else if (progress.is !== "skipped") {
			const max = this.agreed.payloadBytes;
			const text =
				progress.is === "too_long"
					? `a payload of ${progress.bytes} bytes is longer than payload_bytes=${max} of the receiver`
					: `${progress.bytes} bytes and what else is on its way are too much for the receiver: try again later`;
			this.turnAway(frame, progress.is === "too_long" ? new PayloadTooLarge(text) : new LimitExceeded(text));
		}
	}

	/**
	 * A payload that this side does not take: its sender and its waiter are notified.
	 */
	private turnAway(frame: Frame, error: TidewireError): void {
		const mine = frame.answer ? this.mine.get(frame) : undefined;
		if (mine?.is === "call") {
			this.cancel(frame);
			mine.caller.failed(error);
			return;
		}
		if (!frame.answer) {
			this.theirs.turnedAway(frame, error);
		}
	}

	private complete(frame: Frame, head: Head, payload: Uint8Array, now: number): void {
		const id = { slot: frame.slot, generation: frame.generation };
		let whole = payload;
		if (frame.flags & Flag.COMPRESSED) {
			try {
				whole = inflate(payload, this.agreed.payloadBytes);
			} catch (error) {
				if (error instanceof WireError) {
					if (frame.kind === Kind.PUBLISH && frame.stated) {
						this.theirs.published(frame);
					}
					this.turnAway(frame, error);
					return;
				}
				throw error;
			}
		}
		const mine = frame.answer ? this.mine.get(id) : undefined;
		switch (frame.kind) {
			case Kind.CALL:
				this.theirs.called(id, frame.lane, head, whole, now);
				break;
			case Kind.PUBLISH: {
				if (frame.stated) {
					this.theirs.published(frame);
				}
				const { origin, to, subject, fields } = head as Required<Head>;
				this.events.published({ origin, to, subject, fields, payload: whole });
				break;
			}
			case Kind.ITEM:
				if (mine?.is === "call") {
					mine.caller.item(whole);
				}
				break;
			case Kind.REPLY:
				if (mine?.is === "call") {
					this.endMine(id, mine);
					mine.caller.replied(whole);
				}
				break;
			default:
				if (mine?.is === "call") {
					this.endMine(id, mine);
					mine.caller.failed({ number: head.number as number, payload: whole });
				} else if (mine?.is === "subscription") {
					this.mine.remove(id);
					mine.answered(errorOfNumber(head.number as number, decodeLenient(whole)));
				}
		}
	}
}

function tooLong(error: unknown): unknown {
	return error instanceof WireError
		? new InvalidArgument(`headers: ${error.message}: send fewer or shorter ones`)
		: error;
}
