/** Context variable of platforms without one of their own, such as browsers. */

/** A value that holds while a function runs, until its first `await`. */
export class ContextVariable<T> {
	private value: T | undefined;

	getStore(): T | undefined {
		return this.value;
	}

	/** Runs a function with a value. */
	run<R>(value: T | undefined, run: () => R): R {
		const before = this.value;
		this.value = value;
		try {
			return run();
		} finally {
			this.value = before;
		}
	}
}
