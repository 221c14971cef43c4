/** Consumers: named cursors over a stream, whose events are settled. */
import { InvalidArgument } from "../generated/errors.js";
import type { Reader } from "../iterators/page_reader.js";
import { checkNames, shown } from "../options.js";
import { Queue } from "../queue.js";
import { asyncDispose } from "../symbols.js";
import { DeadEvent, type Settled, type Settler, StreamEvent } from "./event.js";
import { type Home, PAGE, PAGE_BYTES, refused, type Start, startOf, timeOf, WAIT_US } from "./home.js";

/** A batch that is handled within this time is followed by a longer one. */
const QUICK_MS = 100;
/** Acks that wait to be stored at most; then `ack()` waits. */
const SETTLED_MAX = 10_000;

/** State of a consumer. */
export interface ConsumerInfo {
	readonly name: string;
	/** Every event up to here is acked, dead, or not selected. */
	readonly ackedTo: number;
	/** How many deliveries are out. */
	readonly inFlight: number;
	/** How many events wait for their delay, or for earlier ones of their keys. */
	readonly waiting: number;
	/** Distance to the newest event of the stream: its sequence minus `ackedTo`. */
	readonly lag: number;
	/**
	 * How many deliveries were not the first of their event, since the storage backend was opened.
	 */
	readonly redelivered: number;
	/** How many dead letters it has. */
	readonly dead: number;
	/** When the oldest event that is not acked was stored. */
	readonly oldestTime: Date | undefined;
	/** True if deliveries are paused. */
	readonly isPaused: boolean;
}

export interface NextOptions {
	/** Milliseconds after which there is none; without it there is no limit. */
	readonly timeout?: number | undefined;
	/** Ends the wait. Events on their way go back. */
	readonly signal?: AbortSignal | undefined;
}

/**
 * A consumer of a stream: `for await (const event of consumer)`, or `await consumer.next()`.
 * Several may take events from one consumer, in one page or many: each event goes to one of them.
 */
export class Consumer<T = unknown> implements AsyncIterable<StreamEvent<T>> {
	private readonly ready = new Queue<StreamEvent<T>>();
	private ahead = 1;
	private fetchedAt = 0;
	private settled: Settled[] = [];
	private settling: Promise<void> | undefined;
	private capacityWaiters: (() => void)[] = [];
	private broken: { readonly error: unknown } | undefined;
	private stale = 0;

	/** @internal */
	constructor(
		private readonly home: Home,
		readonly stream: string,
		readonly name: string,
		private readonly inFlight: number,
	) {}

	/** Waits for the next event; undefined: there was none within `timeout`. */
	async next(options: NextOptions = {}): Promise<StreamEvent<T> | undefined> {
		checkNames("next", options, { timeout: 0, signal: 0 });
		const { timeout = Number.POSITIVE_INFINITY, signal } = options;
		if (typeof timeout !== "number" || !(timeout >= 0)) {
			throw new InvalidArgument(`next: timeout: ${shown(timeout)} is not allowed: give milliseconds from 0 on`);
		}
		const until = this.home.now() + timeout;
		for (;;) {
			signal?.throwIfAborted();
			this.check();
			const event = this.ready.shift();
			if (event !== undefined) {
				return event;
			}
			this.pace();
			const wait = Math.round(Math.max(0, Math.min(WAIT_US, (until - this.home.now()) * 1000)));
			const args = [this.stream, this.name, this.ahead, PAGE_BYTES, wait];
			const raw = (await this.home.ask("fetch", args, signal)) as unknown[];
			this.fetchedAt = this.home.now();
			for (const fields of raw) {
				this.ready.push(new StreamEvent<T>(fields, this.settler));
			}
			if (raw.length === 0) {
				this.ahead = 1;
				if (this.home.now() >= until) {
					return undefined;
				}
			}
		}
	}

	/**
	 * Events as they come. Leaving the loop gives back the fetched and unhandled ones, and stores
	 * the acks.
	 */
	[Symbol.asyncIterator](): Reader<StreamEvent<T>> {
		let waiting: Promise<StreamEvent<T> | undefined> | undefined;
		const shared = (): Promise<StreamEvent<T> | undefined> => {
			waiting ??= this.next().finally(() => {
				waiting = undefined;
			});
			return waiting;
		};
		return {
			next: async ({ signal } = {}) => {
				const event = await (signal === undefined ? shared() : this.next({ signal }));
				return { done: false, value: event as StreamEvent<T> };
			},
			return: async () => {
				await this.close();
				return { done: true, value: undefined };
			},
			[Symbol.asyncIterator]() {
				return this;
			},
			[asyncDispose]: () => this.close(),
		};
	}

	/**
	 * Fetches more at once while the last batch was handled quickly: what waits here has an ack
	 * wait that runs.
	 */
	private pace(): void {
		const isQuick = this.home.now() - this.fetchedAt < QUICK_MS;
		this.ahead = isQuick ? Math.min(this.ahead * 4, PAGE, this.inFlight) : Math.max(1, Math.floor(this.ahead / 4));
	}

	private readonly settler: Settler = {
		now: async (settled) => {
			const [result] = (await this.home.call("settle", this.stream, this.name, [settled])) as unknown[];
			const error = refused(result);
			if (error !== undefined) {
				throw error;
			}
		},
		soon: async (settled) => {
			this.check();
			this.settled.push(settled);
			this.settling ??= this.settle();
			while (this.settled.length >= SETTLED_MAX) {
				await new Promise<void>((resolve) => this.capacityWaiters.push(resolve));
			}
		},
	};

	private async settle(): Promise<void> {
		// Settlements of the same turn of the event loop go together.
		await undefined;
		try {
			while (this.settled.length > 0) {
				const batch = this.settled;
				this.settled = [];
				this.wakeWaiters();
				// Twice does no harm: the second is stale.
				const results = (await this.home.ask("settle", [this.stream, this.name, batch])) as unknown[];
				this.stale += results.filter((result) => result !== null).length;
			}
		} catch (error) {
			// The next caller that takes or settles gets the error; the events come again.
			this.broken = { error };
			this.settled = [];
			this.wakeWaiters();
		} finally {
			this.settling = undefined;
		}
	}

	private wakeWaiters(): void {
		for (const wake of this.capacityWaiters.splice(0)) {
			wake();
		}
	}

	/** An error of the background is reported once. */
	private check(): void {
		const { broken } = this;
		this.broken = undefined;
		if (broken !== undefined) {
			throw broken.error;
		}
	}

	/**
	 * Events that are here and not handled, acks that are not stored yet, and acks that came too
	 * late: their events were delivered again.
	 */
	statistics(): { readonly ready: number; readonly settling: number; readonly stale: number } {
		return { ready: this.ready.size, settling: this.settled.length, stale: this.stale };
	}

	/** Waits until everything that was settled is on the disk. */
	async flush(): Promise<void> {
		while (this.settling !== undefined) {
			await this.settling;
		}
		this.check();
	}

	/**
	 * Stores the settled deliveries, and gives back the fetched and unhandled ones. Another
	 * consumer gets these at once, and that does not count as a delivery.
	 */
	async close(): Promise<void> {
		for (let event = this.ready.shift(); event !== undefined; event = this.ready.shift()) {
			await event.release();
		}
		await this.flush();
	}

	/** The same, for `await using`. */
	[asyncDispose](): Promise<void> {
		return this.close();
	}

	/** State of the consumer: its lag, its pending deliveries, its waiting events. */
	async info(): Promise<ConsumerInfo> {
		return consumerInfo(await this.home.ask("consumer_info", [this.stream, this.name]));
	}

	/** Delivers nothing more, to nobody, until it is resumed. Delivered events may be settled. */
	async pause(): Promise<void> {
		await this.home.ask("pause", [this.stream, this.name, null]);
	}

	/** Goes on with delivering. */
	async resume(): Promise<void> {
		await this.home.ask("resume", [this.stream, this.name]);
	}

	/** Goes on at another place. Pending deliveries are forgotten. */
	async seek(start: Start): Promise<void> {
		this.ready.clear();
		await this.home.call("seek", this.stream, this.name, startOf(start));
	}

	/** Events that were given up, in order, from a sequence on. */
	async deadLetters(
		options: { readonly start?: number | undefined; readonly limit?: number | undefined } = {},
	): Promise<DeadEvent<T>[]> {
		checkNames("deadLetters", options, { start: 0, limit: 0 });
		const { start = 0, limit = 100 } = options;
		const raw = (await this.home.ask("dead_letters", [this.stream, this.name, start, limit])) as unknown[];
		return raw.map((fields) => new DeadEvent<T>(fields));
	}

	/** Delivers dead letters anew, and gives how many of them there were. */
	async requeue(...sequences: readonly number[]): Promise<number> {
		return (await this.home.call("requeue", this.stream, this.name, sequences)) as number;
	}

	/** Forgets dead letters, and gives how many of them there were. */
	async dropDead(...sequences: readonly number[]): Promise<number> {
		return (await this.home.call("drop_dead", this.stream, this.name, sequences)) as number;
	}

	/** Deletes it with its dead letters. Callers that wait for its events get NotFound. */
	async delete(): Promise<void> {
		await this.home.call("delete_consumer", this.stream, this.name);
	}
}

/** Converts the description of a consumer from the storage backend. */
export function consumerInfo(raw: unknown): ConsumerInfo {
	const answer = raw as Record<string, never>;
	return {
		name: answer.name as unknown as string,
		ackedTo: Number(answer.acked_to),
		inFlight: Number(answer.in_flight),
		waiting: Number(answer.waiting),
		lag: Number(answer.lag),
		redelivered: Number(answer.redelivered),
		dead: Number(answer.dead),
		oldestTime: answer.oldest_time_us === null ? undefined : timeOf(answer.oldest_time_us),
		isPaused: answer.paused_until_us !== null,
	};
}
