/** Calls that are made in the handler of another call. */
import type { Plan } from "../calls/calls.js";
import { encode } from "../text.js";
import { handledCall } from "./context.js";

/** Services of Tidewire itself: one call of them serves many handlers, such as a batch of acks. */
const OWN = /^(tidewire-|\$)/;

/**
 * The plan of a call as a part of the call that the running code handles: it ends with that, has
 * at most the time that is left of it, and carries its trace. After the answer only the trace is
 * left.
 */
export function nested(plan: Plan): Plan {
	const handled = handledCall.getStore();
	if (handled === undefined || OWN.test(plan.service ?? "")) {
		return plan;
	}
	const { context, isOver } = handled;
	const { signal, remaining, trace } = context;
	const fields: Plan["fields"] = [...plan.fields, ["tw-trace", encode(trace)]];
	if (isOver && !signal.aborted) {
		return { ...plan, fields };
	}
	const isShorter = remaining < (plan.timeoutMs ?? plan.defaultMs);
	return {
		...plan,
		fields,
		timeoutMs: isShorter ? Math.max(1, remaining) : plan.timeoutMs,
		signal: plan.signal === undefined ? signal : AbortSignal.any([plan.signal, signal]),
	};
}
