/** Leases: mutual exclusion for a time, with fencing tokens. */
import { InvalidArgument, LeaseLost, LinkLost, NodeStopped } from "../generated/errors.js";
import type { Node } from "../node.js";
import { checkNames, shown } from "../options.js";
import { asyncDispose } from "../symbols.js";
import type { Clock } from "./clock.js";
import { explained, Home, microseconds } from "./home.js";

const TTL_MS = 5_000;
const [TTL_MIN_MS, TTL_MAX_MS] = [50, 86_400_000];
/**
 * As the holders of other languages: renewed so often within its time, and after a renewal that
 * failed tried again after this part of it.
 */
const [RENEWALS, RETRIES] = [3, 15];

export interface LeaseOptions {
	/**
	 * Milliseconds (5,000) after which it is free if this program can't renew it any more, 50 to
	 * 86,400,000.
	 */
	readonly ttl?: number | undefined;
	/** Name of the holder, for people; the name of the node by default. */
	readonly holder?: string | undefined;
	/** Ends the wait for it. */
	readonly signal?: AbortSignal | undefined;
}

/** A lease that is held, and renewed by itself; `await node.lease(...)` waits for it. */
export class Lease {
	private readonly lost = new AbortController();
	private until = 0;
	private isReleased = false;
	private cancel = (): void => {};

	private constructor(
		private readonly home: Home,
		private readonly clock: Pick<Clock, "now" | "at">,
		readonly name: string,
		private readonly ttl: number,
		private readonly token: number,
		private readonly tokens: AsyncIterator<number>,
	) {}

	/** @internal */
	static async acquire(
		node: Node,
		clock: Pick<Clock, "now" | "at">,
		name: string,
		options: LeaseOptions,
	): Promise<Lease> {
		checkNames("lease", options, { ttl: 0, holder: 0, signal: 0 });
		const { ttl = TTL_MS, holder = node.name, signal } = options;
		if (typeof ttl !== "number" || !(ttl >= TTL_MIN_MS && ttl <= TTL_MAX_MS)) {
			const fix = `give ${TTL_MIN_MS} to ${TTL_MAX_MS} milliseconds`;
			throw new InvalidArgument(`ttl: ${shown(ttl)} is not allowed: ${fix}`);
		}
		signal?.throwIfAborted();
		const home = new Home(node, () => clock.now());
		// The hub holds the lease while this stream is read, and releases it at once when the page
		// closes.
		const tokens = home.hold(name, holder, microseconds("ttl", ttl) as number)[Symbol.asyncIterator]();
		const give = (): void => void tokens.return?.();
		signal?.addEventListener("abort", give);
		try {
			const { value, done } = await explained(tokens.next());
			signal?.throwIfAborted();
			if (done) {
				throw new LeaseLost(`lease '${name}': the hub is stopping: ask for it again`);
			}
			const lease = new Lease(home, clock, name, ttl, value, tokens);
			await lease.begin();
			return lease;
		} catch (error) {
			give();
			throw error;
		} finally {
			signal?.removeEventListener("abort", give);
		}
	}

	/**
	 * The fencing token: greater than that of everybody who held it before. Give it to stores that
	 * can compare it.
	 *
	 * @throws LeaseLost if the lease is not held.
	 */
	get fence(): number {
		if (!this.isHeld) {
			throw this.lossError("it is no longer held: stop the protected work; another may hold it");
		}
		return this.token;
	}

	/**
	 * True if the lease is certainly held, by the clock of this program, counted from before the
	 * request.
	 */
	get isHeld(): boolean {
		return !this.isReleased && !this.lost.signal.aborted && this.clock.now() < this.until;
	}

	/** Aborts with LeaseLost when it is lost: for the protected work. */
	get signal(): AbortSignal {
		return this.lost.signal;
	}

	private lossError(problem: string): LeaseLost {
		return new LeaseLost(`lease '${this.name}': ${problem}`);
	}

	private async begin(): Promise<void> {
		// The age of the grant is unknown: the lease counts from the first renewal.
		const requestTime = this.clock.now();
		await this.home.call("renew", this.name, this.token);
		this.until = requestTime + this.ttl;
		this.plan(requestTime + this.ttl / RENEWALS);
		const ended = (): void => this.lose("its hub has let it go, or the link was lost");
		this.tokens.next().then(ended, ended);
	}

	/** Renews it at a time; where that is too late it is lost. */
	private plan(at: number): void {
		this.cancel();
		this.cancel = this.clock.at(Math.min(at, this.until), () => {
			if (this.clock.now() >= this.until) {
				this.lose("it could not be renewed in time");
			} else {
				void this.renew();
			}
		});
	}

	private async renew(): Promise<void> {
		const requestTime = this.clock.now();
		// The renewal may take longer than the lease.
		this.plan(this.until);
		try {
			await this.home.call("renew", this.name, this.token);
			this.until = Math.max(this.until, requestTime + this.ttl);
			this.plan(requestTime + this.ttl / RENEWALS);
		} catch (error) {
			if (error instanceof LeaseLost) {
				this.lose("it was not renewed in time");
			} else {
				this.plan(this.clock.now() + this.ttl / RETRIES);
			}
		}
		if (this.isReleased || this.lost.signal.aborted) {
			this.cancel();
		}
	}

	private lose(problem: string): void {
		this.cancel();
		if (!this.isReleased) {
			this.lost.abort(this.lossError(`${problem}: the protected work may run twice`));
		}
	}

	/**
	 * Gives it back. A second time does nothing.
	 *
	 * @throws LeaseLost if it was lost meanwhile: the protected work may have run twice.
	 */
	async release(): Promise<void> {
		if (this.isReleased) {
			return;
		}
		const { isHeld } = this;
		this.isReleased = true;
		this.cancel();
		try {
			if (isHeld) {
				await this.home.call("release", this.name, this.token);
			}
		} catch (error) {
			// Where the link has ended, the hub gives it back.
			if (!(error instanceof LinkLost || error instanceof NodeStopped)) {
				throw error;
			}
		} finally {
			await this.tokens.return?.();
		}
		if (!isHeld) {
			throw this.lost.signal.reason ?? this.lossError("it was lost: the protected work may have run twice");
		}
	}

	/** The same, for `await using`. */
	[asyncDispose](): Promise<void> {
		return this.release();
	}
}
