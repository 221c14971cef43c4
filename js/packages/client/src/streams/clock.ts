/** The clock and the timers of a node, for the parts of it that are loaded when they are needed. */
import type { Runtime } from "../link/runtime.js";

export class Clock {
	constructor(private readonly runtime: Runtime) {}

	/** Milliseconds of a clock that never goes back. */
	now(): number {
		return this.runtime.shell.now();
	}

	/** Has something done at a time, and gives what takes that back. */
	at(time: number, run: () => void): () => void {
		const { timers } = this.runtime;
		const timer = timers.add(time, run);
		this.runtime.plan();
		return () => timers.cancel(timer);
	}

	/**
	 * Ends after some milliseconds.
	 *
	 * @throws The reason of the signal, when that aborts.
	 */
	pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
		return new Promise((resolve, reject) => {
			const ended = (): void => {
				cancel();
				signal?.removeEventListener("abort", ended);
				if (signal?.aborted) {
					reject(signal.reason);
				} else {
					resolve();
				}
			};
			const cancel = this.at(this.now() + ms, ended);
			signal?.addEventListener("abort", ended);
		});
	}
}
