/** Reads of an iterator that wait for one item. */

/** How long a read waits. */
export interface WaitOptions {
	/** Ends the wait with its reason: it has taken nothing, and the next read goes on. */
	readonly signal?: AbortSignal | undefined;
}

interface Waiter<T> {
	readonly resolve: (result: T | Promise<T>) => void;
	/** It gets its item: its signal is of no use any more. */
	readonly taken: () => void;
}

/** All get the same: a read that was given up takes nothing from the one that follows. */
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
			const taken = (): void => signal?.removeEventListener("abort", abort);
			const waiter = { resolve, taken };
			signal?.addEventListener("abort", abort);
			this.waiting.add(waiter);
		});
	}

	/** Ends all waits as a promise ends. */
	tell(result: T | Promise<T>): void {
		const taken = this.waiting;
		this.waiting = new Set();
		for (const { resolve, taken: done } of taken) {
			done();
			resolve(result);
		}
	}
}
