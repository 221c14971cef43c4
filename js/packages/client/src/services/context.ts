/** Context of a call for its handler. */
import type { Visibility } from "../discovery/discovery.js";
import { InvalidArgument } from "../generated/errors.js";

/** The call that is being handled. */
export interface CallContext {
	/** The name of the calling node. */
	readonly node: string;
	/**
	 * User of the caller's token: that node, or the client over HTTP; empty where there are none.
	 */
	readonly user: string;
	/**
	 * From where the call comes: of a node that joined the hub ("private"), or over HTTP
	 * ("public").
	 */
	readonly origin: Visibility;
	readonly headers: Readonly<Record<string, string>>;
	/** Aborts when the caller has gone, gave up, or ran out of time. */
	readonly signal: AbortSignal;
	/** Milliseconds left of the time that the call may take; infinity if it may take any. */
	readonly remaining: number;
	/** The id that the call shares with the one it was made in; undefined if it has none. */
	readonly trace: string | undefined;
}

let current: CallContext | undefined;

/**
 * The call that the running handler handles. Ask before the first `await`: JavaScript does not know
 * afterwards whose turn it is.
 *
 * @throws InvalidArgument if no handler runs.
 */
export function context(): CallContext {
	if (current === undefined) {
		throw new InvalidArgument("context(): no handler runs here: call it in a handler, before its first `await`");
	}
	return current;
}

/** Runs something as part of a call. */
export function within<T>(call: CallContext, run: () => T): T {
	const before = current;
	current = call;
	try {
		return run();
	} finally {
		current = before;
	}
}
