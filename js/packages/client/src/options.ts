/** Options of calls: named arguments, and the options of `client.with(...)`. */

import { InvalidArgument } from "./generated/errors.js";
import { CALL_HEADERS } from "./generated/limits.js";
import { encode } from "./text.js";
import { tuple } from "./values/kinds.js";
import type { Fields } from "./wire/frames.js";

/** Arguments by name; see `named`. Their types and names are those of the parameters. */
// biome-ignore lint/suspicious/noExplicitAny: arguments of any names.
export class Named<T extends object = any, Name = keyof T> {
	/** Types only: a method takes no other names than those of its parameters. */
	declare readonly names?: Name;

	constructor(readonly fields: T) {}
}

/** Arguments by name, as the last argument of a call: `quote("X", named({ qty: 3 }))`. */
export function named<T extends object>(values: T): Named<T> {
	if (typeof values !== "object" || values === null || Object.getPrototypeOf(values) !== Object.prototype) {
		throw new InvalidArgument(`named: ${typeof values} is not allowed: give an object of arguments by name`);
	}
	return new Named(values);
}

/** Which calls go first where some wait. */
export type Priority = "urgent" | "high" | "normal" | "low";
/**
 * Which instance gets a call: the one with the least calls in progress, the one served longest,
 * any, or all of them.
 */
export type Policy = "least_outstanding" | "first" | "random" | "all";

/** How calls are made. */
export interface CallOptions {
	/** Milliseconds until AskTimeout: 30,000; a stream has none unless it is given here. */
	readonly timeout?: number | undefined;
	/** Ends the call, and its handler, when it aborts; the call fails with its reason. */
	readonly signal?: AbortSignal | undefined;
	readonly priority?: Priority | undefined;
	/** Headers for the handler's context. */
	readonly headers?: Readonly<Record<string, string>> | undefined;
	/** The id of the instance that is called. */
	readonly instance?: string | undefined;
	readonly policy?: Policy | undefined;
	/**
	 * True if the call is made again when the link is lost: only for methods that may run twice.
	 */
	readonly idempotent?: boolean | undefined;
}

const LANES: Readonly<Record<Priority, number>> = {
	urgent: 0,
	high: 1,
	normal: 2,
	low: 3,
};
const CHOICES: Readonly<Record<Policy, number>> = {
	least_outstanding: 0,
	first: 1,
	random: 2,
	all: 0,
};
const REQUEST_NAMES = { timeout: 0, signal: 0, priority: 0, headers: 0, idempotent: 0 };
const CALL_NAMES = { ...REQUEST_NAMES, instance: 0, policy: 0 };
const TIMEOUT_MAX = 86_400_000;

export function laneOf(priority: Priority | undefined): number {
	return LANES[priority ?? "normal"];
}

export function choiceOf(policy: Policy | undefined): number {
	return CHOICES[policy ?? "least_outstanding"];
}

/** Refuses options that do not exist, and says which one has the most similar name. */
export function checkNames<T extends object>(
	title: string,
	options: T,
	names: Readonly<Record<keyof T, unknown>>,
): void {
	for (const name of Object.keys(options)) {
		if (!Object.hasOwn(names, name)) {
			const known = Object.keys(names).sort((one, other) => distance(name, one) - distance(name, other));
			throw new InvalidArgument(
				`${title}: there is no option '${name}': the most similar is '${known[0]}', of ${known.join(", ")}`,
			);
		}
	}
}

/** How many letters must be added, removed or replaced to make one name of another. */
function distance(one: string, other: string): number {
	let row = [...other, ""].map((_, at) => at);
	for (const letter of one) {
		let corner = row[0] as number;
		let left = corner + 1;
		row = row.map((above, at) => {
			if (at > 0) {
				left = Math.min(left + 1, above + 1, corner + Number(letter.toLowerCase() !== other[at - 1]?.toLowerCase()));
			}
			corner = above;
			return left;
		});
	}
	return row.at(-1) as number;
}

/**
 * Returns the options, and refuses those that are not allowed; a request has no instances to choose
 * from.
 */
export function checkOptions(options: CallOptions, title: "with" | "request" = "with"): CallOptions {
	const refuse = (name: string, value: unknown, fix: string): never => {
		throw new InvalidArgument(`${title}: ${name}: ${shown(value)} is not allowed: ${fix}`);
	};
	const oneOf = (names: object): string => `use one of ${Object.keys(names).join(", ")}`;
	checkNames<CallOptions>(title, options, title === "with" ? CALL_NAMES : (REQUEST_NAMES as typeof CALL_NAMES));
	const { priority, headers, instance, policy } = options;
	checkTimeout(`${title}: timeout`, options.timeout);
	if (priority !== undefined && !Object.hasOwn(LANES, priority)) {
		refuse("priority", priority, oneOf(LANES));
	}
	if (policy !== undefined && !Object.hasOwn(CHOICES, policy)) {
		refuse("policy", policy, oneOf(CHOICES));
	}
	if (instance !== undefined && (typeof instance !== "string" || !/^[^\s.*>]+$/.test(instance))) {
		refuse("instance", instance, "give the id of an instance");
	}
	if (instance !== undefined && policy === "all") {
		refuse("instance", instance, "not beside policy 'all': give one of them");
	}
	if (headers !== undefined) {
		headerFields(headers, `${title}: headers`);
	}
	return options;
}

/** Refuses values that are no timeout in milliseconds. */
export function checkTimeout(name: string, value: unknown): void {
	if (value !== undefined && !(typeof value === "number" && value > 0 && value <= TIMEOUT_MAX)) {
		throw new InvalidArgument(
			`${name}: ${shown(value)} is not allowed: give milliseconds, more than 0 and at most ${TIMEOUT_MAX}`,
		);
	}
}

/** Headers as the fields of a frame. */
export function headerFields(headers: Readonly<Record<string, string>> | undefined, name = "headers"): Fields {
	if (headers === undefined) {
		return [];
	}
	const entries = Object.entries(headers);
	if (entries.length > CALL_HEADERS || entries.some(([, value]) => typeof value !== "string")) {
		throw new InvalidArgument(
			`${name}: ${shown(headers)} is not allowed: give at most ${CALL_HEADERS} strings by strings`,
		);
	}
	const owned = entries.find(([key]) => key.startsWith("tw-"));
	if (owned !== undefined) {
		throw new InvalidArgument(
			`${name}: '${owned[0]}' is not allowed: names that begin with tw- are Tidewire's own; choose another one`,
		);
	}
	return entries.map(([key, value]) => [key, encode(value)]);
}

/** Arguments by position, and those by name if there are any. */
export function splitArguments(args: readonly unknown[]): [positional: readonly unknown[], byName: object | undefined] {
	const last = args.at(-1);
	return last instanceof Named ? [args.slice(0, -1), last.fields] : [args, undefined];
}

/** The arguments of a call as one value: a tuple, or that and those by name. */
export function argumentsOf(args: readonly unknown[]): unknown {
	const [positional, byName] = splitArguments(args);
	return byName === undefined ? tuple(...positional) : [tuple(...positional), byName];
}

/** A value in the text of an error. */
export function shown(value: unknown): string {
	let text: string;
	try {
		text = typeof value === "string" ? `'${value}'` : (JSON.stringify(value) ?? String(value));
	} catch {
		text = Object.prototype.toString.call(value);
	}
	return text.length > 80 ? `${text.slice(0, 80)}...` : text;
}
