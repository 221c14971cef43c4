/**
 * The base of all errors of Tidewire; `code` is stable, and `retryable` says whether the same call
 * may succeed later.
 */
export class TidewireError extends Error {
	override readonly name: string = "TidewireError";
	/** Stable and machine-readable, as in `docs/reference/errors.md`. */
	get code(): string {
		return this.name.replace(/\B[A-Z]/g, "_$&").toLowerCase();
	}
	/** True if a retry after a pause makes sense. */
	readonly retryable: boolean = false;
	/** The traceback of the other side as text; empty if there is none. */
	remoteTraceback = "";
}
