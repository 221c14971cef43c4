/** Interface of a session and its node for exchanges: calls of both sides, and messages. */
import type { TidewireError } from "../error.js";
import { ERRORS } from "../generated/error_table.js";
import { WireError } from "../generated/errors.js";
import type { Fields, Id } from "../wire/frames.js";

/**
 * The caller's side of a call: one `replied`, `completed` or `failed`, and nothing after it.
 */
export interface Caller {
	replied(payload: Uint8Array): void;
	item(payload: Uint8Array): void;
	completed(): void;
	failed(error: TidewireError | { readonly number: number; readonly payload: Uint8Array }): void;
}

/** The callee's side of a call of another node: actions of its caller. */
export interface Callee {
	/** The caller gave up, or its link ended: nothing can be answered any more. */
	cancelled(): void;
	/** Credit for further items; 0: the caller reads no more, and the answer ends. */
	credited(items: number): void;
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

/** Parts of an outbound call. */
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

/** Identity of a node with another number. */
export interface Peer {
	readonly name: string;
	readonly user: string;
}

/** Events of a session for its node. */
export interface SessionEvents {
	called(call: Incoming, now: number): Callee | undefined;
	published(message: Message): void;
	/** The node of a number has gone. */
	left(origin: number): void;
	/** The hub is stopping. */
	goodbye(): void;
}

/** Limits that both sides agreed on. */
export interface Agreed {
	readonly inFlight: number;
	readonly ownInFlight: number;
	readonly frameBytes: number;
	readonly theirFrameBytes: number;
	readonly payloadBytes: number;
	readonly theirPayloadBytes: number;
	readonly heartbeatMs: number;
	readonly theirHeartbeatMs: number;
	/** Patterns on which this node may publish; undefined: all. */
	readonly publish: readonly string[] | undefined;
	/** Limits that are those of this node's token. */
	readonly ofToken: readonly string[];
}

/** Error of a number from the wire. */
export function errorOfNumber(number: number, text: string): TidewireError {
	const errorClass = ERRORS.get(number);
	return errorClass === undefined
		? new WireError(`error ${number}, which this version does not know: ${text}`)
		: new errorClass(text);
}
