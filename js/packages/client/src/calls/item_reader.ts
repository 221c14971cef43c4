/** The items of a call that gives a stream. */
import { InvalidArgument, LinkLost, NoResponders } from "../generated/errors.js";
import { STREAM_CREDIT } from "../generated/limits.js";
import type { Reader } from "../iterators/page_reader.js";
import { Waiters, type WaitOptions } from "../iterators/waiters.js";
import type { Caller } from "../link/exchanges.js";
import type { ExportScope } from "../objects/references.js";
import { Queue } from "../queue.js";
import { asyncDispose } from "../symbols.js";
import { Unloaded } from "../values/reader.js";
import { addressOf, type CallSite, errorOf, located, type Plan, payloadOf, readAny, type Sent, send } from "./calls.js";

/**
 * The items of a call that gives a stream. To leave a loop early, `return()`, closes the generator
 * there, and waits for that.
 */
export class ItemReader implements Reader<unknown> {
	private sent: Sent | undefined;
	private isStarted = false;
	private readonly items = new Queue<Uint8Array>();
	private readonly waiters = new Waiters<IteratorResult<unknown, undefined>>();
	private end: { readonly error: unknown } | undefined;
	private readCount = 0;
	private isUnread = false;
	private exports: ExportScope | undefined;
	private closed: (() => void)[] = [];

	constructor(
		private readonly from: CallSite,
		private readonly plan: Plan,
		private readonly value: unknown,
	) {}

	[Symbol.asyncIterator](): this {
		return this;
	}

	/** The next item. While one `next()` waits, another gets the same item. */
	async next({ signal }: WaitOptions = {}): Promise<IteratorResult<unknown, undefined>> {
		signal?.throwIfAborted();
		this.begin();
		const item = this.items.shift();
		try {
			return await (item !== undefined
				? this.read(item)
				: this.end !== undefined
					? this.ended()
					: this.waiters.wait(signal));
		} catch (error) {
			throw error === signal?.reason ? error : located(error, this.plan);
		}
	}

	/** Reads no more, and waits until the other side has closed its generator. */
	async return(): Promise<IteratorResult<unknown, undefined>> {
		this.isStarted = true;
		this.isUnread = true;
		this.items.clear();
		this.waiters.tell({ done: true, value: undefined });
		if (this.sent !== undefined && this.end === undefined) {
			this.sent.session.want(this.sent.id, 0);
			this.from.runtime.plan();
			await new Promise<void>((resolve) => this.closed.push(resolve));
		}
		this.finish({ error: undefined });
		return { done: true, value: undefined };
	}

	/** The same, for `await using`. */
	async [asyncDispose](): Promise<void> {
		await this.return();
	}

	private begin(): void {
		if (this.isStarted) {
			return;
		}
		this.isStarted = true;
		this.write();
	}

	private write(): void {
		const { plan, from } = this;
		const failed = (error: unknown): void => this.finish({ error });
		try {
			plan.signal?.throwIfAborted();
			this.exports = plan.gives ? from.exportScope(plan.peer) : undefined;
			const payload = payloadOf(this.value, plan, this.exports);
			const address = addressOf(from, plan, this.exports);
			if (typeof address === "string") {
				this.open(address, payload);
			} else {
				address.then((found) => this.open(found, payload), failed);
			}
		} catch (error) {
			if (error instanceof Unloaded) {
				from.load().then(() => this.write(), failed);
			} else {
				failed(error);
			}
		}
	}

	private open(subject: string, payload: Uint8Array): void {
		if (this.end !== undefined || this.isUnread) {
			return;
		}
		try {
			this.sent = send(this.from, this.plan, this.caller, STREAM_CREDIT, this.plan.timeoutMs ?? 0, subject, payload);
			this.plan.signal?.addEventListener("abort", this.abort);
		} catch (error) {
			this.finish({ error });
		}
	}

	private readonly abort = (): void => {
		this.sent?.session.cancel(this.sent.id);
		this.from.runtime.plan();
		this.finish({ error: this.plan.signal?.reason });
	};

	private readonly caller: Caller = {
		item: (payload) => {
			if (this.isUnread) {
				return;
			}
			if (this.waiters.size === 0) {
				this.items.push(payload);
			} else {
				this.waiters.tell(this.read(payload));
			}
		},
		completed: () => this.finish({ error: undefined }),
		replied: () => {
			const text = "it gives one value: await it, rather than read it with `for await`";
			this.finish({
				error: new InvalidArgument(`${this.plan.title}: ${text}`),
			});
		},
		failed: (failure) => errorOf(failure, this.plan, this.from, (error) => this.finish({ error })),
	};

	private async read(payload: Uint8Array): Promise<IteratorResult<unknown, undefined>> {
		this.readCount++;
		if (this.readCount >= STREAM_CREDIT / 2 && this.end === undefined && this.sent !== undefined) {
			this.sent.session.want(this.sent.id, this.readCount);
			this.from.runtime.plan();
			this.readCount = 0;
		}
		const { value } = await readAny(payload, this.from);
		return { done: false, value };
	}

	/** An error comes once; then it is over. */
	private ended(): Promise<IteratorResult<unknown, undefined>> {
		const error = this.end?.error;
		this.end = { error: undefined };
		return error === undefined ? Promise.resolve({ done: true, value: undefined }) : Promise.reject(error);
	}

	private finish(end: { readonly error: unknown }): void {
		if (this.end !== undefined) {
			return;
		}
		this.end = this.isUnread ? { error: undefined } : end;
		this.plan.signal?.removeEventListener("abort", this.abort);
		this.exports?.ended(end.error instanceof LinkLost || end.error instanceof NoResponders);
		for (const closed of this.closed.splice(0)) {
			closed();
		}
		if (this.waiters.size > 0) {
			this.waiters.tell(this.ended());
		}
	}
}
