/** Events of a stream, and the settlement of their deliveries. */
import { InvalidArgument, StaleDelivery } from "../generated/errors.js";
import { checkNames, shown } from "../options.js";
import { decodeLenient, encode } from "../text.js";
import { type Tuple, tuple } from "../values/kinds.js";
import { readValue } from "../values/reader.js";
import { writeValue } from "../values/writer.js";
import { microseconds, oneOf, timeOf } from "./home.js";

/** How a value is written: any that travels over links, as JSON, or bytes as they are. */
export type Content = "value" | "json" | "bytes";

/** Fields of a message beside its value. Times are in milliseconds. */
export interface PublishOptions {
	/**
	 * Subject of the message, such as a customer; consumers with `order: "key"` handle one of a
	 * key at a time. At most 256 bytes.
	 */
	readonly key?: string | undefined;
	/**
	 * An idempotency key: a second message with it is not stored within the stream's `dedupe`. At
	 * most 256 bytes.
	 */
	readonly id?: string | undefined;
	/** Names and values, at most 64 KiB together. */
	readonly headers?: Readonly<Record<string, string>> | undefined;
	readonly content?: Content | undefined;
	/** After which time it is delivered, by the clock of this machine. */
	readonly delay?: number | undefined;
	/** When it is delivered, instead of `delay`. */
	readonly at?: Date | undefined;
	/** After which time it is not delivered any more. */
	readonly ttl?: number | undefined;
}

/** One message of a batch. */
export interface Message extends PublishOptions {
	readonly subject: string;
	readonly value: unknown;
}

const TYPE = "content-type";

/** A message in the form of storage backends. */
export function messageOf(subject: string, value: unknown, options: PublishOptions): Tuple {
	checkNames("publish", options, { key: 0, id: 0, headers: 0, content: 0, delay: 0, at: 0, ttl: 0 });
	const { key = null, id = null, content = "value", delay, at, ttl } = options;
	const headers = Object.entries(options.headers ?? {});
	let payload: Uint8Array;
	if (oneOf("content", content, ["value", "json", "bytes"]) === "value") {
		payload = writeValue(value, undefined, subject);
		headers.push([TYPE, "tidewire"]);
	} else if (content === "json") {
		payload = encode(JSON.stringify(value) ?? "null");
		headers.push([TYPE, "application/json"]);
	} else if (value instanceof Uint8Array) {
		payload = value;
	} else {
		throw new InvalidArgument(`value: ${shown(value)} is not allowed with content: "bytes": give a Uint8Array`);
	}
	if (delay !== undefined && at !== undefined) {
		throw new InvalidArgument("delay: it is given together with at: give one of them");
	}
	const wait = microseconds("delay", delay);
	const due = wait === null ? microseconds("at", at?.getTime()) : Math.round(Date.now() * 1000) + wait;
	const pairs = headers.map((pair) => tuple(...pair));
	return tuple<unknown>(subject, payload, key, id, pairs, due, microseconds("ttl", ttl));
}

/** Settlement of a delivery, in the form of storage backends. */
export type Settled = Tuple;

/** Takes the settlements of deliveries. */
export interface Settler {
	now(settled: Settled): Promise<void>;
	soon(settled: Settled): Promise<void>;
}

export interface SettleOptions {
	/**
	 * If true, the ack waits until it is on the disk, and fails with the error of the storage
	 * backend.
	 */
	readonly wait?: boolean | undefined;
}

/** An event of a stream. */
export class StreamEvent<T = unknown> {
	/** Where it was published. */
	readonly subject: string;
	/** The published value, encoded. */
	readonly payload: Uint8Array;
	/** Subject of the event. */
	readonly key: string | undefined;
	/** Its idempotency key. */
	readonly id: string | undefined;
	/** The type of the content among them. */
	readonly headers: Readonly<Record<string, string>>;
	/** Its place in the stream, from 1. */
	readonly sequence: number;
	/** When it was stored. */
	readonly time: Date;
	/** Which attempt this is, from 1; 0 for one that was read without a consumer. */
	readonly delivery: number;
	private readonly ticket: unknown;
	private isSettled = false;

	/** @internal */
	constructor(
		raw: unknown,
		private readonly settler?: Settler,
	) {
		const [subject, payload, key, id, headers, sequence, time, delivery, ticket] = raw as RawEvent;
		this.subject = subject;
		this.payload = payload;
		this.key = key ?? undefined;
		this.id = id ?? undefined;
		this.headers = Object.fromEntries(headers);
		this.sequence = sequence;
		this.time = timeOf(time);
		this.delivery = delivery;
		this.ticket = ticket;
	}

	/**
	 * The published value, or bytes if no header says its type. Decoded anew each time.
	 */
	get value(): T {
		const header = Object.entries(this.headers).find(([name]) => name.toLowerCase() === TYPE)?.[1];
		// Other programs add parameters, such as a charset.
		const type = header?.split(";")[0]?.trim().toLowerCase();
		if (type === "tidewire") {
			return readValue(this.payload) as T;
		}
		return (type === "application/json" ? JSON.parse(decodeLenient(this.payload)) : this.payload) as T;
	}

	/**
	 * Says that it was handled: it is not delivered again. Acks are stored in batches in the
	 * background; one that is lost with the page is no loss: the event comes again.
	 *
	 * @throws StaleDelivery if it was settled before; with `wait` also if it was given to another
	 * since.
	 */
	async ack(options: SettleOptions = {}): Promise<void> {
		checkNames("ack", options, { wait: 0 });
		return this.settle("ack", null, "", undefined, options);
	}

	/**
	 * Says that it failed: it comes again after `delay` (ms), or as the consumer's `backoff` says;
	 * or is a dead letter, with the error, if that was the last delivery.
	 */
	async nak(
		options: SettleOptions & { readonly delay?: number | undefined; readonly error?: unknown } = {},
	): Promise<void> {
		checkNames("nak", options, { wait: 0, delay: 0, error: 0 });
		return this.settle("nak", microseconds("delay", options.delay), "", options.error, options);
	}

	/** Says that it can't be handled: it is a dead letter at once. */
	async term(reason: string, options: SettleOptions & { readonly error?: unknown } = {}): Promise<void> {
		checkNames("term", options, { wait: 0, error: 0 });
		return this.settle("term", null, reason, options.error, options);
	}

	/** Says that it is still worked on: its ack wait begins anew. */
	async working(): Promise<void> {
		await this.open().now(this.settled("working", null, "", undefined));
	}

	/** @internal Gives it back: nobody has begun with it. */
	release(): Promise<void> {
		return this.settle("release", null, "", undefined, {});
	}

	private async settle(
		how: string,
		delay: number | null,
		reason: string,
		error: unknown,
		{ wait = false }: SettleOptions,
	): Promise<void> {
		const settler = this.open();
		this.isSettled = true;
		const settled = this.settled(how, delay, reason, error);
		await (wait ? settler.now(settled) : settler.soon(settled));
	}

	private settled(how: string, delay: number | null, reason: string, error: unknown): Settled {
		return tuple<unknown>(this.sequence, this.ticket, how, delay, reason, faultOf(error));
	}

	private open(): Settler {
		if (this.settler === undefined) {
			throw new InvalidArgument(
				`event ${this.sequence}: it was read, not delivered: only events of a consumer are settled`,
			);
		}
		if (this.isSettled) {
			throw new StaleDelivery(`event ${this.sequence}: delivery ${this.delivery} was settled before: settle it once`);
		}
		return this.settler;
	}
}

type RawEvent = [
	subject: string,
	payload: Uint8Array,
	key: string | null,
	id: string | null,
	headers: [string, string][],
	sequence: number,
	time: number,
	delivery: number,
	ticket: unknown,
];

/** An event that a consumer has given up. */
export class DeadEvent<T = unknown> {
	/** Undefined if the stream does not have it any more. */
	readonly event: StreamEvent<T> | undefined;
	readonly sequence: number;
	/** How often it was delivered. */
	readonly deliveries: number;
	/** When it was given up. */
	readonly time: Date;
	/** "max_deliver", or what `term` was given. */
	readonly reason: string;
	/** The last error, in a line. */
	readonly error: string;
	/** The traceback of the error; may be empty. */
	readonly traceback: string;

	/** @internal */
	constructor(raw: unknown) {
		const [event, sequence, deliveries, time, reason, error, traceback] = raw as [
			unknown,
			number,
			number,
			number,
			string,
			string,
			string,
		];
		this.event = event === null ? undefined : new StreamEvent<T>(event);
		this.sequence = sequence;
		this.deliveries = deliveries;
		this.time = timeOf(time);
		this.reason = reason;
		this.error = error;
		this.traceback = traceback;
	}
}

/** An error in a line, and its traceback. */
function faultOf(error: unknown): Tuple<string> | null {
	if (error === undefined) {
		return null;
	}
	return error instanceof Error ? tuple(`${error.name}: ${error.message}`, error.stack ?? "") : tuple(shown(error), "");
}
