/** Iterators over items that come in pages, such as changes and events. */
import { Queue } from "../queue.js";
import { asyncDispose } from "../symbols.js";
import { Waiters, type WaitOptions } from "./waiters.js";

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

const DONE = { done: true, value: undefined } as const;

/** Asks for a page only while a read waits: nothing but the rest of one page queues up. */
export class PageReader<T> implements Reader<T> {
	private readonly items = new Queue<T>();
	private readonly waiters = new Waiters<IteratorResult<T, undefined>>();
	private readonly leaving = new AbortController();
	private isPulling = false;
	private isOver = false;

	/**
	 * @param page Waits for the next items; undefined: there will be none. An error goes to the
	 * reads that wait, and ends nothing. Its signal aborts when the reader has ended.
	 * @param signal Ends each wait from then on.
	 * @param ended Called once, at the end.
	 */
	constructor(
		private readonly page: (signal: AbortSignal) => Promise<readonly T[] | undefined>,
		private readonly signal?: AbortSignal,
		private readonly ended: () => void = () => {},
	) {
		signal?.addEventListener("abort", this.abort);
		if (signal?.aborted) {
			this.abort();
		}
	}

	async next({ signal }: WaitOptions = {}): Promise<IteratorResult<T, undefined>> {
		signal?.throwIfAborted();
		const value = this.items.shift();
		if (value !== undefined) {
			return { done: false, value };
		}
		if (this.isOver) {
			return DONE;
		}
		const result = this.waiters.wait(signal);
		void this.pull();
		return result;
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

	private readonly abort = (): void => this.leaving.abort(this.signal?.reason);

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
					this.waiters.tell({ done: false, value });
				}
			} catch (error) {
				if (this.waiters.size > 0) {
					this.waiters.tell(Promise.reject(error));
				}
			}
		}
		this.isPulling = false;
	}

	private finish(): void {
		this.waiters.tell(DONE);
		if (!this.isOver) {
			this.isOver = true;
			this.signal?.removeEventListener("abort", this.abort);
			this.leaving.abort();
			this.ended();
		}
	}
}
