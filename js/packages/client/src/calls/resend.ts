/** Calls that are made again when their link is lost. */
import { LinkLost, NoResponders } from "../generated/errors.js";
import { LINK_RESENDS } from "../generated/limits.js";
import type { Runtime } from "../link/runtime.js";
import { type CallSite, Once, type Plan } from "./calls.js";

const RESEND_MS = 50;

/** Makes a call, and makes it again as often as its link is lost, within its time. */
export async function resent(from: CallSite, plan: Plan, value: unknown, total: number): Promise<unknown> {
	const { runtime } = from;
	const until = runtime.now + total;
	for (let attempt = 0; ; attempt++) {
		const once = new Once(from, plan);
		try {
			return await once.run(value, Math.max(1, until - runtime.now));
		} catch (error) {
			// The other node may take longer to rejoin than this node.
			const isAway = error instanceof LinkLost || (attempt > 0 && error instanceof NoResponders);
			// A reference that returned to its owner, or a stream, belongs to one link.
			if (!isAway || attempt >= LINK_RESENDS || runtime.now >= until || once.isOnly) {
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
