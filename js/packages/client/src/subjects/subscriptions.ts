/** Subscriptions of this node, and the choice of their receivers. */

import { LimitExceeded } from "../generated/errors.js";
import { SUBSCRIPTION_CAPACITY } from "../generated/limits.js";
import type { Reader } from "../iterators/page_reader.js";
import { Waiters, type WaitOptions } from "../iterators/waiters.js";
import { Queue } from "../queue.js";
import { handledCall } from "../services/context.js";
import { isThenable } from "../services/service_instance.js";
import { asyncDispose } from "../symbols.js";
import type { Id } from "../wire/frames.js";

/** One message with its metadata. */
export interface Envelope {
	readonly subject: string;
	readonly value: unknown;
	readonly headers: Readonly<Record<string, string>>;
	/** The name of the node that published it; empty for the hub itself. */
	readonly node: string;
	/** User of its publisher's token; empty where there are none. */
	readonly user: string;
}

/** Handler of published messages; its result answers a request. */
export type Listener = (value: unknown, envelope: Envelope) => unknown;

export interface SubscribeOptions {
	/** Members of a queue group with one pattern share its messages: each goes to one of them. */
	readonly queue?: string | undefined;
}

/** One subscription of this node, until `stop()`. */
export interface Subscription {
	readonly pattern: string;
	/**
	 * Messages that came, that found no room among the 1,000 that may wait, and whose listener
	 * failed.
	 */
	statistics(): {
		readonly received: number;
		readonly dropped: number;
		readonly errors: number;
	};
	/** Ends it; nothing is delivered after that. */
	stop(): void;
	[Symbol.asyncDispose](): Promise<void>;
}

/** A message before its value is read. */
export interface Unread {
	readonly envelope: () => Envelope;
}

export class Subscribed implements Subscription, Reader<Envelope> {
	/** Its exchange with the hub; undefined while there is no link. */
	id: Id | undefined;
	isStopped = false;
	/** True if the hub has known of the subscription: a new link announces it again. */
	isKnown = false;
	private readonly waiting = new Queue<Unread>();
	private readonly readers = new Waiters<IteratorResult<Envelope, undefined>>();
	private isBusy = false;
	private counts = { received: 0, dropped: 0, errors: 0 };

	constructor(
		readonly pattern: string,
		readonly queue: string,
		/** Undefined: it is read in a loop, and answers nothing. */
		readonly listener: Listener | undefined,
		private readonly ends: (subscription: Subscribed) => void,
		private readonly report: (error: unknown) => void,
	) {}

	statistics(): {
		readonly received: number;
		readonly dropped: number;
		readonly errors: number;
	} {
		return { ...this.counts };
	}

	stop(): void {
		if (!this.isStopped) {
			this.isStopped = true;
			this.waiting.clear();
			this.ends(this);
			this.readers.tell({ done: true, value: undefined });
		}
	}

	async [asyncDispose](): Promise<void> {
		this.stop();
	}

	/** Takes a message: the listener handles one at a time, in order. */
	deliver(message: Unread): void {
		this.counts.received++;
		if (this.listener === undefined && this.readers.size > 0) {
			const value = this.read(message);
			if (value !== undefined) {
				this.readers.tell({ done: false, value });
			}
		} else if (this.waiting.size >= SUBSCRIPTION_CAPACITY) {
			this.counts.dropped++;
		} else {
			this.waiting.push(message);
			if (this.listener !== undefined && !this.isBusy) {
				const { listener } = this;
				void handledCall.run(undefined, () => this.handle(listener));
			}
		}
	}

	/**
	 * Reads a message. An unreadable one is counted and skipped: its publisher is another node,
	 * and the link is in order.
	 */
	private read(message: Unread): Envelope | undefined {
		try {
			return message.envelope();
		} catch (error) {
			this.counts.errors++;
			this.report(error);
			return undefined;
		}
	}

	private async handle(listener: Listener): Promise<void> {
		this.isBusy = true;
		// Not within the call that published it.
		await undefined;
		for (let next = this.waiting.shift(); next !== undefined; next = this.waiting.shift()) {
			try {
				const envelope = next.envelope();
				const handled = listener(envelope.value, envelope);
				if (isThenable(handled)) {
					await handled;
				}
			} catch (error) {
				this.counts.errors++;
				this.report(error);
			}
		}
		this.isBusy = false;
	}

	[Symbol.asyncIterator](): this {
		return this;
	}

	async next({ signal }: WaitOptions = {}): Promise<IteratorResult<Envelope, undefined>> {
		signal?.throwIfAborted();
		for (;;) {
			const message = this.waiting.shift();
			if (message !== undefined) {
				const value = this.read(message);
				if (value !== undefined) {
					return { done: false, value };
				}
				continue;
			}
			if (this.isStopped) {
				return { done: true, value: undefined };
			}
			return this.readers.wait(signal);
		}
	}

	async return(): Promise<IteratorResult<Envelope, undefined>> {
		this.stop();
		return { done: true, value: undefined };
	}
}

const REMEMBERED = 1000;
const SUBSCRIPTIONS = 10_000;

/** All subscriptions of a node. */
export class Subscriptions {
	private readonly all = new Set<Subscribed>();
	private readonly byId = new Map<string, Subscribed>();
	/** Which ones match a subject, for the last subjects. */
	private readonly matching = new Map<string, readonly Subscribed[]>();
	private turn = 0;

	get size(): number {
		return this.all.size;
	}

	[Symbol.iterator](): Iterator<Subscribed> {
		return this.all.values();
	}

	add(subscription: Subscribed): void {
		if (this.all.size >= SUBSCRIPTIONS) {
			throw new LimitExceeded(`link_subscriptions=${SUBSCRIPTIONS}: this node has so many already: stop some`);
		}
		this.all.add(subscription);
		this.matching.clear();
	}

	remove(subscription: Subscribed): void {
		this.all.delete(subscription);
		this.at(subscription, undefined);
		this.matching.clear();
	}

	/** Notes which exchange with the hub a subscription has. */
	at(subscription: Subscribed, id: Id | undefined): void {
		if (subscription.id !== undefined) {
			this.byId.delete(keyOf(subscription.id));
		}
		subscription.id = id;
		if (id !== undefined) {
			this.byId.set(keyOf(id), subscription);
		}
	}

	find(id: Id): Subscribed | undefined {
		return this.byId.get(keyOf(id));
	}

	/** Those that match a subject. */
	of(subject: string): readonly Subscribed[] {
		let found = this.matching.get(subject);
		if (found === undefined) {
			found = [...this.all].filter((one) => matches(one.pattern, subject));
			if (this.matching.size >= REMEMBERED) {
				this.matching.clear();
			}
			this.matching.set(subject, found);
		}
		return found;
	}

	/**
	 * Those that get what this node itself publishes: all, but of each queue group one, in turn.
	 */
	chosen(subject: string): readonly Subscribed[] {
		const found = this.of(subject);
		if (found.every((one) => one.queue === "")) {
			return found;
		}
		const groups = new Map<string, Subscribed[]>();
		for (const one of found.filter((member) => member.queue !== "")) {
			const key = `${one.queue} ${one.pattern}`;
			groups.set(key, [...(groups.get(key) ?? []), one]);
		}
		const turn = this.turn++;
		const members = [...groups.values()].map((group) => group[turn % group.length] as Subscribed);
		return [...found.filter((one) => one.queue === ""), ...members];
	}

	/**
	 * Takes what the hub has sent: for one subscription, or for all that match outside of queue
	 * groups.
	 */
	deliver(to: Id, subject: string, message: Unread): void {
		if (to.generation !== 0) {
			this.find(to)?.deliver(message);
			return;
		}
		for (const one of this.of(subject)) {
			if (one.queue === "") {
				one.deliver(message);
			}
		}
	}
}

function keyOf(id: Id): string {
	return `${id.slot}/${id.generation}`;
}

/** True if a pattern selects a subject; both obey the rules. */
function matches(pattern: string, subject: string): boolean {
	if (pattern === subject || pattern === ">") {
		return true;
	}
	const parts = pattern.split(".");
	const tokens = subject.split(".");
	for (const [at, token] of parts.entries()) {
		if (token === ">") {
			return tokens.length > at;
		}
		if (at >= tokens.length || (token !== "*" && token !== tokens[at])) {
			return false;
		}
	}
	return parts.length === tokens.length;
}
