/** Exports of this node: each lives as long as it is used, or its lease. */
import { InvalidArgument, LimitExceeded, RemoteGone, WireError } from "../generated/errors.js";
import { REMOTE_LEASE_MS, REMOTE_OBJECTS } from "../generated/limits.js";
import type { Runtime } from "../link/runtime.js";
import type { Timer } from "../link/timers.js";
import { randomName } from "../platform/shell.js";
import { type Bound, boundFunction, boundMethods } from "./methods.js";
import { type ReferenceKind, Remote } from "./remote.js";

const KEY_BYTES = 16;
/** How long the exports of an ended call wait for the claim of the callee. */
const CLAIM_MS = 5000;

/** An export: one target for one node. */
export interface Entry {
	readonly key: string;
	readonly kind: ReferenceKind;
	readonly title: string;
	readonly target: object;
	readonly methods: ReadonlyMap<string, Bound>;
	readonly leaseMs: number;
	/**
	 * The number of the node that holds it; undefined until that is known: of a call, the hub has
	 * chosen it.
	 */
	origin: number | undefined;
	/** How often it was sent and not released. */
	count: number;
	/** Calls of it, and calls whose argument it is, that are under way. */
	busy: number;
	timer: Timer | undefined;
}

export class ExportTable {
	private readonly entries = new Map<string, Entry>();
	private readonly self = new WeakRef(this);
	/** The number of this node's link. */
	number = 0;

	constructor(
		private readonly runtime: Runtime,
		private readonly name: string,
	) {}

	get size(): number {
		return this.entries.size;
	}

	get(key: string): Entry | undefined {
		return this.entries.get(key);
	}

	/** Drops all exports: the link was lost. */
	lost(): void {
		for (const entry of [...this.entries.values()]) {
			this.remove(entry);
		}
	}

	/** A node has gone: it holds nothing any more. */
	left(origin: number): void {
		for (const entry of [...this.entries.values()]) {
			if (entry.origin === origin) {
				this.remove(entry);
			}
		}
	}

	/** Entry of a value for a node, whose number may be unknown; undefined for data. */
	entry(value: unknown, peer: number | undefined, mayStream: boolean): Entry | undefined {
		const marked = value instanceof Remote ? value : undefined;
		const target = marked?.target ?? value;
		if (marked === undefined && typeof value !== "function" && !(mayStream && isStream(value))) {
			return undefined;
		}
		const kind: ReferenceKind = typeof target === "function" ? "function" : marked ? "object" : "items";
		const known = peer === undefined ? undefined : this.known(target as object, peer, kind);
		const entry = known ?? this.add(target as object, kind, peer, marked?.leaseMs ?? REMOTE_LEASE_MS);
		marked?.tables.add(this.self);
		entry.count++;
		this.renew(entry, entry.leaseMs);
		return entry;
	}

	private known(target: object, peer: number, kind: ReferenceKind): Entry | undefined {
		if (kind === "items") {
			return undefined;
		}
		for (const entry of this.entries.values()) {
			if (entry.target === target && entry.origin === peer) {
				return entry;
			}
		}
		return undefined;
	}

	private add(target: object, kind: ReferenceKind, origin: number | undefined, leaseMs: number): Entry {
		if (this.entries.size >= REMOTE_OBJECTS) {
			throw new LimitExceeded(
				`remote_objects=${REMOTE_OBJECTS}: so many exports are open: dispose some, or shorten leases`,
			);
		}
		const [title, methods] = describeTarget(kind, target);
		if (methods.size === 0) {
			throw new InvalidArgument(`${title}: it has no methods that could be called`);
		}
		const key = randomName(this.runtime.shell, KEY_BYTES);
		const entry: Entry = {
			key,
			kind,
			title,
			target,
			methods,
			leaseMs,
			origin,
			count: 0,
			busy: 0,
			timer: undefined,
		};
		this.entries.set(key, entry);
		return entry;
	}

	/** Wire form of an entry. */
	referenceTo(entry: Entry): Record<string, unknown> {
		const methods = [...entry.methods.values()].map((bound) => [bound.name, bound.streams, null]);
		const { key, kind, title } = entry;
		return { node: this.number, name: this.name, key, kind, title, methods };
	}

	busy(entry: Entry): void {
		entry.busy++;
	}

	idle(entry: Entry): void {
		entry.busy--;
		this.renew(entry, entry.origin === undefined ? Math.min(entry.leaseMs, CLAIM_MS) : entry.leaseMs);
		if (entry.count <= 0 && entry.busy === 0) {
			this.remove(entry);
		}
	}

	/** Entry that a node names; its lease begins anew. */
	use(key: string, origin: number): Entry {
		const entry = this.entries.get(key);
		if (entry === undefined || (entry.origin !== undefined && entry.origin !== origin)) {
			throw new RemoteGone(
				`${key.slice(0, 8)}: you hold no export of this key: it was disposed, its lease has ended, or another node holds it`,
			);
		}
		entry.origin = origin;
		this.renew(entry, entry.leaseMs);
		return entry;
	}

	claim(keys: unknown, origin: number): void {
		for (const key of list(keys)) {
			if (this.entries.has(String(key))) {
				this.use(String(key), origin);
			}
		}
	}

	release(pairs: unknown, origin: number): void {
		const parts = list(pairs);
		for (let at = 0; at + 1 < parts.length; at += 2) {
			const entry = this.entries.get(String(parts[at]));
			const count = Number(parts[at + 1]);
			if (entry !== undefined && (entry.origin ?? origin) === origin && count > 0) {
				entry.count -= count;
				if (entry.count <= 0 && entry.busy === 0) {
					this.remove(entry);
				}
			}
		}
	}

	/** Lets go of all entries of a target. */
	dispose(target: object): void {
		for (const entry of [...this.entries.values()]) {
			if (entry.target === target) {
				this.remove(entry);
			}
		}
	}

	private renew(entry: Entry, ms: number): void {
		this.runtime.timers.cancel(entry.timer);
		entry.timer = this.runtime.timers.add(this.runtime.now + ms, () => {
			// The lease is paused during calls, and renewed at their end.
			if (entry.busy === 0) {
				this.remove(entry);
			}
		});
	}

	/** Lets it go. */
	remove(entry: Entry): void {
		this.runtime.timers.cancel(entry.timer);
		this.entries.delete(entry.key);
	}
}

function describeTarget(kind: ReferenceKind, target: object): [title: string, methods: ReadonlyMap<string, Bound>] {
	if (kind === "items") {
		const take: Bound = {
			name: "take",
			streams: true,
			run: () => target,
			parameters: undefined,
		};
		return ["an argument", new Map([["take", take]])];
	}
	if (kind === "function") {
		const bound = boundFunction("call", target as (...args: unknown[]) => unknown, undefined);
		return [(target as { name?: string }).name || "function", new Map([["call", bound]])];
	}
	return [target.constructor?.name ?? "object", boundMethods(target, {})];
}

/** True if a value is read item by item: an async iterable, or an iterator such as a generator. */
function isStream(value: unknown): boolean {
	if (typeof value !== "object" || value === null) {
		return false;
	}
	const like = value as {
		[Symbol.asyncIterator]?: unknown;
		[Symbol.iterator]?: unknown;
		next?: unknown;
	};
	return (
		typeof like[Symbol.asyncIterator] === "function" ||
		(typeof like[Symbol.iterator] === "function" && typeof like.next === "function")
	);
}

function list(value: unknown): readonly unknown[] {
	if (!Array.isArray(value)) {
		throw new WireError("claims and releases are arrays");
	}
	return value;
}
