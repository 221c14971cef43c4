/** Calls of other nodes: one value, or a stream of items. */
import { TidewireError } from "../error.js";
import { AskTimeout, InvalidArgument, LinkLost, NodeStopped, NoResponders, WireError } from "../generated/errors.js";
import { LINK_RESENDS, STREAM_CREDIT } from "../generated/limits.js";
import { Waiters, type WaitOptions } from "../iterators/waiters.js";
import { type Caller, errorOfNumber } from "../link/exchanges.js";
import type { Runtime } from "../link/runtime.js";
import type { Session } from "../link/session.js";
import type { ExportScope } from "../objects/references.js";
import { Queue } from "../queue.js";
import { asyncDispose } from "../symbols.js";
import { decodeLenient } from "../text.js";
import { readLoaded, type Take, Unloaded } from "../values/reader.js";
import { writeValue } from "../values/writer.js";
import type { Fields, Id } from "../wire/frames.js";

/** Environment of outbound calls: clock, references and link. */
export interface CallSite {
	readonly runtime: Runtime;
	/** Exports of one call; undefined while their code is not loaded. */
	giving(peer: number | undefined): ExportScope | undefined;
	/** Converts references among received values. */
	readonly take: Take;
	/** Loads the code for values of rare kinds, and for what goes by reference. */
	load(): Promise<unknown>;
	/** Ends when there is a link, or none will come; false: not within that time. */
	joined(timeoutMs: number): Promise<void>;
	/** The instance of a service that is on a node. */
	instanceAt(service: string, node: string): Promise<string>;
}

/** How a call is to be made. */
export interface Plan {
	/** Name of the call in error messages. */
	readonly title: string;
	/** The subject for an instance, where the call is for one. */
	readonly subject: (instance?: string) => string;
	readonly service?: string;
	readonly fields: Fields;
	readonly lane: number;
	/** Milliseconds; undefined: what its kind has. */
	readonly timeoutMs: number | undefined;
	readonly defaultMs: number;
	readonly choice: number;
	readonly again: boolean;
	readonly signal: AbortSignal | undefined;
	/** The number of the node that is called, where that is known. */
	readonly peer?: number;
	/** True if functions and objects may be given. */
	readonly gives: boolean;
	/** Notes that the callee has gone. */
	readonly gone?: () => void;
}

const RESEND_MS = 50;

interface Sent {
	readonly session: Session;
	readonly id: Id;
}

/** Sends a call, and gives where it is then. */
function send(
	from: CallSite,
	plan: Plan,
	caller: Caller,
	credit: number,
	timeoutMs: number,
	subject: string,
	payload: Uint8Array,
): Sent {
	const session = from.runtime.session;
	const { fields, lane, choice, again } = plan;
	const outgoing = {
		subject,
		fields,
		payload,
		lane,
		deadlineMs: timeoutMs,
		choice,
		credit,
		again: again && credit === 0,
	};
	const id = session.call(outgoing, caller, from.runtime.now);
	from.runtime.plan();
	return { session, id };
}

/** Where a call goes: what gives something back goes to its owner, who is looked for. */
function addressOf(from: CallSite, plan: Plan, giving: ExportScope | undefined): string | Promise<string> {
	const owner = giving?.owner;
	return owner === undefined || plan.service === undefined
		? plan.subject()
		: from.instanceAt(plan.service, owner).then(plan.subject);
}

/** Writes the arguments of a call. */
function written(value: unknown, plan: Plan, giving: ExportScope | undefined): Uint8Array {
	return writeValue(value, giving?.give ?? (plan.gives ? unloaded : undefined), plan.title);
}

function unloaded(): never {
	throw new Unloaded();
}

/** Makes a call that gives one value. */
export function callValue(from: CallSite, plan: Plan, value: unknown): Promise<unknown> {
	const total = plan.timeoutMs ?? plan.defaultMs;
	return plan.again ? resent(from, plan, value, total) : new Once(from, plan).run(value, total);
}

/** Makes a call, and makes it again as often as its link is lost, within its time. */
async function resent(from: CallSite, plan: Plan, value: unknown, total: number): Promise<unknown> {
	const { runtime } = from;
	const until = runtime.now + total;
	for (let attempt = 0; ; attempt++) {
		const once = new Once(from, plan);
		try {
			return await once.run(value, Math.max(1, until - runtime.now));
		} catch (error) {
			// The other node may take longer to rejoin than this node.
			const isAway = error instanceof LinkLost || (attempt > 0 && error instanceof NoResponders);
			// A reference that returned to its owner, or a stream, belongs to one link.
			if (!isAway || attempt >= LINK_RESENDS || runtime.now >= until || once.isOnly) {
				throw error;
			}
			await from.joined(until - runtime.now);
			if (attempt > 0) {
				await pause(runtime, RESEND_MS * 2 ** attempt);
			}
		}
	}
}

function pause(runtime: Runtime, ms: number): Promise<void> {
	return new Promise((resolve) => {
		runtime.timers.add(runtime.now + ms, () => resolve());
		runtime.plan();
	});
}

/** One attempt at a call that gives one value. */
class Once implements Caller {
	private sent: Sent | undefined;
	private resolve: ((value: unknown) => void) | undefined;
	private reject: ((error: unknown) => void) | undefined;
	private giving: ExportScope | undefined;

	constructor(
		private readonly from: CallSite,
		private readonly plan: Plan,
	) {}

	/** True if the call gave something that can't be given a second time. */
	get isOnly(): boolean {
		return this.giving?.isOnce ?? false;
	}

	run(value: unknown, timeoutMs: number): Promise<unknown> {
		return new Promise((resolve, reject) => {
			this.resolve = resolve;
			this.reject = reject;
			this.begin(value, this.from.runtime.now + timeoutMs);
		});
	}

	private begin(value: unknown, until: number): void {
		const { plan, from } = this;
		const left = (): number => Math.max(1, until - from.runtime.now);
		try {
			plan.signal?.throwIfAborted();
			this.giving = plan.gives ? from.giving(plan.peer) : undefined;
			const payload = written(value, plan, this.giving);
			const address = addressOf(from, plan, this.giving);
			if (typeof address === "string") {
				this.open(address, payload, left());
			} else {
				address.then((found) => this.open(found, payload, left())).catch(this.end);
			}
		} catch (error) {
			if (error instanceof Unloaded) {
				from.load().then(() => this.begin(value, until), this.end);
			} else {
				this.end(error);
			}
		}
	}

	private open(address: string, payload: Uint8Array, timeoutMs: number): void {
		const { signal } = this.plan;
		signal?.throwIfAborted();
		this.sent = send(this.from, this.plan, this, 0, timeoutMs, address, payload);
		signal?.addEventListener("abort", this.abort);
	}

	replied(payload: Uint8Array): void {
		try {
			const read = readAny(payload, this.from);
			if (read instanceof Promise) {
				read.then(this.given, this.end);
			} else {
				this.given(read);
			}
		} catch (error) {
			this.end(error);
		}
	}

	private readonly given = ({ value }: { readonly value: unknown }): void => {
		this.plan.signal?.removeEventListener("abort", this.abort);
		this.giving?.ended(false);
		this.resolve?.(value);
	};

	item(): void {}

	over(): void {
		this.end(new WireError(`${this.plan.title}: it ended without a value`));
	}

	failed(failure: Failure): void {
		errorOf(failure, this.plan, this.from, this.end);
	}

	private readonly abort = (): void => {
		this.sent?.session.cancel(this.sent.id);
		this.from.runtime.plan();
		this.end(this.plan.signal?.reason);
	};

	private readonly end = (error: unknown): void => {
		this.plan.signal?.removeEventListener("abort", this.abort);
		this.giving?.ended(error instanceof LinkLost || error instanceof NoResponders);
		this.reject?.(error);
	};
}

/** Reads a value of any kind: the code of rare ones is loaded with the first of them. */
function readAny(payload: Uint8Array, from: CallSite): ReturnType<typeof readLoaded> {
	return readLoaded(payload, from.take, () => from.load());
}

type Failure = Parameters<Caller["failed"]>[0];
const REMOTE_ERROR = 15;
const GONE = 30;

/** Tells with which error a call has failed. */
function errorOf(failure: Failure, plan: Plan, from: CallSite, then: (error: unknown) => void): void {
	if (failure instanceof TidewireError) {
		if (failure instanceof AskTimeout) {
			failure.message = failure.message.replace(/^[^:]*/, plan.title);
		}
		then(failure);
		return;
	}
	const { number, payload } = failure;
	if (number === GONE) {
		plan.gone?.();
	}
	if (number !== REMOTE_ERROR) {
		const error = errorOfNumber(number, `${plan.title}: ${decodeLenient(payload)}`);
		// Another instance may take it, or this one when it is back.
		then(error instanceof NodeStopped ? Object.assign(error, { retryable: true }) : error);
		return;
	}
	const raised = async (): Promise<unknown> => (await readAny(payload, from)).value;
	raised().then(
		(error) =>
			then(error instanceof Error ? error : new WireError(`${plan.title}: it failed with a value that is no error`)),
		() => then(errorOfNumber(REMOTE_ERROR, decodeLenient(payload))),
	);
}

/**
 * The items of a call that gives a stream. To leave a loop early, `return()`, closes the generator
 * there, and waits for that.
 */
export class Stream implements AsyncIterableIterator<unknown, undefined, undefined> {
	private sent: Sent | undefined;
	private begun = false;
	private readonly items = new Queue<Uint8Array>();
	private readonly waiters = new Waiters<IteratorResult<unknown, undefined>>();
	private end: { readonly error: unknown } | undefined;
	private taken = 0;
	private isUnread = false;
	private giving: ExportScope | undefined;
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
		if (item !== undefined) {
			return this.read(item);
		}
		if (this.end !== undefined) {
			return this.ended();
		}
		return this.waiters.wait(signal);
	}

	/** Reads no more, and waits until the other side has closed its generator. */
	async return(): Promise<IteratorResult<unknown, undefined>> {
		this.begun = true;
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
		if (this.begun) {
			return;
		}
		this.begun = true;
		this.write();
	}

	private write(): void {
		const { plan, from } = this;
		const failed = (error: unknown): void => this.finish({ error });
		try {
			plan.signal?.throwIfAborted();
			this.giving = plan.gives ? from.giving(plan.peer) : undefined;
			const payload = written(this.value, plan, this.giving);
			const address = addressOf(from, plan, this.giving);
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
		over: () => this.finish({ error: undefined }),
		replied: () => {
			const text = "it gives one value: await it, rather than read it with `for await`";
			this.finish({
				error: new InvalidArgument(`${this.plan.title}: ${text}`),
			});
		},
		failed: (failure) => errorOf(failure, this.plan, this.from, (error) => this.finish({ error })),
	};

	private async read(payload: Uint8Array): Promise<IteratorResult<unknown, undefined>> {
		this.taken++;
		if (this.taken >= STREAM_CREDIT / 2 && this.end === undefined && this.sent !== undefined) {
			this.sent.session.want(this.sent.id, this.taken);
			this.from.runtime.plan();
			this.taken = 0;
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
		this.giving?.ended(end.error instanceof LinkLost || end.error instanceof NoResponders);
		for (const closed of this.closed.splice(0)) {
			closed();
		}
		if (this.waiters.size > 0) {
			this.waiters.tell(this.ended());
		}
	}
}

/**
 * A call that has not been made yet: `await` makes it and gives its value, `for await` makes it and
 * reads its items. Like a promise it is made once, however often it is awaited.
 */
export class Invocation implements Promise<unknown>, AsyncIterable<unknown> {
	readonly [Symbol.toStringTag] = "Invocation";
	private made: Promise<unknown> | undefined;

	constructor(
		private readonly value: () => Promise<unknown>,
		private readonly stream: () => AsyncIterableIterator<unknown, undefined, undefined>,
	) {}

	// biome-ignore lint/suspicious/noThenProperty: to be awaited is what it is for.
	then<A = unknown, B = never>(
		fulfilled?: ((value: unknown) => A | PromiseLike<A>) | null,
		rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
	): Promise<A | B> {
		this.made ??= this.value();
		return this.made.then(fulfilled, rejected);
	}

	catch<B = never>(rejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<unknown> {
		return this.then(undefined, rejected);
	}

	finally(run?: (() => void) | null): Promise<unknown> {
		this.made ??= this.value();
		return this.made.finally(run);
	}

	[Symbol.asyncIterator](): AsyncIterableIterator<unknown, undefined, undefined> {
		return this.stream();
	}
}
