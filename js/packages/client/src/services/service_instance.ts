/**
 * Service instance: admits the calls of other nodes, runs their handlers, and writes their
 * results.
 */

import { TidewireError } from "../error.js";
import { AskTimeout, CallCancelled, LimitExceeded, NodeStopped } from "../generated/errors.js";
import { SERVICE_CONCURRENCY, SERVICE_STREAMS, SERVICE_WAITING } from "../generated/limits.js";
import type { Callee, Incoming } from "../link/exchanges.js";
import type { Runtime } from "../link/runtime.js";
import type { Session } from "../link/session.js";
import type { Timer } from "../link/timers.js";
import { randomName } from "../platform/shell.js";
import { decode, encode } from "../text.js";
import { type Give, writeValue } from "../values/writer.js";
import { type Fields, fieldText } from "../wire/frames.js";
import { type CallContext, type HandledCall, handledCall } from "./context.js";

const LANES = 4;
const INVALID_ARGUMENT = 9;
const ASK_TIMEOUT = 3;
const NODE_STOPPED = 13;
const LIMIT_EXCEEDED = 14;
const OVERLOADED = 50;
const REMOTE_ERROR = 15;
const CANCELLED = 29;
/**
 * The caller's own clock comes to the deadline at about the same time, and knows best how the call
 * went.
 */
const LATE_MS = 100;

/** Counters of the calls of one service. */
export interface ServiceStatistics {
	readonly calls: number;
	readonly errors: number;
	readonly cancelled: number;
	/** Calls and streams whose handlers run. */
	readonly inFlight: number;
	/** Calls and streams that wait for a handler. */
	readonly waiting: number;
}

/** A call that is to be run. */
export interface QueuedCall {
	readonly call: Incoming;
	readonly session: Session;
	readonly title: string;
	readonly streams: boolean;
	/** Reads the arguments and begins the handler. */
	readonly run: () => unknown;
	readonly give: Give | undefined;
	/** Called once the handler has ended. */
	readonly onEnd?: () => void;
}

/** How many handlers run at the same time, and how many calls wait for one. */
export interface HostLimits {
	/** Calls whose handlers run at most; the others wait (1,024). */
	readonly concurrency?: number | undefined;
	/** Calls that wait at most, and streams; the next one fails with Overloaded (10,000). */
	readonly waiting?: number | undefined;
	/** Streams that are written at most; the others wait (10,000). */
	readonly streams?: number | undefined;
}

/** So many run; others wait in the order of their lanes, up to a limit. */
class ConcurrencyLimits {
	readonly inside = new Set<RunningCall>();
	private readonly lanes = Array.from({ length: LANES }, () => new Set<RunningCall>());

	constructor(
		private readonly max: number,
		private readonly waitingMax: number,
	) {}

	get waiting(): number {
		return this.lanes.reduce((sum, lane) => sum + lane.size, 0);
	}

	/** Admits a call; "full": too many wait. */
	enter(one: RunningCall): "inside" | "waiting" | "full" {
		if (this.inside.size < this.max) {
			this.inside.add(one);
			return "inside";
		}
		if (this.waiting >= this.waitingMax) {
			return "full";
		}
		this.lanes[one.work.call.lane]?.add(one);
		return "waiting";
	}

	/** Removes an ended call, and returns the queued call that runs in its place. */
	leave(one: RunningCall): RunningCall | undefined {
		if (!this.inside.delete(one)) {
			this.lanes[one.work.call.lane]?.delete(one);
			return undefined;
		}
		const next = this.lanes
			.find((lane) => lane.size > 0)
			?.values()
			.next().value;
		if (next !== undefined) {
			this.lanes[next.work.call.lane]?.delete(next);
			this.inside.add(next);
		}
		return next;
	}

	/** Those that wait, in the order in which they would run. */
	queued(): readonly RunningCall[] {
		return this.lanes.flatMap((lane) => [...lane]);
	}
}

/** Handlers that run at the same time: calls and streams each have their own admission. */
export class HandlerLimits {
	private readonly admissions: readonly [calls: ConcurrencyLimits, streams: ConcurrencyLimits];
	private isClosed = false;
	private counts = { calls: 0, errors: 0, cancelled: 0 };
	private whenIdle: (() => void)[] = [];
	private readonly waitingMax: number;

	constructor(
		private readonly runtime: Runtime,
		limits: HostLimits = {},
	) {
		const { concurrency = SERVICE_CONCURRENCY, streams = SERVICE_STREAMS, waiting = SERVICE_WAITING } = limits;
		this.admissions = [new ConcurrencyLimits(concurrency, waiting), new ConcurrencyLimits(streams, waiting)];
		this.waitingMax = waiting;
	}

	statistics(): ServiceStatistics {
		const [calls, streams] = this.admissions;
		return {
			...this.counts,
			inFlight: calls.inside.size + streams.inside.size,
			waiting: calls.waiting + streams.waiting,
		};
	}

	/** Takes a call in, or tells its caller why not. */
	take(work: QueuedCall, now: number): Callee | undefined {
		if (this.isClosed) {
			return refuse(work, NODE_STOPPED, "the service has stopped");
		}
		if (work.streams !== work.call.credit > 0) {
			const text = work.streams
				? "it is a stream, and the call gives no credit for items: read it as a stream, rather than await it"
				: "it gives one value: await it, rather than read it as a stream";
			return refuse(work, INVALID_ARGUMENT, `${work.title}: ${text}`);
		}
		const admission = this.admissions[work.streams ? 1 : 0];
		const running = new RunningCall(this.runtime, work, now, (outcome) => this.release(running, outcome));
		const entry = admission.enter(running);
		if (entry === "inside") {
			this.begin(running);
		} else if (entry === "full") {
			running.refuse(`service_waiting=${this.waitingMax}: so many calls wait already: try again later`);
			return undefined;
		}
		return running;
	}

	/** Ends streams, which may have no end, and waits for calls; then takes none any more. */
	async drain(): Promise<void> {
		this.isClosed = true;
		// First those that wait, so that none of them takes the place of one that ends.
		for (const running of [
			...this.admissions.flatMap((admission) => admission.queued()),
			...this.admissions[1].inside,
		]) {
			running.cut();
		}
		if (this.admissions.some((admission) => admission.inside.size > 0)) {
			await new Promise<void>((resolve) => this.whenIdle.push(resolve));
		}
	}

	/** Ends everything. */
	cut(): void {
		this.isClosed = true;
		for (const admission of this.admissions) {
			for (const running of admission.inside) {
				running.cut();
			}
		}
	}

	private begin(running: RunningCall): void {
		this.counts.calls++;
		// Not before the message has been read to its end: a handler may say something that changes
		// the link.
		this.runtime.shell.soon(() => running.begin());
	}

	private release(running: RunningCall, outcome: Outcome): void {
		const admission = this.admissions[running.work.streams ? 1 : 0];
		if (outcome !== "done") {
			this.counts[outcome]++;
		}
		const next = admission.leave(running);
		if (next !== undefined) {
			this.begin(next);
		}
		if (this.admissions.every((one) => one.inside.size === 0)) {
			for (const idle of this.whenIdle.splice(0)) {
				idle();
			}
		}
	}
}

type Outcome = "done" | "errors" | "cancelled";
type AnyIterator = AsyncIterator<unknown> | Iterator<unknown>;

/** One call, from its arrival to its end. */
class RunningCall implements Callee, HandledCall {
	isOver = false;
	/** The caller has gone: nothing can be answered. */
	private isGone = false;
	private isUnread = false;
	private credit: number;
	private readonly controller = new AbortController();
	private wake: (() => void) | undefined;
	private iterator: AnyIterator | undefined;
	private readonly timer: Timer | undefined;
	private readonly until: number;
	context: CallContext | undefined;

	constructor(
		private readonly runtime: Runtime,
		readonly work: QueuedCall,
		now: number,
		private readonly release: (outcome: Outcome) => void,
	) {
		const { deadlineMs, credit } = work.call;
		this.credit = credit;
		this.until = deadlineMs > 0 ? now + deadlineMs : Number.POSITIVE_INFINITY;
		this.timer = deadlineMs > 0 ? runtime.timers.add(this.until, () => this.late()) : undefined;
	}

	cancelled(): void {
		this.isGone = true;
		this.stop(new CallCancelled("the caller cancelled, or has gone"));
		if (this.context === undefined || !this.work.streams) {
			// A function still runs, but no caller waits for its result.
			this.finish("cancelled");
		}
	}

	credited(items: number): void {
		if (items > 0) {
			this.credit += items;
			this.wake?.();
			return;
		}
		this.isUnread = true;
		this.stop(new CallCancelled("the caller reads no more"));
		if (this.context === undefined) {
			// A queued call: its handler never begins.
			this.work.session.theirs.endItems(this.work.call.id);
			this.runtime.plan();
			this.finish("cancelled");
		}
	}

	/** Fails a call for which there is no capacity. */
	refuse(text: string): void {
		this.fail(OVERLOADED, encode(text));
		this.isOver = true;
		this.runtime.timers.cancel(this.timer);
		this.work.onEnd?.();
	}

	/** The service ends, and with it what may have no end. */
	cut(): void {
		const stopped = new NodeStopped("the service has stopped");
		this.fail(NODE_STOPPED, encode(stopped.message));
		this.isGone = true;
		this.stop(stopped);
		if (this.context === undefined) {
			this.finish("cancelled");
		}
	}

	begin(): void {
		if (this.isOver) {
			return;
		}
		const { work, controller, until, runtime } = this;
		const { call, session } = work;
		let trace = fieldText(call.fields, "tw-trace");
		const context: CallContext = {
			node: session.peer(call.origin).name,
			user: userOf(call, session),
			origin: isPublic(call) ? "public" : "private",
			headers: headersOf(call.fields),
			signal: controller.signal,
			get trace() {
				trace ??= randomName(runtime.shell, 16);
				return trace;
			},
			get remaining() {
				return Math.max(0, until - runtime.now);
			},
		};
		this.context = context;
		try {
			this.take(this.within(() => (runtime.around ? runtime.around(context, work) : work.run())));
		} catch (error) {
			// Members of a result of the program may throw, too.
			this.failed(error);
		}
	}

	/** Runs something as part of the call. */
	private within<T>(run: () => T): T {
		return handledCall.run(this, run);
	}

	/** Sends the result of the handler, now or later. */
	private take(result: unknown): void {
		const { title } = this.work;
		if (this.work.streams) {
			this.stream(result).catch((error: unknown) => this.failed(error));
		} else if (isThenable(result)) {
			Promise.resolve(result).then(
				(value) => this.reply(value),
				(error: unknown) => this.failed(error),
			);
		} else if (isGenerator(result)) {
			this.failed(new TidewireError(`${title}: it gave an iterator: serve it with \`stream: true\``));
		} else {
			this.reply(result);
		}
	}

	private reply(value: unknown): void {
		if (this.isOver) {
			return;
		}
		const { call, session, give, title } = this.work;
		try {
			session.theirs.reply(call.id, writeValue(value, give, `${title}: result`));
		} catch (error) {
			this.failed(error);
			return;
		}
		this.runtime.plan();
		this.finish("done");
	}

	private async stream(result: unknown): Promise<void> {
		const iterator = iteratorOf(result, this.work.title);
		this.iterator = iterator;
		const { call, session, give, title } = this.work;
		try {
			while (!this.stopped) {
				if (this.credit <= 0 || !session.theirs.hasCapacity(call.id)) {
					await this.untilReady(session);
					continue;
				}
				const { done, value } = await this.within(() => iterator.next());
				if (done || this.stopped) {
					break;
				}
				this.credit--;
				session.theirs.item(call.id, writeValue(value, give, `${title}: item`));
				this.runtime.plan();
			}
		} finally {
			await this.close();
		}
		session.theirs.endItems(call.id);
		this.runtime.plan();
		this.finish(this.isGone ? "cancelled" : "done");
	}

	private get stopped(): boolean {
		return this.isGone || this.isUnread || this.isOver;
	}

	private untilReady(session: Session): Promise<void> {
		return new Promise((resolve) => {
			this.wake = resolve;
			if (this.credit > 0) {
				this.runtime.when(() => {
					const mayGoOn = this.stopped || session.theirs.hasCapacity(this.work.call.id);
					if (mayGoOn) {
						resolve();
					}
					return mayGoOn;
				});
			}
		});
	}

	/** Closes the generator, once: its `finally` runs. */
	private async close(): Promise<void> {
		const iterator = this.iterator;
		this.iterator = undefined;
		await this.within(() => iterator?.return?.());
	}

	private stop(reason: Error): void {
		this.controller.abort(reason);
		this.wake?.();
	}

	private late(): void {
		if (this.context === undefined) {
			// It has waited for as long as it may take, and never begins.
			this.fail(ASK_TIMEOUT, encode("its deadline passed before a handler was free"));
			this.finish("cancelled");
			return;
		}
		this.stop(new AskTimeout(`${this.work.title}: its deadline passed while the handler was at work`));
		this.isUnread = this.work.streams;
		this.runtime.timers.add(this.until + LATE_MS, () => {
			if (!this.isGone) {
				this.fail(ASK_TIMEOUT, encode("its deadline passed while the handler was at work"));
				this.isGone = true;
				this.finish("cancelled");
			}
		});
	}

	private failed(error: unknown): void {
		if (this.isOver) {
			return;
		}
		if (this.isGone) {
			this.finish("cancelled");
			return;
		}
		const { aborted, reason } = this.controller.signal;
		if (error instanceof CallCancelled && aborted) {
			this.fail(CANCELLED, encode(error.message));
		} else if (error instanceof AskTimeout && error === reason) {
			// A handler that ends with its deadline may be ahead of its caller's clock.
			this.fail(ASK_TIMEOUT, encode(error.message));
		} else if (error instanceof LimitExceeded) {
			this.fail(LIMIT_EXCEEDED, encode(error.message));
		} else {
			this.fail(REMOTE_ERROR, errorPayload(error));
		}
		this.finish("errors");
	}

	private fail(number: number, payload: Uint8Array): void {
		this.work.session.theirs.fail(this.work.call.id, number, payload);
		this.runtime.plan();
	}

	private finish(outcome: Outcome): void {
		if (this.isOver) {
			return;
		}
		this.isOver = true;
		this.runtime.timers.cancel(this.timer);
		this.work.onEnd?.();
		this.release(outcome);
	}
}

/** A thrown value as an error for the caller; not every value becomes text. */
function errorPayload(thrown: unknown): Uint8Array {
	try {
		return writeValue(thrown instanceof Error ? thrown : new Error(String(thrown)), undefined, "error");
	} catch {
		return writeValue(new Error("the handler threw a value that can't be described"), undefined, "error");
	}
}

export function isThenable(value: unknown): value is PromiseLike<unknown> {
	return typeof (value as { then?: unknown } | null)?.then === "function";
}

function isGenerator(value: unknown): boolean {
	const like = value as {
		next?: unknown;
		[Symbol.iterator]?: unknown;
		[Symbol.asyncIterator]?: unknown;
	} | null;
	return (
		typeof like?.next === "function" &&
		(Symbol.iterator in (like as object) || Symbol.asyncIterator in (like as object))
	);
}

function iteratorOf(value: unknown, title: string): AnyIterator {
	const like = value as Partial<AsyncIterable<unknown> & Iterable<unknown>> | null;
	const iterator = like?.[Symbol.asyncIterator]?.() ?? like?.[Symbol.iterator]?.();
	if (iterator === undefined) {
		throw new TidewireError(`${title}: it gave no iterator, and is declared as a stream`);
	}
	return iterator;
}

/** True if a call comes over HTTP. The hub accepts this header only from its gateway. */
export function isPublic(call: Incoming): boolean {
	return fieldText(call.fields, "tw-origin") === "public";
}

/**
 * User of the sender of a call or a message: the client of a gateway, or the node itself.
 */
export function userOf({ fields, origin }: Pick<Incoming, "fields" | "origin">, session: Session | undefined): string {
	return fieldText(fields, "tw-user") ?? session?.peer(origin).user ?? "";
}

/** The headers of a message, but for those of the protocol. */
export function headersOf(fields: Fields): Record<string, string> {
	const headers: Record<string, string> = {};
	for (const [name, value] of fields) {
		if (!name.startsWith("tw-") && !Object.hasOwn(headers, name)) {
			headers[name] = decode(value, 0, value.length) ?? "";
		}
	}
	return headers;
}

/** Refuses a call before its admission. */
function refuse(work: QueuedCall, code: number, text: string): undefined {
	work.session.theirs.fail(work.call.id, code, encode(text));
	work.onEnd?.();
}
