/**
 * Functions, objects and streams of other nodes that this one holds, and the proxies through which
 * they are called.
 */
import type { CallSite } from "../calls/calls.js";
import { callValue, Invocation, type Plan } from "../calls/calls.js";
import type { AnyService, Client, Method } from "../calls/client.js";
import { requestPlan } from "../calls/clients.js";
import { ItemReader } from "../calls/item_reader.js";
import { LimitExceeded, RemoteGone } from "../generated/errors.js";
import { ASK_TIMEOUT_MS, REMOTE_OBJECTS } from "../generated/limits.js";
import { lazyReader } from "../iterators/lazy_reader.js";
import type { Runtime } from "../link/runtime.js";
import { argumentsOf } from "../options.js";
import { asyncDispose } from "../symbols.js";
import { tuple } from "../values/kinds.js";
import type { Reference } from "./remote.js";

const TELL_MS = 30_000;

/** An import: a function, an object or a stream of another node. */
export interface ImportEntry {
	readonly reference: Reference;
	count: number;
	isGone: boolean;
	readonly proxy: WeakRef<object>;
}

/** A function of another node: calling it is a call to that node. */
export type RemoteFunction<F extends (...args: never[]) => unknown = (...args: unknown[]) => unknown> = Method<F> &
	Disposal;

/** An object of another node: its methods are calls to that node. */
export type RemoteObject<T = AnyService> = Omit<Client<T>, "with"> & Disposal;

/** Release of an import; not needed by programs that just drop the object. */
export interface Disposal {
	dispose(): void;
	[Symbol.asyncDispose](): Promise<void>;
}

/** Class of the objects of other nodes, so that they are not taken for data. */
class RemoteThing {}

const IMPORT: unique symbol = Symbol("held");

export class ImportTable {
	private readonly entries = new Map<string, ImportEntry>();
	private claims = new Map<number, string[]>();
	private releases = new Map<number, Map<string, number>>();
	private isPlanned = false;

	constructor(
		private readonly runtime: Runtime,
		private readonly site: CallSite,
	) {}

	get size(): number {
		return this.entries.size;
	}

	/** Drops all imports: the link was lost. */
	lost(): void {
		this.left();
		this.claims.clear();
		this.releases.clear();
	}

	/** A node has gone, or all of them: its exports can't be called. */
	left(origin?: number): void {
		for (const [key, entry] of this.entries) {
			if (origin === undefined || entry.reference.node === origin) {
				entry.isGone = true;
				this.entries.delete(key);
			}
		}
	}

	/** Proxy of a function or an object of another node. */
	take(reference: Reference): unknown {
		const known = this.entries.get(reference.key);
		const proxy = known?.proxy.deref();
		if (known !== undefined && proxy !== undefined) {
			known.count++;
			return proxy;
		}
		if (this.entries.size >= REMOTE_OBJECTS) {
			throw new LimitExceeded(`remote_objects=${REMOTE_OBJECTS}: so many imports are open: dispose some`);
		}
		return this.add(reference);
	}

	private add(reference: Reference): object {
		const shared: { entry?: ImportEntry } = {};
		const entryOf = (): ImportEntry => shared.entry as ImportEntry;
		const proxy = this.proxy(reference, entryOf);
		const entry: ImportEntry = {
			reference,
			count: 1,
			isGone: false,
			proxy: new WeakRef(proxy),
		};
		shared.entry = entry;
		this.entries.set(reference.key, entry);
		this.runtime.shell.watch(proxy, () => this.letGo(entry));
		const claims = this.claims.get(reference.node) ?? [];
		claims.push(reference.key);
		this.claims.set(reference.node, claims);
		this.tellSoon();
		return proxy;
	}

	private proxy(reference: Reference, entryOf: () => ImportEntry): object {
		const dispose = (): void => this.letGo(entryOf());
		const common = {
			dispose,
			[asyncDispose]: async (): Promise<void> => dispose(),
			[IMPORT]: entryOf,
		};
		if (reference.kind === "items") {
			return Object.assign(new RemoteThing(), common, {
				[Symbol.asyncIterator]: () =>
					lazyReader(this.runtime.shell, async () => new ItemReader(this.site, this.plan(entryOf(), "take"), tuple())),
			});
		}
		// Promises would treat an object with a method `then` as a promise.
		const callable = reference.methods.filter(([name]) => name !== "then" && name !== "__proto__");
		const methods = callable.map(([name, streams]) => [name, this.method(entryOf, name, streams)] as const);
		if (reference.kind === "function") {
			return Object.assign(this.method(entryOf, "call", reference.methods[0]?.[1] ?? false), common);
		}
		return Object.assign(new RemoteThing(), Object.fromEntries(methods), common);
	}

	private method(entryOf: () => ImportEntry, name: string, streams: boolean): (...args: unknown[]) => Invocation {
		return (...args) => {
			const part = this.site.nested();
			const plan = (): Plan => part(this.plan(entryOf(), name));
			const value = argumentsOf(args);
			return new Invocation(
				this.runtime,
				async (isStream) => (isStream ? new ItemReader(this.site, plan(), value) : callValue(this.site, plan(), value)),
				streams,
			);
		};
	}

	private plan(entry: ImportEntry, name: string): Plan {
		const { node, key, title, kind, methods } = entry.reference;
		if (entry.isGone) {
			throw new RemoteGone(`${title}: it was disposed, or a link was lost: get it again`);
		}
		const timeout = methods.find((method) => method[0] === name)?.[2];
		return {
			...requestPlan(`$node.${node}.${key}.${name}`, {}),
			title: kind === "object" ? `${title}.${name}` : title,
			defaultMs: typeof timeout === "number" ? timeout * 1000 : ASK_TIMEOUT_MS,
			peer: node,
			gives: true,
			onGone: () => {
				entry.isGone = true;
				this.entries.delete(key);
			},
		};
	}

	private letGo(entry: ImportEntry): void {
		const { key, node } = entry.reference;
		if (this.entries.get(key) === entry) {
			this.entries.delete(key);
		}
		if (entry.isGone) {
			return;
		}
		entry.isGone = true;
		const counts = this.releases.get(node) ?? new Map<string, number>();
		counts.set(key, (counts.get(key) ?? 0) + entry.count);
		this.releases.set(node, counts);
		this.tellSoon();
	}

	/** Claims and releases gather, and go out together. */
	private tellSoon(): void {
		if (this.isPlanned) {
			return;
		}
		this.isPlanned = true;
		this.runtime.shell.soon(() => {
			this.isPlanned = false;
			const [claims, releases] = [this.claims, this.releases];
			this.claims = new Map();
			this.releases = new Map();
			for (const [node, keys] of claims) {
				const live = keys.filter((key) => this.entries.has(key));
				if (live.length > 0) {
					this.tell(`$node.${node}.claim`, live);
				}
			}
			for (const [node, counts] of releases) {
				this.tell(`$node.${node}.release`, [...counts].flat());
			}
		});
	}

	private tell(subject: string, value: unknown): void {
		// An owner that can't be notified ends the lease by itself.
		callValue(this.site, requestPlan(subject, { timeout: TELL_MS }), value).catch(() => {});
	}
}

/** Import entry of a value; undefined if the value is of this node. */
export function importOf(value: unknown): ImportEntry | undefined {
	const isProxy = (typeof value === "object" && value !== null) || typeof value === "function";
	const of = isProxy ? (value as { [IMPORT]?: () => ImportEntry })[IMPORT] : undefined;
	return of?.();
}
