/** Reads of an iterator that wait for one item. */

/** How long a read waits. */
export interface WaitOptions {
	/** Ends the wait with its reason: it has taken nothing, and the next read goes on. */
	readonly signal?: AbortSignal | undefined;
}

interface Waiter<T> {
	readonly resolve: (result: T | Promise<T>) => void;
	/** Stops listening to the signal. */
	readonly detach: () => void;
}

/** All get the same: an aborted read takes nothing from the next one. */
export class Waiters<T> {
	private waiting = new Set<Waiter<T>>();

	get size(): number {
		return this.waiting.size;
	}

	/** Waits for what is told next. */
	wait(signal: AbortSignal | undefined): Promise<T> {
		return new Promise((resolve, reject) => {
			const abort = (): void => {
				this.waiting.delete(waiter);
				reject(signal?.reason);
			};
			const detach = (): void => signal?.removeEventListener("abort", abort);
			const waiter = { resolve, detach };
			signal?.addEventListener("abort", abort);
			this.waiting.add(waiter);
		});
	}

	/** Ends all waits as a promise ends. */
	tell(result: T | Promise<T>): void {
		const waiters = this.waiting;
		this.waiting = new Set();
		for (const { resolve, detach } of waiters) {
			detach();
			resolve(result);
		}
	}
}
