/** Context of a call for its handler. */
import { ContextVariable } from "#context_variable";
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
	/** The id that the call shares with the one it was made in, and with those made in it. */
	readonly trace: string;
}

/** A call whose handler runs, or has run. */
export interface HandledCall {
	/** Undefined until its handler begins. */
	readonly context: CallContext | undefined;
	/** True once it was answered, or nobody waits for its answer. */
	readonly isOver: boolean;
}

/**
 * The call that the running code handles.
 *
 * @internal The types of the package need none of Node.
 */
export const handledCall: Pick<
	ContextVariable<HandledCall>,
	"getStore" | "run"
> = /* @__PURE__ */ new ContextVariable<HandledCall>();

/**
 * The call that the running handler handles. Under Node, Deno and Bun it survives `await`. Browsers
 * have nothing that does: there, ask before the first `await`.
 *
 * @throws InvalidArgument if no handler runs.
 */
export function context(): CallContext {
	const found = handledCall.getStore()?.context;
	if (found === undefined) {
		throw new InvalidArgument("context(): no handler runs here: in a browser, ask before its first `await`");
	}
	return found;
}
