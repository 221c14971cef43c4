/** Calls of other nodes: of one value here, of a stream of items in a later part. */
import { TidewireError } from "../error.js";
import { AskTimeout, LinkLost, NodeStopped, NoResponders, RemoteError, WireError } from "../generated/errors.js";
import { lazyReader } from "../iterators/lazy_reader.js";
import type { Reader } from "../iterators/page_reader.js";
import { type Caller, errorOfNumber } from "../link/exchanges.js";
import type { Runtime } from "../link/runtime.js";
import type { Session } from "../link/session.js";
import type { ExportScope } from "../objects/references.js";
import { decodeLenient } from "../text.js";
import { readLoaded, type Take, Unloaded } from "../values/reader.js";
import { writeValue } from "../values/writer.js";
import type { Fields, Id } from "../wire/frames.js";

/** Environment of outbound calls: clock, references and link. */
export interface CallSite {
	readonly runtime: Runtime;
	/** Exports of one call; undefined while their code is not loaded. */
	exportScope(peer: number | undefined): ExportScope | undefined;
	/** Converts references among received values. */
	readonly take: Take;
	/** Loads the code for values of rare kinds and for references. */
	load(): Promise<unknown>;
	/** Ends when there is a link, or none will come; false: not within that time. */
	joined(timeoutMs: number): Promise<void>;
	/** Gives a function that makes a plan a part of the call whose handler runs. */
	nested: () => (plan: Plan) => Plan;
	/** Has a call made later run as the code that asked for it: its span is the current one. */
	bind: <T>(run: T) => T;
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
	/** True if arguments may have exports. */
	readonly gives: boolean;
	/** Called when the callee no longer exists. */
	readonly onGone?: () => void;
}

/** Where a call is that was sent. */
export interface Sent {
	readonly session: Session;
	readonly id: Id;
}

/** Sends a call, and gives where it is then. */
export function send(
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

/** Subject of a call; a call that returns a reference goes to the instance of its owner. */
export function addressOf(from: CallSite, plan: Plan, exports: ExportScope | undefined): string | Promise<string> {
	const owner = exports?.owner;
	return owner === undefined || plan.service === undefined
		? plan.subject()
		: from.instanceAt(plan.service, owner).then(plan.subject);
}

/** Payload of a call: its arguments, encoded. */
export function payloadOf(value: unknown, plan: Plan, exports: ExportScope | undefined): Uint8Array {
	return writeValue(value, exports?.give ?? (plan.gives ? unloaded : undefined), plan.title);
}

function unloaded(): never {
	throw new Unloaded();
}

/** Makes a call that gives one value. */
export async function callValue(from: CallSite, plan: Plan, value: unknown): Promise<unknown> {
	const until = from.runtime.now + (plan.timeoutMs ?? plan.defaultMs);
	const once = new Once(from, plan);
	const again = async (refusal?: unknown): Promise<unknown> =>
		(later ?? (await load())).resent(from, plan, value, until, refusal);
	try {
		return await (plan.again ? again() : once.run(value, until));
	} catch (error) {
		located(error, plan);
		if (once.isRefused) {
			return again(error);
		}
		throw error;
	}
}

/**
 * Has an error of the link say where its call was awaited: V8 knows that in an async function. The
 * reason of a signal belongs to the program.
 */
export function located(error: unknown, { signal }: Plan): unknown {
	if (error instanceof TidewireError && error !== signal?.reason) {
		(Error as Partial<typeof Error>).captureStackTrace?.(error);
	}
	return error;
}

/** One attempt at a call that gives one value. */
export class Once implements Caller {
	private sent: Sent | undefined;
	private resolve: ((value: unknown) => void) | undefined;
	private reject: ((error: unknown) => void) | undefined;
	private exports: ExportScope | undefined;
	/** True if an instance had no capacity for it, and another one may have it. */
	isRefused = false;

	constructor(
		private readonly from: CallSite,
		private readonly plan: Plan,
	) {}

	/** True if the call can be sent only once: a stream or a returned reference is in it. */
	get isOnly(): boolean {
		return this.exports?.isOnce ?? false;
	}

	run(value: unknown, until: number): Promise<unknown> {
		return new Promise((resolve, reject) => {
			this.resolve = resolve;
			this.reject = reject;
			this.begin(value, until);
		});
	}

	private begin(value: unknown, until: number): void {
		const { plan, from } = this;
		const left = (): number => Math.max(1, until - from.runtime.now);
		try {
			plan.signal?.throwIfAborted();
			this.exports = plan.gives ? from.exportScope(plan.peer) : undefined;
			const payload = payloadOf(value, plan, this.exports);
			const address = addressOf(from, plan, this.exports);
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
				read.then(this.fulfill, this.end);
			} else {
				this.fulfill(read);
			}
		} catch (error) {
			this.end(error);
		}
	}

	private readonly fulfill = ({ value }: { readonly value: unknown }): void => {
		this.plan.signal?.removeEventListener("abort", this.abort);
		this.exports?.ended(false);
		this.resolve?.(value);
	};

	item(): void {}

	completed(): void {
		this.end(new WireError(`${this.plan.title}: it ended without a value`));
	}

	failed(failure: Failure): void {
		const { number } = failure as { readonly number?: number };
		this.isRefused = number === OVERLOADED && this.plan.gives && !this.exports?.owns;
		errorOf(failure, this.plan, this.from, this.end);
	}

	private readonly abort = (): void => {
		this.sent?.session.cancel(this.sent.id);
		this.from.runtime.plan();
		this.end(this.plan.signal?.reason);
	};

	private readonly end = (error: unknown): void => {
		this.plan.signal?.removeEventListener("abort", this.abort);
		this.exports?.ended(error instanceof LinkLost || error instanceof NoResponders);
		this.reject?.(error);
	};
}

/** Reads a value of any kind: the code of rare ones is loaded with the first of them. */
export function readAny(payload: Uint8Array, from: CallSite): ReturnType<typeof readLoaded> {
	return readLoaded(payload, from.take, () => from.load());
}

type Failure = Parameters<Caller["failed"]>[0];
const REMOTE_ERROR = 15;
const GONE = 30;
const OVERLOADED = 50;

/** Tells with which error a call has failed. */
export function errorOf(failure: Failure, plan: Plan, from: CallSite, then: (error: unknown) => void): void {
	if (failure instanceof TidewireError) {
		if (failure instanceof AskTimeout) {
			failure.message = failure.message.replace(/^[^:]*/, plan.title);
		}
		then(failure);
		return;
	}
	const { number, payload } = failure;
	if (number === GONE) {
		plan.onGone?.();
	}
	const byNumber = (): TidewireError => errorOfNumber(number, `${plan.title}: ${decodeLenient(payload)}`);
	if (number !== REMOTE_ERROR) {
		const error = byNumber();
		// Another instance may take it, or this one when it is back.
		then(error instanceof NodeStopped ? Object.assign(error, { retryable: true }) : error);
		return;
	}
	const raised = async (): Promise<unknown> => (await readAny(payload, from)).value;
	raised().then(
		(error) => {
			if (error instanceof RemoteError) {
				error.message = `${plan.title}: ${error.message}`;
			}
			then(error instanceof Error ? error : new WireError(`${plan.title}: it failed with a value that is no error`));
		},
		() => then(byNumber()),
	);
}

/** Reads the items of a call that gives a stream; the first read loads the code for that. */
export async function readItems(from: CallSite, plan: Plan, value: unknown): Promise<Reader<unknown>> {
	const { ItemReader } = later ?? (await load());
	return new ItemReader(from, plan, value);
}

let later: typeof import("../lazy_chunk.js") | undefined;

async function load(): Promise<typeof import("../lazy_chunk.js")> {
	later = await import("../lazy_chunk.js");
	return later;
}

/** The text of all languages where a stream is called for a value: its handler has not begun. */
const IS_STREAM = /: it is a stream, /;

/**
 * A call: `await` gives its value, `for await` reads its items. Unless it is read as a stream
 * within the turn of the program that made it, one value is asked for, also if nobody awaits it.
 * Like a promise it is made once, however often it is awaited.
 */
export class Invocation implements Promise<unknown>, AsyncIterable<unknown> {
	readonly [Symbol.toStringTag] = "Invocation";
	private result: Promise<unknown> | undefined;
	/** True if the program has awaited it, or reads it. */
	private isTaken = false;

	/**
	 * @param run Makes the call, for one value or for items.
	 * @param isStream True if it is certainly a stream, and is made when it is read.
	 */
	constructor(
		private readonly runtime: Runtime,
		private readonly run: (isStream: boolean) => Promise<unknown>,
		isStream = false,
	) {
		if (!isStream) {
			const { soon } = runtime.shell;
			// `await` takes it one microtask later.
			soon(() => soon(() => this.isTaken || this.send()));
		}
	}

	private make(): Promise<unknown> {
		this.result ??= this.run(false);
		return this.result;
	}

	/** Makes a call that the program left alone. It fails as a promise without handlers does. */
	private send(): void {
		this.make().catch((error: unknown) => {
			// A stream may still be read, and a closed node fails its calls.
			if (!this.isTaken && this.runtime.link.state !== "closed" && !IS_STREAM.test(String(error))) {
				void Promise.reject(error);
			}
		});
	}

	// biome-ignore lint/suspicious/noThenProperty: to be awaited is what it is for.
	then<A = unknown, B = never>(
		fulfilled?: ((value: unknown) => A | PromiseLike<A>) | null,
		rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
	): Promise<A | B> {
		this.isTaken = true;
		return this.make().then(fulfilled, rejected);
	}

	catch<B = never>(rejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<unknown> {
		return this.then(undefined, rejected);
	}

	finally(run?: (() => void) | null): Promise<unknown> {
		return this.then().finally(run);
	}

	[Symbol.asyncIterator](): Reader<unknown> {
		this.isTaken = true;
		return lazyReader(this.runtime.shell, () => this.run(true) as Promise<Reader<unknown>>);
	}
}
