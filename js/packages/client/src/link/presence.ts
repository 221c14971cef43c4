/** Wait for a link, with a timeout. */
import type { TidewireError } from "../error.js";
import { LinkLost, NodeStopped } from "../generated/errors.js";
import type { Runtime } from "./runtime.js";

export class Presence {
	private readonly waiting = new Set<(error?: TidewireError) => void>();

	constructor(private readonly runtime: Runtime) {}

	/** Ends when there is a link; fails when none will come, or none is there in time. */
	joined(timeoutMs = Number.POSITIVE_INFINITY): Promise<void> {
		const { link, timers } = this.runtime;
		if (link.state === "joined") {
			return Promise.resolve();
		}
		if (link.state === "closed") {
			return Promise.reject(new NodeStopped("the node was closed: connect again"));
		}
		return new Promise((resolve, reject) => {
			const late = (): void => waits(new LinkLost(link.problem));
			const timer =
				timeoutMs === Number.POSITIVE_INFINITY
					? undefined
					: timers.add(this.runtime.now + Math.max(0, timeoutMs), late);
			const waits = (error?: TidewireError): void => {
				this.waiting.delete(waits);
				timers.cancel(timer);
				if (error === undefined) {
					resolve();
				} else {
					reject(error);
				}
			};
			this.waiting.add(waits);
			this.runtime.plan();
		});
	}

	/** There is a link, or there will be none: the waiters are notified. */
	notify(error?: TidewireError): void {
		for (const waits of [...this.waiting]) {
			waits(error);
		}
	}
}
