/** Storage backend of streams and buckets: the service in which a hub offers its data folder. */
import type { TidewireError } from "../error.js";
import {
	DataCorrupt,
	DataInUse,
	HomeBusy,
	HomeError,
	HomeUnavailable,
	InvalidArgument,
	LeaseHeld,
	LeaseLost,
	LimitExceeded,
	NoResponders,
	NotFound,
	RevisionConflict,
	SettingsDiffer,
	StaleDelivery,
	StreamFull,
	Unauthorized,
	Unsupported,
} from "../generated/errors.js";
import type { Node } from "../node.js";
import { type CallOptions, shown } from "../options.js";
import { type Tuple, tuple } from "../values/kinds.js";

const SERVICE = "tidewire-streams";
/**
 * How long one call waits for something at most; then it is made again. Less than the timeout of a
 * call.
 */
export const WAIT_US = 4_000_000;
/** How many events and entries one call gives at most, and how many bytes. */
export const PAGE = 1_000;
export const PAGE_BYTES = 4 << 20;

/** Methods of the service that take calls of one right each; `call` takes all. */
type Method = "look" | "read" | "act" | "call";
const METHODS: readonly (readonly [Method, RegExp])[] = [
	["look", /info|list_[^s]|list_st|keys/],
	["read", /list|read|dead_l|get|hist|watch/],
	["act", /delete|purge|cancel|seek|pause|resume|requeue|drop|put|release/],
];

/** The errors that stand in the place of one result of a batch, by their kind. */
const KINDS: Readonly<Record<string, new (message: string) => TidewireError>> = {
	invalid: InvalidArgument,
	limit: LimitExceeded,
	denied: Unauthorized,
	unsupported: Unsupported,
	not_found: NotFound,
	differs: SettingsDiffer,
	full: StreamFull,
	stale: StaleDelivery,
	revision: RevisionConflict,
	lease_lost: LeaseLost,
	lease_held: LeaseHeld,
	busy: HomeBusy,
	locked: DataInUse,
	corrupt: DataCorrupt,
	unreachable: HomeUnavailable,
};

/** The calls of a storage backend, by name, with plain data. */
export class Home {
	private readonly once: HomeClient;
	private readonly again: HomeClient;

	constructor(
		private readonly node: Pick<Node, "client">,
		/** Milliseconds of a clock that never goes back. */
		readonly now: () => number,
	) {
		this.once = this.client({});
		this.again = this.client({ idempotent: true });
	}

	/**
	 * Makes a call that changes something. Where the link is lost, it is not known whether it did.
	 */
	call(name: string, ...args: readonly unknown[]): Promise<unknown> {
		return explained(this.once[methodOf(name)](name, args));
	}

	/** Makes a call that may be made twice: it is made again when the link was lost and is back. */
	ask(name: string, args: readonly unknown[], signal?: AbortSignal): Promise<unknown> {
		const client = signal === undefined ? this.again : this.client({ idempotent: true, signal });
		return explained(client[methodOf(name)](name, args));
	}

	/**
	 * Waits for a lease, and gives its fence; the hub gives it back when this is not read any more,
	 * or the link has ended.
	 */
	hold(name: string, holder: string, ttlUs: number): AsyncIterable<number> {
		return this.once.hold(name, holder, ttlUs);
	}

	private client(options: CallOptions): HomeClient {
		return this.node.client(SERVICE, options) as unknown as HomeClient;
	}
}

/** The method that takes a call, by the right that the call needs. */
function methodOf(call: string): Method {
	return METHODS.find(([, calls]) => calls.test(call))?.[0] ?? "call";
}

interface HomeClient
	extends Readonly<Record<Method, (name: string, args: readonly unknown[]) => PromiseLike<unknown>>> {
	hold(name: string, holder: string, ttlUs: number): AsyncIterable<number>;
}

/** The answer of a hub, or its explained error. */
export async function explained<T>(answer: PromiseLike<T>): Promise<T> {
	try {
		return await answer;
	} catch (error) {
		throw error instanceof NoResponders
			? new NoResponders(
					"the hub has no place for streams, buckets, leases and commands: start it with `tidewire up --data DIR`",
				)
			: error;
	}
}

/** The error that stands in the place of one result of a batch, if there is one. */
export function refused(result: unknown): TidewireError | undefined {
	if (!Array.isArray(result) || result.length !== 2 || typeof result[0] !== "string") {
		return undefined;
	}
	const [kind, message] = result as [string, unknown];
	const error = new (KINDS[kind] ?? HomeError)(String(message));
	return error instanceof HomeError ? Object.assign(error, { kind }) : error;
}

/** Milliseconds as microseconds. */
export function microseconds(field: string, ms: number | undefined): number | null {
	if (ms === undefined) {
		return null;
	}
	if (typeof ms !== "number" || !(ms >= 0 && ms < 1e14)) {
		throw new InvalidArgument(`${field}: ${shown(ms)} is not allowed: give milliseconds from 0 on`);
	}
	return Math.round(ms * 1000);
}

/** A time of the storage backend. */
export function timeOf(micros: unknown): Date {
	return new Date(Number(micros) / 1000);
}

/** Refuses what is none of some words. */
export function oneOf<T extends string>(field: string, value: T, words: readonly T[]): T {
	if (!words.includes(value)) {
		throw new InvalidArgument(`${field}: ${shown(value)} is not allowed: give ${words.map(shown).join(" or ")}`);
	}
	return value;
}

/** A pattern or several in the form of storage backends. */
export function patternsOf(filter: string | readonly string[] | undefined): readonly string[] {
	return typeof filter === "string" ? [filter] : (filter ?? []);
}

/** Where to begin: behind the newest event, at the oldest, at a sequence, or at a time. */
export type Start = "new" | "all" | number | Date;

/** A position in a stream in the form of storage backends. */
export function startOf(start: Start): Tuple<string | number> {
	if (start === "new" || start === "all") {
		return tuple<string | number>(start, 0);
	}
	if (start instanceof Date) {
		return tuple<string | number>("time", start.getTime() * 1000);
	}
	if (Number.isSafeInteger(start) && start >= 0) {
		return tuple<string | number>("sequence", start);
	}
	throw new InvalidArgument(`start: ${shown(start)} is not allowed: give "new", "all", a sequence or a Date`);
}
