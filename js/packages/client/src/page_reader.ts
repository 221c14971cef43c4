/** Iterators over items that come in pages, such as changes and events. */
import { Queue } from "./queue.js";
import { asyncDispose } from "./symbols.js";

/** How long a read waits. */
export interface WaitOptions {
	/** Ends the wait with its reason. The read then has taken nothing, and the next read goes on. */
	readonly signal?: AbortSignal;
}

/**
 * An iterator with waits that can be given up: `for await`, or `next({ signal })`. While one
 * `next()` waits, another gets the same item: a `next()` that lost a race takes nothing while the
 * next one waits. To leave the loop, or `return()`, ends the waits and frees the reader.
 */
export interface Reader<T> extends AsyncIterableIterator<T, undefined, undefined>, AsyncDisposable {
	next(options?: WaitOptions): Promise<IteratorResult<T, undefined>>;
	return(): Promise<IteratorResult<T, undefined>>;
	[Symbol.asyncIterator](): Reader<T>;
}

interface Waiter<T> {
	readonly resolve: (result: IteratorResult<T, undefined>) => void;
	readonly reject: (error: unknown) => void;
}

const DONE = { done: true, value: undefined } as const;

/** Asks for a page only while a read waits: nothing but the rest of one page queues up. */
export class PageReader<T> implements Reader<T> {
	private readonly items = new Queue<T>();
	private readonly waiters = new Set<Waiter<T>>();
	private readonly leaving = new AbortController();
	private isPulling = false;
	private isOver = false;

	/**
	 * @param page Waits for the next items; undefined: there will be none. An error goes to the
	 * reads that wait, and ends nothing. The signal aborts when the reader has ended.
	 * @param ended Called once, at the end.
	 */
	constructor(
		private readonly page: (signal: AbortSignal) => Promise<readonly T[] | undefined>,
		private readonly ended: () => void = () => {},
	) {}

	next({ signal }: WaitOptions = {}): Promise<IteratorResult<T, undefined>> {
		return new Promise((resolve, reject) => {
			signal?.throwIfAborted();
			// A read that waits already is before this one, and its item is for both.
			const item = this.items.shift();
			if (item !== undefined) {
				resolve({ done: false, value: item });
				return;
			}
			if (this.isOver) {
				resolve(DONE);
				return;
			}
			const abort = (): void => {
				this.waiters.delete(waiter);
				reject(signal?.reason);
			};
			const told = (): void => signal?.removeEventListener("abort", abort);
			const waiter: Waiter<T> = {
				resolve: (result) => {
					told();
					resolve(result);
				},
				reject: (error) => {
					told();
					reject(error);
				},
			};
			signal?.addEventListener("abort", abort);
			this.waiters.add(waiter);
			void this.pull();
		});
	}

	async return(): Promise<IteratorResult<T, undefined>> {
		this.items.clear();
		this.finish();
		return DONE;
	}

	[Symbol.asyncIterator](): this {
		return this;
	}

	async [asyncDispose](): Promise<void> {
		await this.return();
	}

	private async pull(): Promise<void> {
		if (this.isPulling) {
			return;
		}
		this.isPulling = true;
		while (this.waiters.size > 0) {
			try {
				const page = await this.page(this.leaving.signal);
				if (page === undefined || this.isOver) {
					this.finish();
					break;
				}
				for (const item of page) {
					this.items.push(item);
				}
				const value = this.waiters.size > 0 ? this.items.shift() : undefined;
				if (value !== undefined) {
					this.tell((waiter) => waiter.resolve({ done: false, value }));
				}
			} catch (error) {
				this.tell((waiter) => waiter.reject(error));
			}
		}
		this.isPulling = false;
	}

	private finish(): void {
		this.tell((waiter) => waiter.resolve(DONE));
		if (!this.isOver) {
			this.isOver = true;
			this.leaving.abort();
			this.ended();
		}
	}

	private tell(tell: (waiter: Waiter<T>) => void): void {
		const waiters = [...this.waiters];
		this.waiters.clear();
		waiters.forEach(tell);
	}
}
