/** A reader whose code and whose work begin with its first read. */
import type { Shell } from "../platform/shell.js";
import { asyncDispose } from "../symbols.js";
import type { Reader } from "./page_reader.js";
import { Waiters, type WaitOptions } from "./waiters.js";

/**
 * A reader that begins with its first read, or, if it is `eager`, with its loop. One that the
 * program has dropped without `return()` is closed when it is collected.
 */
export function lazyReader<T>(shell: Pick<Shell, "watch">, begin: () => Promise<Reader<T>>, eager = false): Reader<T> {
	let own: Promise<Reader<T>> | undefined;
	let source: Reader<T> | undefined;
	let isOver = false;
	let reads = 0;
	/** The reader while a read waits: it is not dropped. */
	const busy = new Set<unknown>();
	const beginning = new Waiters<Reader<T>>();
	const start = (): void => {
		own ??= begin();
		const tell = (): void => beginning.tell(own as Promise<Reader<T>>);
		own.then(tell, tell);
	};
	const end = async (): Promise<IteratorResult<T, undefined>> => {
		isOver = true;
		await (await own)?.return();
		return { done: true, value: undefined };
	};
	// No function may refer to this variable: what closes a dropped reader must not hold it.
	const reader: Reader<T> = {
		async next(options: WaitOptions = {}) {
			options.signal?.throwIfAborted();
			if (isOver) {
				return { done: true, value: undefined };
			}
			reads++;
			busy.add(this);
			try {
				if (source === undefined) {
					const waits = beginning.wait(options.signal);
					start();
					source = await waits;
				}
				return await source.next(options);
			} finally {
				if (--reads === 0) {
					busy.clear();
				}
			}
		},
		return: end,
		[Symbol.asyncIterator]() {
			if (eager) {
				start();
			}
			return this;
		},
		[asyncDispose]: async () => {
			await end();
		},
	};
	shell.watch(reader, () => void end().catch(() => {}));
	return reader;
}
