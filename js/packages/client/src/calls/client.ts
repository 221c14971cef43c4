/** Clients of services: what their calls look like in TypeScript. */

import type { Reader } from "../iterators/page_reader.js";
import type { CallOptions, Named } from "../options.js";
import type { CommandRun, StartOptions } from "../streams/commands.js";

/**
 * A call that gives one value. It is made once, at the end of the running turn of the program, also
 * if nobody awaits it. If nobody handles its failure, that is an unhandled rejection.
 */
export type Call<T> = Promise<T>;

/**
 * A call that gives items. It is made when it is read; leaving the loop early closes the generator
 * on the other side. Read it in the turn of the program that makes it: later, the client first asks
 * for one value, which a stream refuses.
 */
export interface Items<T> extends AsyncIterable<T> {
	[Symbol.asyncIterator](): Reader<T>;
}

// biome-ignore lint/suspicious/noExplicitAny: arguments of any names.
type AnyNames = any;

/** Parameters of a method by name, where `tidewire generate ts` has written them. */
type NamesOf<T, K> = T extends { $parameters?: infer P }
	? K extends keyof NonNullable<P>
		? NonNullable<P>[K] & object
		: AnyNames
	: AnyNames;

/** The arguments by position of a method, without those by name at the end. */
type ByPosition<A extends readonly unknown[]> = A extends readonly [...infer H, Named] ? H : A;

/** All first parts of a list of arguments. */
type First<A extends readonly unknown[]> = A extends readonly [infer H, ...infer T] ? [] | [H, ...First<T>] : A;

/**
 * A method of a client: it takes the parameters of the method, or some of them by position and the
 * rest by name, at the end.
 */
export type Method<F, P extends object = AnyNames> = F extends (...args: infer A) => infer R
	? (
			...args: A | [...First<Required<ByPosition<A>>>, Named<P>]
		) => R extends AsyncIterable<infer I> | Iterable<infer I>
			? R extends string
				? Call<R>
				: R extends readonly unknown[] | ReadonlyMap<unknown, unknown> | ReadonlySet<unknown> | ArrayBufferView
					? Call<R>
					: Items<I>
			: Call<Awaited<R>>
	: never;

/** A command of a service, as `tidewire generate ts` writes it: it is started, not called. */
export interface Command<A extends readonly unknown[] = readonly unknown[], R = unknown> {
	/**
	 * Starts the command, with its arguments by position, or the last ones by name.
	 *
	 * @throws As {@link Commands.start} does.
	 */
	start(...args: A | [...First<Required<ByPosition<A>>>, Named<AnyNames>]): Promise<CommandRun<R>>;
	/** The same command with the options of its start. */
	with(options: StartOptions): Pick<Command<A, R>, "start">;
}

/** Any service: its methods take and give values of unknown types. */
export interface AnyService {
	// Both: the caller awaits it, or reads it.
	[method: string]: (...args: never[]) => Call<unknown> & Items<unknown>;
}

/** Calls the methods of a service. */
export type Client<T = AnyService> = [T] extends [string]
	? UntypedClient<T>
	: string extends keyof T
		? UntypedClient
		: {
				readonly [K in keyof T as T[K] extends (...args: never[]) => unknown ? K : never]: Method<T[K], NamesOf<T, K>>;
			} & {
				readonly [K in keyof T as T[K] extends { with(options: StartOptions): { start(...args: never[]): unknown } }
					? K
					: never]: T[K];
			} & {
				/** The same client, whose calls are made otherwise. */
				with(options: CallOptions): Client<T>;
			};

/** A client without types: all is unknown, but for the names of methods where they are given. */
export type UntypedClient<Names extends string = string> = {
	with(options: CallOptions): UntypedClient<Names>;
} & {
	readonly [K in Names]: ((...args: unknown[]) => Call<unknown> & Items<unknown>) & Command;
};

/** Answer of one instance to a call of all instances. */
export interface Answer<T = unknown> {
	readonly instance: string;
	/** Its result; undefined if it failed. */
	readonly value: T | undefined;
	/** Why it failed; undefined if it did not. */
	readonly error: unknown;
}

/**
 * Names that are no method of a service. Promises treat an object with a `then` as a promise, and
 * JavaScript calls the others to make text of an object.
 */
const OWN = /^(then|toJSON|toString|valueOf)$/;

/** Makes an object whose every property is a method. */
export function clientOf(method: (name: string) => unknown, within: (options: CallOptions) => unknown): unknown {
	const known = new Map<unknown, unknown>([["with", within]]);
	return new Proxy(Object.freeze(Object.create(null)) as object, {
		get(_, name) {
			if (typeof name === "string" && !known.has(name)) {
				known.set(name, OWN.test(name) ? undefined : method(name));
			}
			return known.get(name);
		},
		has: (_, name) => typeof name === "string" && !OWN.test(name),
	});
}
