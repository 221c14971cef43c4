/** One link from WELCOME to its end: exchanges, credit, deadlines and signs of life, told the time and the frames that come. */

import { Assemblies, type Progress } from "./assembly.js";
import type { TidewireError } from "./error.js";
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
} from "./frames.js";
import { ERRORS } from "./generated/error_table.js";
import {
	AskTimeout,
	InvalidArgument,
	LimitExceeded,
	LinkLost,
	PayloadTooLarge,
	WireError,
} from "./generated/errors.js";
import { LINK_CHUNK_BYTES, LINK_QUEUE_BYTES } from "./generated/limits.js";
import { inflate } from "./lz4.js";
import { inLane, Outbox, type Parts } from "./outbox.js";
import { Slots } from "./slots.js";
import { decodeLenient } from "./text.js";
import type { Timer, Timers } from "./timers.js";

/** Whoever made a call, and hears what becomes of it: `replied`, `over` or `failed` once, and nothing after that. */
export interface Caller {
	replied(payload: Uint8Array): void;
	item(payload: Uint8Array): void;
	over(): void;
	failed(error: TidewireError | { readonly number: number; readonly payload: Uint8Array }): void;
}

/** Whoever answers a call of another node, and hears what its caller does. */
export interface Callee {
	/** The caller gave up, or its link ended: nothing can be answered any more. */
	cancelled(): void;
	/** Further items are wanted; 0: none any more, and the answer is to end. */
	wanted(items: number): void;
}

/** A call of another node. */
export interface Incoming {
	readonly id: Id;
	readonly origin: number;
	readonly to: Id;
	readonly subject: string;
	readonly fields: Fields;
	readonly payload: Uint8Array;
	/** Milliseconds that it may take; 0: as many as it likes. */
	readonly deadlineMs: number;
	/** Items that it may answer with; 0: it wants one value. */
	readonly credit: number;
	readonly lane: number;
}

/** A message that was published. */
export interface Message {
	readonly origin: number;
	readonly to: Id;
	readonly subject: string;
	readonly fields: Fields;
	readonly payload: Uint8Array;
}

/** What a call is sent with. */
export interface Outgoing {
	readonly subject: string;
	readonly fields: Fields;
	readonly payload: Uint8Array;
	readonly lane: number;
	readonly deadlineMs: number;
	readonly choice: number;
	readonly credit: number;
	readonly again: boolean;
}

/** What a node of another number is called. */
export interface Peer {
	readonly name: string;
	readonly user: string;
}

/** What the session tells its node. */
export interface SessionEvents {
	called(call: Incoming, now: number): Callee | undefined;
	published(message: Message): void;
	/** The node of a number has gone. */
	left(origin: number): void;
	/** The hub is stopping. */
	goodbye(): void;
}

/** What both sides agreed on. */
export interface Agreed {
	readonly inFlight: number;
	readonly ownInFlight: number;
	readonly frameBytes: number;
	readonly theirFrameBytes: number;
	readonly payloadBytes: number;
	readonly theirPayloadBytes: number;
	readonly heartbeatMs: number;
	readonly theirHeartbeatMs: number;
	readonly lz4: boolean;
	/** Patterns on which this node may publish; undefined: all. */
	readonly publish: readonly string[] | undefined;
	/** Limits that are those of this node's token. */
	readonly ofToken: readonly string[];
}

type Mine =
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

interface Theirs {
	readonly generation: number;
	readonly lane: number;
	isOpen: boolean;
	callee: Callee | undefined;
	wanted: number;
	unread: boolean;
	timer: Timer | undefined;
}

const NO_ID: Id = { slot: 0, generation: 0 };
const ALIVE_LEAST_MS = 50;
const FRAME_ROOM = 20_480;
/** The numbers of PING: a sign of life, and from the second one on the question whether all has arrived. */
const HEARTBEAT: Id = { slot: 1, generation: 0 };
const PAYLOADS = new Set<number>([Kind.CALL, Kind.PUBLISH, Kind.REPLY, Kind.FAIL, Kind.ITEM]);

export class Session {
	private readonly out: Outbox;
	private readonly mine: Slots<Mine>;
	private readonly theirs = new Map<number, Theirs>();
	private readonly parts: Assemblies;
	private readonly peers = new Map<number, Peer>();
	private readonly pongs = new Map<number, () => void>();
	private pings = 1;
	private heardAt: number;
	private sentAt: number;
	private dueAt: number;
	private isLeaving = false;
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

	/** What is to be sent next; undefined if nothing may be sent now. */
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
		// A program that slept has heard nothing because it did not listen: the other side gets its time anew.
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

	// What this side says

	call(call: Outgoing, caller: Caller, now: number): Id {
		this.fits(call.payload.length);
		if (this.out.bytes > LINK_QUEUE_BYTES) {
			throw new LimitExceeded(
				`link_queue_bytes=${LINK_QUEUE_BYTES}: so much waits to be sent already: try again later`,
			);
		}
		const mine: Mine = {
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
		this.fits(payload.length);
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

	reply(id: Id, payload: Uint8Array): void {
		const theirs = this.their(id);
		if (theirs !== undefined) {
			this.fits(payload.length);
			this.end(id, theirs);
			this.out.send(Kind.REPLY, inLane(theirs.lane, true), id, {}, payload);
		}
	}

	/** Sends one item of an answer; whoever does minds the credit. */
	item(id: Id, payload: Uint8Array): void {
		const theirs = this.their(id);
		if (theirs !== undefined) {
			this.fits(payload.length);
			this.out.send(Kind.ITEM, inLane(theirs.lane, true), id, {}, payload);
		}
	}

	/** Whether an item may be sent, rather than wait for those before it. */
	hasRoom(id: Id): boolean {
		return this.out.bytes <= LINK_QUEUE_BYTES / 2 && this.out.waitingOf(id, true) === 0;
	}

	over(id: Id): void {
		const theirs = this.their(id);
		if (theirs !== undefined) {
			this.end(id, theirs);
			this.out.send(Kind.END, inLane(theirs.lane, true), id, {});
		}
	}

	fail(id: Id, number: number, payload: Uint8Array): void {
		const theirs = this.their(id);
		if (theirs !== undefined) {
			this.end(id, theirs);
			if (payload.length <= this.out.chunkBytes) {
				this.out.drop(id, true);
			}
			this.out.send(Kind.FAIL, inLane(theirs.lane, true), id, { number }, payload);
		}
	}

	/** Takes no new calls; those in progress go on. */
	goodbye(): void {
		if (!this.isLeaving) {
			this.isLeaving = true;
			this.tell(Kind.GOODBYE, 0, NO_ID);
		}
	}

	/** Asks whether all that was said has arrived. */
	arrived(then: () => void): void {
		this.pings++;
		this.pongs.set(this.pings, then);
		// Behind all that waits, whatever its lane.
		this.tell(Kind.PING, 3, { slot: this.pings, generation: 0 });
	}

	/** The link has ended: so has everything that was said over it. */
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
		for (const theirs of this.theirs.values()) {
			this.timers.cancel(theirs.timer);
			theirs.callee?.cancelled();
		}
		this.theirs.clear();
		for (const pong of this.pongs.values()) {
			pong();
		}
	}

	private insert(mine: Mine): Id {
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

	private fits(bytes: number): void {
		const max = this.agreed.theirPayloadBytes;
		if (bytes > max) {
			throw new PayloadTooLarge(
				`a payload of ${bytes} bytes is longer than payload_bytes=${max} of the hub: send less at once, or use a stream`,
			);
		}
	}

	private tell(kind: Kind, flags: number, id: Id, head: Head = {}): void {
		this.out.send(kind, flags, id, head);
	}

	private their(id: Id): Theirs | undefined {
		const theirs = this.theirs.get(id.slot);
		return theirs?.generation === id.generation && theirs.isOpen ? theirs : undefined;
	}

	private end(id: Id, theirs: Theirs): void {
		this.timers.cancel(theirs.timer);
		this.theirs.delete(id.slot);
		this.parts.forget(id, false);
	}

	// What the other side says

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
		if (frame.flags & Flag.COMPRESSED && !this.agreed.lz4 && PAYLOADS.has(frame.kind)) {
			throw new WireError("COMPRESSED is set, and the feature lz4 was not named by both sides");
		}
		if (frame.stated && frame.flags & Flag.PLACED && PAYLOADS.has(frame.kind)) {
			throw new WireError("PLACED is set, and this side never named the feature shm");
		}
		switch (frame.kind) {
			case Kind.ERROR:
				throw told(head.number as number, decodeLenient(frame.payload));
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
				// The flag says which side sends this frame: it is about what the other one sends.
				this.out.window(frame, !frame.answer, head.bytes as number);
				break;
			case Kind.CREDIT:
				this.credited(frame, head.items as number);
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
				this.cancelled(frame);
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

	private credited(frame: Frame, items: number): void {
		const theirs = frame.answer ? undefined : this.theirs.get(frame.slot);
		if (theirs?.generation !== frame.generation) {
			return;
		}
		if (theirs.isOpen) {
			theirs.callee?.wanted(items);
		} else {
			theirs.wanted += items;
			theirs.unread ||= items === 0;
		}
	}

	private itemsOver(frame: Frame): void {
		const mine = frame.answer ? this.mine.get(frame) : undefined;
		if (mine?.is === "call") {
			this.endMine(frame, mine);
			mine.caller.over();
		}
	}

	private cancelled(frame: Frame): void {
		const theirs = this.theirs.get(frame.slot);
		if (theirs?.generation === frame.generation) {
			this.end(frame, theirs);
			this.out.drop(frame, true);
			theirs.callee?.cancelled();
		}
	}

	private endMine(id: Id, mine: Mine & { is: "call" }): void {
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

	/** Opens the exchange of a payload, or looks for it. False: it has ended, and the frame is skipped. */
	private expects(frame: Frame): boolean {
		const { kind } = frame;
		if (kind === Kind.CALL || (kind === Kind.PUBLISH && frame.stated)) {
			this.opened(frame);
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
			if (kind === Kind.ITEM && !frame.answer && this.their(frame) !== undefined) {
				throw new LimitExceeded("stream_credit=0: an item of the caller came without credit");
			}
			return false;
		}
		if (kind === Kind.ITEM && --mine.credit < 0) {
			throw new LimitExceeded("stream_credit: more items came than were asked for");
		}
		return true;
	}

	private opened(frame: Frame): void {
		const { slot, generation } = frame;
		if (slot >= this.agreed.ownInFlight) {
			throw new LimitExceeded(`link_in_flight=${this.agreed.ownInFlight}: slot ${slot} is beyond it`);
		}
		if (generation === 0 || this.theirs.has(slot)) {
			throw new WireError(`slot ${slot} is in use, or its generation is 0`);
		}
		const lane = frame.lane;
		this.theirs.set(slot, {
			generation,
			lane,
			isOpen: false,
			callee: undefined,
			wanted: 0,
			unread: false,
			timer: undefined,
		});
	}

	private progressed(frame: Frame, progress: Progress, now: number, head?: Head): void {
		if (progress.is === "whole") {
			const begun = progress.frame;
			this.complete(begun, head ?? readHead(begun), progress.payload, now);
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

	/** A payload that this side does not take: whoever sent it is told, and whoever waits for it. */
	private turnAway(frame: Frame, error: TidewireError): void {
		const mine = frame.answer ? this.mine.get(frame) : undefined;
		if (mine?.is === "call") {
			this.cancel(frame);
			mine.caller.failed(error);
			return;
		}
		const theirs = frame.answer ? undefined : this.theirs.get(frame.slot);
		if (theirs?.generation === frame.generation) {
			this.end(frame, theirs);
			theirs.callee?.cancelled();
			if (frame.kind !== Kind.PUBLISH) {
				const number = error instanceof PayloadTooLarge ? 18 : 14;
				this.out.send(Kind.FAIL, inLane(theirs.lane, true), frame, { number }, encoder.encode(error.message));
			}
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
					this.theirs.delete(frame.kind === Kind.PUBLISH && frame.stated ? frame.slot : -1);
					this.turnAway(frame, error);
					return;
				}
				throw error;
			}
		}
		const mine = frame.answer ? this.mine.get(id) : undefined;
		switch (frame.kind) {
			case Kind.CALL:
				this.called(id, frame.lane, head, whole, now);
				break;
			case Kind.PUBLISH: {
				if (frame.stated) {
					this.theirs.delete(frame.slot);
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
					mine.answered(told(head.number as number, decodeLenient(whole)));
				}
		}
	}

	private called(id: Id, lane: number, head: Head, payload: Uint8Array, now: number): void {
		const theirs = this.theirs.get(id.slot);
		if (theirs?.generation !== id.generation) {
			return;
		}
		theirs.isOpen = true;
		if (this.isLeaving) {
			this.fail(id, 13, encoder.encode("the node takes no new calls"));
			return;
		}
		const { origin, to, subject, fields, deadlineMs, credit } = head as Required<Head>;
		const callee = this.events.called({ id, origin, to, subject, fields, payload, deadlineMs, credit, lane }, now);
		if (callee === undefined || this.their(id) === undefined) {
			return;
		}
		theirs.callee = callee;
		const beat = this.agreed.heartbeatMs / 2;
		const every = Math.max(ALIVE_LEAST_MS, deadlineMs > 0 ? Math.min(beat, deadlineMs / 4) : beat);
		theirs.timer = this.timers.add(now + every, (at) => this.alive(id, theirs, every, at));
		if (theirs.wanted > 0) {
			callee.wanted(theirs.wanted);
		}
		if (theirs.unread) {
			callee.wanted(0);
		}
	}

	private alive(id: Id, theirs: Theirs, every: number, now: number): void {
		theirs.timer = this.timers.add(now + every, (at) => this.alive(id, theirs, every, at));
		if (this.out.bytes <= LINK_QUEUE_BYTES / 2) {
			this.tell(Kind.ALIVE, inLane(theirs.lane, true), id, { blockedMs: 0 });
		}
	}
}

const encoder = new TextEncoder();

/** The error of a number that travelled. */
export function told(number: number, text: string): TidewireError {
	const made = ERRORS.get(number);
	return made === undefined
		? new WireError(`error ${number}, which this version does not know: ${text}`)
		: new made(text);
}

function tooLong(error: unknown): unknown {
	return error instanceof WireError
		? new InvalidArgument(`headers: ${error.message}: send fewer or shorter ones`)
		: error;
}
