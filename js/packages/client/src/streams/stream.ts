/** Streams: durable ordered logs of events. */
import { InvalidArgument } from "../generated/errors.js";
import { CONSUMER_IN_FLIGHT, CONSUMER_IN_FLIGHT_MAX } from "../generated/limits.js";
import { PageReader, type Reader } from "../iterators/page_reader.js";
import { checkNames, shown } from "../options.js";
import { Consumer, type ConsumerInfo, consumerInfo } from "./consumer.js";
import { type Message, messageOf, type PublishOptions, StreamEvent } from "./event.js";
import {
	type Home,
	microseconds,
	oneOf,
	PAGE,
	PAGE_BYTES,
	patternsOf,
	type Start,
	startOf,
	timeOf,
	WAIT_US,
} from "./home.js";
import { type Ack, Publisher } from "./publisher.js";
import { type Schedule, type ScheduleOptions, scheduleInfo, whenOf } from "./schedule.js";

const BROADCAST_US = 3_600_000_000;

/** Settings of a stream. Times are in milliseconds. */
export interface StreamSettings {
	/** Subjects of its events: patterns, such as `orders.>`. */
	readonly subjects: readonly string[];
	/** After which time events are forgotten. */
	readonly maxAge?: number | undefined;
	/** Its largest size on disk. */
	readonly maxBytes?: number | undefined;
	/** How many events it may have. */
	readonly maxMessages?: number | undefined;
	/** Behavior at a limit: publishing is refused, or the oldest events go. */
	readonly full?: "refuse" | "drop_old" | undefined;
	/** How long an `id` is remembered (120,000); 0 for not at all. */
	readonly dedupe?: number | undefined;
	/** On how many servers it is kept; 1 in a folder. */
	readonly replicas?: number | undefined;
}

/** State of a stream. */
export interface StreamInfo {
	readonly name: string;
	readonly subjects: readonly string[];
	/** How many events it has. */
	readonly messages: number;
	/** Size on disk. */
	readonly bytes: number;
	/** The oldest event; one more than `last` if there is none. */
	readonly first: number;
	/** The newest event that was ever there. */
	readonly last: number;
	/** Messages that wait for their time. */
	readonly delayed: number;
	/** Dead letters of its consumers. */
	readonly dead: number;
	readonly consumers: number;
	readonly firstTime: Date | undefined;
	readonly lastTime: Date | undefined;
}

/** Settings of a consumer. Times are in milliseconds. */
export interface ConsumerSettings {
	/** Which subjects: a pattern or several; all if there is none. */
	readonly filter?: string | readonly string[] | undefined;
	/**
	 * "compete": all who take from it share its events, and it is kept. "broadcast": a cursor of
	 * its own, which gets all events, and goes an hour after its last use.
	 */
	readonly mode?: "compete" | "broadcast" | undefined;
	/** Where it begins when it is made ("new"). */
	readonly start?: Start | undefined;
	/** After which time a delivery that is not settled counts as failed (30,000). */
	readonly ackWait?: number | undefined;
	/** After so many failed deliveries an event is a dead letter (5); 0 for never. */
	readonly maxDeliver?: number | undefined;
	/**
	 * How long to wait before the second, third, ... delivery; the last for all further ones (100,
	 * 1,000, 10,000).
	 */
	readonly backoff?: readonly number[] | undefined;
	/** How many deliveries may be out at once, over all who take (1,000). */
	readonly maxInFlight?: number | undefined;
	/** "key": an event waits until all earlier ones of its key are acked or dead. */
	readonly order?: "none" | "key" | undefined;
}

export interface ReadOptions {
	/** Where to begin ("all"). */
	readonly start?: Start | undefined;
	/** The last sequence. */
	readonly stop?: number | undefined;
	readonly filter?: string | readonly string[] | undefined;
	/** If true, the reader waits for more at the end. */
	readonly follow?: boolean | undefined;
	/** If false, payloads are empty: such events are for tokens with `inspect`, too. */
	readonly payloads?: boolean | undefined;
	/** Ends the wait. */
	readonly signal?: AbortSignal | undefined;
}

/** A stream; `await node.stream(...)` makes one, or finds it. */
export class Stream<T = unknown> {
	private readonly publisher: Publisher;

	/** @internal */
	constructor(
		private readonly home: Home,
		readonly name: string,
		private readonly unique: () => string,
	) {
		this.publisher = new Publisher(home, name);
	}

	/**
	 * Stores a message, and gives its ack: it is on the disk then. Messages that are published
	 * without waiting for each other's acks share calls and syncs, and keep their order; up to
	 * 10,000 may wait for theirs.
	 *
	 * @throws StreamFull if the stream is at its limit, and refuses; InvalidArgument if an argument
	 * is not allowed, or the stream does not take the subject; LimitExceeded if 10,000 wait
	 * already; LinkLost: it is not known whether it was stored. With an `id` it can be published
	 * again.
	 */
	publish(subject: string, value: T, options: PublishOptions = {}): Promise<Ack> {
		return this.publisher.publish(subject, value, options);
	}

	/**
	 * Ends when there is room for a message to `publish`: for programs that have more of them than
	 * may wait.
	 */
	room(): Promise<void> {
		return this.publisher.room();
	}

	/** Stores messages, at most 1,000, together: all or none. */
	batch(messages: readonly Message[]): Promise<Ack[]> {
		return this.publisher.batch(messages);
	}

	/**
	 * Has the storage backend publish a message again and again, also while no program runs: at
	 * the beats of a cron expression such as "0 22 * * 1-5", "@daily", or every so many
	 * milliseconds. Each beat is an event with the header `Tidewire-Schedule`, which has the name.
	 * A schedule with the same settings goes on as it was, one with others is replaced; `change`
	 * says which.
	 *
	 * @throws InvalidArgument if an argument is not allowed, or the stream does not take the
	 * subject; LimitExceeded if there are as many as there may be; Unsupported if the stream
	 * refuses messages when it is full, or the storage backend can't do it.
	 */
	async schedule(
		name: string,
		when: string | number,
		subject: string,
		value: T,
		options: ScheduleOptions = {},
	): Promise<Schedule<T>> {
		checkNames("schedule", options, { timeZone: 0, key: 0, headers: 0, content: 0, ttl: 0 });
		const { timeZone = "UTC", ...rest } = options;
		const message = messageOf(subject, value, rest);
		return scheduleInfo(await this.home.ask("create_schedule", [this.name, name, whenOf(when), timeZone, message]));
	}

	/** Its schedules, by name. */
	async schedules(): Promise<Schedule<T>[]> {
		return ((await this.home.ask("list_schedules", [this.name])) as unknown[]).map(scheduleInfo<T>);
	}

	/** Ends a schedule: no further beat comes. False if there is none of this name. */
	async cancelSchedule(name: string): Promise<boolean> {
		return (await this.home.call("cancel_schedule", this.name, name)) as boolean;
	}

	/**
	 * Makes a consumer, or finds the one of this name.
	 *
	 * @throws SettingsDiffer if it exists with other settings.
	 */
	async consumer(name: string, settings: ConsumerSettings = {}): Promise<Consumer<T>> {
		const delivery = { ackWait: 0, maxDeliver: 0, backoff: 0, maxInFlight: 0 };
		checkNames("consumer", settings, { filter: 0, mode: 0, start: 0, order: 0, ...delivery });
		const {
			mode = "compete",
			order = "none",
			maxInFlight = CONSUMER_IN_FLIGHT,
			maxDeliver = 5,
			ackWait = 30_000,
		} = settings;
		const { backoff = [100, 1_000, 10_000], start = "new", filter } = settings;
		const isOwn = oneOf("mode", mode, ["compete", "broadcast"]) === "broadcast";
		oneOf("order", order, ["none", "key"]);
		if (!Number.isInteger(maxInFlight) || maxInFlight < 1 || maxInFlight > CONSUMER_IN_FLIGHT_MAX) {
			const fix = `give 1 to ${CONSUMER_IN_FLIGHT_MAX}`;
			throw new InvalidArgument(`maxInFlight: ${shown(maxInFlight)} is not allowed: ${fix}`);
		}
		const own = isOwn ? `${name}-${this.unique()}` : name;
		const created = (await this.home.ask("create_consumer", [
			this.name,
			own,
			patternsOf(filter),
			startOf(start),
			microseconds("ackWait", ackWait),
			maxDeliver,
			backoff.map((ms) => microseconds("backoff", ms)),
			maxInFlight,
			order === "key",
			isOwn ? BROADCAST_US : 0,
		])) as { readonly name: string };
		return new Consumer<T>(this.home, this.name, created.name, maxInFlight);
	}

	/** Events without any state: a replay. A link that is lost meanwhile is waited for. */
	read(options: ReadOptions = {}): Reader<StreamEvent<T>> {
		checkNames("read", options, { start: 0, stop: 0, filter: 0, follow: 0, payloads: 0, signal: 0 });
		const { stop = null, follow = false } = options;
		const call = options.payloads === false ? "list_events" : "read";
		const filter = patternsOf(options.filter);
		let at = startOf(options.start ?? "all");
		let isLast = false;
		return new PageReader(async (signal) => {
			if (isLast) {
				return undefined;
			}
			const args = [this.name, at, stop, filter, PAGE, PAGE_BYTES, follow ? WAIT_US : 0];
			const [events, following, last] = (await this.home.ask(call, args, signal)) as [unknown[], number, number];
			isLast = (stop !== null && following > stop) || (!follow && following > last);
			at = startOf(following);
			return events.map((fields) => new StreamEvent<T>(fields));
		}, options.signal);
	}

	/** State of the stream. */
	async info(): Promise<StreamInfo> {
		return streamInfo(await this.home.ask("stream_info", [this.name]));
	}

	/** Its consumers, by name. */
	async consumers(): Promise<ConsumerInfo[]> {
		return ((await this.home.ask("list_consumers", [this.name])) as unknown[]).map(consumerInfo);
	}

	/**
	 * Removes events: all, those before a sequence, all but the newest, or those of some subjects.
	 * Gives how many.
	 */
	async purge(
		options: {
			readonly before?: number | undefined;
			readonly keep?: number | undefined;
			readonly filter?: string | undefined;
		} = {},
	): Promise<number> {
		checkNames("purge", options, { before: 0, keep: 0, filter: 0 });
		const { before = null, keep = null, filter = null } = options;
		return (await this.home.call("purge", this.name, before, keep, filter)) as number;
	}

	/** Deletes it with its consumers and dead letters. */
	async delete(): Promise<void> {
		await this.home.call("delete_stream", this.name);
	}
}

/** Converts the description of a stream from the storage backend. */
export function streamInfo(raw: unknown): StreamInfo {
	const answer = raw as Omit<StreamInfo, "firstTime" | "lastTime"> & Record<"first_time_us" | "last_time_us", unknown>;
	const { name, subjects, messages, bytes, first, last, delayed, dead, consumers } = answer;
	const [firstTime, lastTime] = [answer.first_time_us, answer.last_time_us].map((time) =>
		time === null ? undefined : timeOf(time),
	);
	return { name, subjects, messages, bytes, first, last, delayed, dead, consumers, firstTime, lastTime };
}
