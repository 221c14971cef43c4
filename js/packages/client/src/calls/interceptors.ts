/** Interceptors: functions of the program that each call of a node's clients passes. */
import type { CallOptions } from "../options.js";

/** A call of a client, as an interceptor gets it. */
export interface OutgoingCall {
	/** The name of the service. */
	readonly service: string;
	readonly method: string;
	/** The arguments of the program; the last one is `named(...)` where it gives some by name. */
	readonly args: readonly unknown[];
	readonly options: CallOptions;
	/** True if its items are read: `next` then gives a reader of them. */
	readonly isStream: boolean;
}

/**
 * A function that gets a call and makes it with `next`, as it is or with other arguments and
 * options. It gives the result of the call, or throws; without `next` no call is made. For a stream
 * its result is the reader of `next`, or an async generator.
 */
export type Interceptor = (call: OutgoingCall, next: (call: OutgoingCall) => Promise<unknown>) => unknown;
