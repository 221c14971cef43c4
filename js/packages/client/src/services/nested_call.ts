/** Calls that are made in the handler of another call. */
import type { Plan } from "../calls/calls.js";
import { encode } from "../text.js";
import { handledCall } from "./context.js";

/** The headers of W3C Trace Context and Baggage, and the id of the trace. */
const CONTEXT = /^(tw-trace|trace(parent|state)|baggage)$/;

/**
 * Makes the plan of a call a part of the call that the running code handles: it ends with that, has
 * at most the time that is left of it, and carries its trace context. After the answer only the
 * trace context is left.
 */
export function nested(): (plan: Plan) => Plan {
	const handled = handledCall.getStore();
	return (plan) => {
		// One call of a storage backend serves many handlers, such as a batch of acks.
		if (handled?.context === undefined || plan.service?.startsWith("tidewire-")) {
			return plan;
		}
		const { signal, remaining, trace, headers } = handled.context;
		const context = Object.entries({ ...headers, "tw-trace": trace })
			.filter(([name]) => CONTEXT.test(name))
			.map(([name, value]) => [name, encode(value)] as const);
		// A header that was given stays.
		const fields: Plan["fields"] = [...new Map([...context, ...plan.fields])];
		if (handled.isOver && !signal.aborted) {
			return { ...plan, fields };
		}
		return {
			...plan,
			fields,
			timeoutMs: remaining < (plan.timeoutMs ?? plan.defaultMs) ? remaining || 1 : plan.timeoutMs,
			signal: plan.signal === undefined ? signal : AbortSignal.any([plan.signal, signal]),
		};
	};
}
