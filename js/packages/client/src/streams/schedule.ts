/** Schedules: messages that a storage backend publishes by itself, again and again. */
import { InvalidArgument } from "../generated/errors.js";
import { shown } from "../options.js";
import { type PublishOptions, StreamEvent } from "./event.js";
import { microseconds, timeOf } from "./home.js";

/** Fields of a schedule beside its time and its value. */
export interface ScheduleOptions extends Pick<PublishOptions, "key" | "headers" | "content" | "ttl"> {
	/** Time zone of the expression, such as "Europe/Berlin" ("UTC"). */
	readonly timeZone?: string | undefined;
}

/** A schedule, as it was when the storage backend was asked. */
export interface Schedule<T = unknown> {
	readonly name: string;
	/** Its cron expression, or `@every 30s`. */
	readonly when: string;
	readonly timeZone: string;
	/** Where its beats are published. */
	readonly subject: string;
	readonly value: T;
	readonly key: string | undefined;
	/** The type of the content among them. */
	readonly headers: Readonly<Record<string, string>>;
	/** After which time a beat is not delivered any more, in milliseconds. */
	readonly ttl: number | undefined;
	/** Its next beat. */
	readonly nextTime: Date | undefined;
	/**
	 * Change that `stream.schedule` made: "made" it, "replaced" one with other settings, or "kept"
	 * the present one.
	 */
	readonly change: "made" | "replaced" | "kept";
}

/** The time of a schedule in the form of storage backends: milliseconds as an interval. */
export function whenOf(when: string | number): string {
	if (typeof when === "string") {
		return when;
	}
	const micros = microseconds("when", when);
	if (!micros || micros % 1_000_000 !== 0) {
		const fix = 'give "0 22 * * 1-5", "@daily" or milliseconds that are whole seconds';
		throw new InvalidArgument(`when: ${shown(when)} is not allowed: ${fix}`);
	}
	return `@every ${micros / 1_000_000}s`;
}

/** Converts the description of a schedule from the storage backend. */
export function scheduleInfo<T>(raw: unknown): Schedule<T> {
	const answer = raw as ScheduleAnswer;
	const { name, when, subject, change } = answer;
	const message = [subject, answer.payload, answer.key, null, answer.headers, 0, 0, 0, 0];
	const { value, key, headers } = new StreamEvent<T>(message);
	const ttl = answer.ttl_us === null ? undefined : Number(answer.ttl_us) / 1000;
	const nextTime = answer.next_us === null ? undefined : timeOf(answer.next_us);
	return { name, when, timeZone: answer.time_zone, subject, value, key, headers, ttl, nextTime, change };
}

interface ScheduleAnswer extends Pick<Schedule, "name" | "when" | "subject" | "change"> {
	readonly time_zone: string;
	readonly payload: Uint8Array;
	readonly key: string | null;
	readonly headers: readonly (readonly [string, string])[];
	readonly ttl_us: unknown;
	readonly next_us: unknown;
}
