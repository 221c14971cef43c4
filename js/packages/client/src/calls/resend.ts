/** Calls that are made again: when their link is lost, or an instance has no capacity. */
import { LinkLost, NodeStopped, NoResponders } from "../generated/errors.js";
import { LINK_RESENDS } from "../generated/limits.js";
import type { Runtime } from "../link/runtime.js";
import { type CallSite, Once, type Plan } from "./calls.js";

const RESEND_MS = 50;
/** Attempts of a call that find no capacity. */
const OVERLOADS_MAX = 16;
/** The choice of the hub among the instances that have not refused calls so. */
const WITH_CAPACITY = 3;

/**
 * Makes a call again: as often as its link is lost, if it is idempotent; while instances have no
 * capacity, at others of its hub, and last at another hub. If none takes it, the first refusal says
 * why.
 */
export async function resent(
	from: CallSite,
	plan: Plan,
	value: unknown,
	until: number,
	refusal: unknown,
): Promise<unknown> {
	const { runtime } = from;
	for (let attempt = 0; ; attempt++) {
		const once = new Once(from, refusal ? { ...plan, choice: WITH_CAPACITY } : plan);
		try {
			return await once.run(value, until);
		} catch (error) {
			const isLate = runtime.now >= until;
			if (once.isRefused && attempt < OVERLOADS_MAX && !isLate) {
				refusal ??= error;
				continue;
			}
			const isNobody = error instanceof NoResponders;
			if (refusal && (isNobody || once.isRefused || error instanceof NodeStopped)) {
				throw refusal;
			}
			// The other node may take longer to rejoin than this node.
			const isAway = error instanceof LinkLost || (attempt > 0 && isNobody);
			// A reference that returned to its owner, or a stream, belongs to one link.
			if (!plan.again || !isAway || attempt >= LINK_RESENDS || isLate || once.isOnly) {
				throw error;
			}
			await from.joined(until - runtime.now);
			if (attempt > 0) {
				await pause(runtime, RESEND_MS * 2 ** attempt);
			}
		}
	}
}

function pause(runtime: Runtime, ms: number): Promise<void> {
	return new Promise((resolve) => {
		runtime.timers.add(runtime.now + ms, () => resolve());
		runtime.plan();
	});
}
