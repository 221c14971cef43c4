/** Functions, objects and streams that this node has given to others, and what it holds of them. */
import type { CallSite } from "./calls.js";
import { callValue, Invocation, type Plan, Stream } from "./calls.js";
import type { AnyService, Client, Method } from "./client.js";
import { NORMAL } from "./frames.js";
import { InvalidArgument, LimitExceeded, RemoteGone, WireError } from "./generated/errors.js";
import { ASK_TIMEOUT_MS, REMOTE_LEASE_MS, REMOTE_OBJECTS } from "./generated/limits.js";
import { type Bound, boundFunction, boundMethods } from "./methods.js";
import { splitArguments } from "./options.js";
import type { Runtime } from "./runtime.js";
import { asyncDispose } from "./symbols.js";
import type { Timer } from "./timers.js";
import { tuple } from "./values/kinds.js";

const KEY_BYTES = 16;
const KEY = /^[0-9a-f]{32}$/;
/** How long what was given in a call that is over waits for the word that its callee has got it. */
const CLAIM_MS = 5000;
const TELL_MS = 30_000;

type Kind = "function" | "object" | "items";

/** What stands for a function or an object on the wire. */
interface Stands {
	readonly node: number;
	readonly name: string;
	readonly key: string;
	readonly kind: Kind;
	readonly title: string;
	readonly methods: readonly (readonly [name: string, streams: boolean, timeout: number | null])[];
}

/** Marks an object, so that it is given by reference. */
export class Remote {
	/** @internal */
	readonly disposers = new Set<() => void>();

	/** @internal */
	constructor(
		readonly target: object,
		readonly leaseMs: number,
	) {}

	/** Lets it go, whoever holds it. A second time does nothing. */
	dispose(): void {
		for (const dispose of this.disposers) {
			dispose();
		}
		this.disposers.clear();
	}

	/** The same, for `await using`. */
	async [asyncDispose](): Promise<void> {
		this.dispose();
	}
}

/**
 * Marks an object or a function, so that as an argument or a result it is given by reference: its methods are called here. A function needs that only for a
 * lease of its own, or to be let go by `dispose()`.
 *
 * @param options `lease`: how long it lives without being used, in milliseconds (600,000).
 */
export function remote(target: object, options: { readonly lease?: number } = {}): Remote {
	const lease = options.lease ?? REMOTE_LEASE_MS;
	if (!(lease > 0 && lease <= 604_800_000)) {
		throw new InvalidArgument(
			`remote: lease: ${lease} is not allowed: give milliseconds, more than 0 and at most 604,800,000`,
		);
	}
	if (typeof target !== "object" && typeof target !== "function") {
		throw new InvalidArgument(`remote: a ${typeof target} is not allowed: give an object or a function`);
	}
	return new Remote(target, lease);
}

/** One object that one node has been given. */
export interface Entry {
	readonly key: string;
	readonly kind: Kind;
	readonly title: string;
	readonly target: object;
	readonly methods: ReadonlyMap<string, Bound>;
	readonly leaseMs: number;
	/** The number of the node that holds it; undefined until that is known: of a call, the hub has chosen it. */
	origin: number | undefined;
	given: number;
	/** Calls of it, and calls whose argument it is, that are under way. */
	busy: number;
	timer: Timer | undefined;
}

/** What one call gives. */
export interface Giving {
	readonly give: (value: unknown) => Record<string, unknown> | undefined;
	/** The name of the node whose own comes back to it, if anything does. */
	readonly owner: string | undefined;
	/** Whether it gives what can't be given a second time. */
	readonly isOnce: boolean;
	/** The call has ended; `lost`: before its callee had it. */
	ended(lost: boolean): void;
}

/** Something that this node holds of another one. */
interface Holding {
	readonly stands: Stands;
	count: number;
	isGone: boolean;
	readonly proxy: WeakRef<object>;
}

/** A function of another node: calling it is a call to that node. */
export type RemoteFunction<F extends (...args: never[]) => unknown = (...args: unknown[]) => unknown> = Method<F> &
	Disposal;

/** An object of another node: its methods are calls to that node. */
export type RemoteObject<T = AnyService> = Omit<Client<T>, "with"> & Disposal;

/** How what is held of another node is let go; nobody needs it who only drops it. */
export interface Disposal {
	dispose(): void;
	[Symbol.asyncDispose](): Promise<void>;
}

/** What objects of other nodes are, so that they are not taken for data. */
class RemoteThing {}

const HELD: unique symbol = Symbol("held");

export class References {
	private readonly entries = new Map<string, Entry>();
	private readonly holdings = new Map<string, Holding>();
	private claims = new Map<number, string[]>();
	private releases = new Map<number, Map<string, number>>();
	private isPlanned = false;
	/** The number of this node's link. */
	private number = 0;

	constructor(
		private readonly runtime: Runtime,
		private readonly site: () => CallSite,
		private readonly name: string,
	) {}

	statistics(): { readonly given: number; readonly held: number } {
		return { given: this.entries.size, held: this.holdings.size };
	}

	joined(number: number): void {
		this.number = number;
	}

	/** The link was lost: with it, all that was given and held. */
	lost(): void {
		for (const entry of [...this.entries.values()]) {
			this.remove(entry);
		}
		for (const holding of this.holdings.values()) {
			holding.isGone = true;
		}
		this.holdings.clear();
		this.claims.clear();
		this.releases.clear();
	}

	/** A node has gone: it holds nothing any more, and what it gave can't be called. */
	left(origin: number): void {
		for (const entry of [...this.entries.values()]) {
			if (entry.origin === origin) {
				this.remove(entry);
			}
		}
		for (const [key, holding] of this.holdings) {
			if (holding.stands.node === origin) {
				holding.isGone = true;
				this.holdings.delete(key);
			}
		}
	}

	// What is given

	/** For one call; to a node whose number is known, if it is. */
	giving(peer: number | undefined): Giving {
		const entries: Entry[] = [];
		let owner: string | undefined;
		let isOnce = false;
		const give = (value: unknown): Record<string, unknown> | undefined => {
			const holding = held(value);
			if (holding !== undefined) {
				const { name, node } = holding.stands;
				if ((peer !== undefined && node !== peer) || (owner !== undefined && owner !== name)) {
					throw new InvalidArgument(
						`${holding.stands.title}: it is of node '${name}', and can only be given back to that one`,
					);
				}
				owner = name;
				isOnce = true;
				return { kind: "back", key: holding.stands.key };
			}
			const entry = this.entry(value, peer, true);
			if (entry === undefined) {
				return undefined;
			}
			isOnce ||= entry.kind === "items";
			this.busy(entry);
			entries.push(entry);
			return this.stands(entry);
		};
		return {
			give,
			get owner() {
				return owner;
			},
			get isOnce() {
				return isOnce;
			},
			ended: (lost) => {
				for (const entry of entries.splice(0)) {
					this.idle(entry);
					if (entry.kind === "items" || (lost && entry.origin === undefined)) {
						this.remove(entry);
					}
				}
			},
		};
	}

	/** For the results of calls of one node. */
	givingTo(peer: number): (value: unknown) => Record<string, unknown> | undefined {
		return (value) => {
			const holding = held(value);
			if (holding !== undefined) {
				if (holding.stands.node !== peer) {
					throw new InvalidArgument(
						`${holding.stands.title}: it is of node '${holding.stands.name}', and can only be given back to that one`,
					);
				}
				return { kind: "back", key: holding.stands.key };
			}
			const entry = this.entry(value, peer, false);
			return entry && this.stands(entry);
		};
	}

	private entry(value: unknown, peer: number | undefined, mayStream: boolean): Entry | undefined {
		const marked = value instanceof Remote ? value : undefined;
		const target = marked?.target ?? value;
		if (marked === undefined && typeof value !== "function" && !(mayStream && isStream(value))) {
			return undefined;
		}
		const kind: Kind = typeof target === "function" ? "function" : marked ? "object" : "items";
		const known = peer === undefined ? undefined : this.known(target as object, peer, kind);
		const entry = known ?? this.add(target as object, kind, peer, marked?.leaseMs ?? REMOTE_LEASE_MS);
		marked?.disposers.add(() => this.dispose(entry.target));
		entry.given++;
		this.renew(entry, entry.leaseMs);
		return entry;
	}

	private known(target: object, peer: number, kind: Kind): Entry | undefined {
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

	private add(target: object, kind: Kind, origin: number | undefined, leaseMs: number): Entry {
		if (this.entries.size >= REMOTE_OBJECTS) {
			throw new LimitExceeded(
				`remote_objects=${REMOTE_OBJECTS}: so many functions and objects have been given to other nodes already: let some go (dispose), or give them shorter leases`,
			);
		}
		const [title, methods] = given(kind, target);
		if (methods.size === 0) {
			throw new InvalidArgument(`${title}: it has no methods that could be called`);
		}
		const bytes = this.runtime.shell.randomBytes(KEY_BYTES);
		const key = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
		const entry: Entry = {
			key,
			kind,
			title,
			target,
			methods,
			leaseMs,
			origin,
			given: 0,
			busy: 0,
			timer: undefined,
		};
		this.entries.set(key, entry);
		return entry;
	}

	private stands(entry: Entry): Record<string, unknown> {
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
		if (entry.given <= 0 && entry.busy === 0) {
			this.remove(entry);
		}
	}

	/** What a node names; its lease begins anew. */
	use(key: string, origin: number): Entry {
		const entry = this.entries.get(key);
		if (entry === undefined || (entry.origin !== undefined && entry.origin !== origin)) {
			throw new RemoteGone(
				`${key.slice(0, 8)}: this node has nothing of this key for you: it was let go, its lease is over, or it was given to another node`,
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
				entry.given -= count;
				if (entry.given <= 0 && entry.busy === 0) {
					this.remove(entry);
				}
			}
		}
	}

	private dispose(target: object): void {
		for (const entry of [...this.entries.values()]) {
			if (entry.target === target) {
				this.remove(entry);
			}
		}
	}

	private renew(entry: Entry, ms: number): void {
		this.runtime.timers.cancel(entry.timer);
		entry.timer = this.runtime.timers.add(this.runtime.now + ms, () => {
			// It stands still during calls, and begins anew with their end.
			if (entry.busy === 0) {
				this.remove(entry);
			}
		});
	}

	private remove(entry: Entry): void {
		this.runtime.timers.cancel(entry.timer);
		this.entries.delete(entry.key);
	}

	// What is held

	/** Makes something of what stands for a function or an object. */
	readonly take = (value: unknown): unknown => {
		if (typeof value === "object" && value !== null && (value as { kind?: unknown }).kind === "back") {
			const entry = this.entries.get(String((value as { key?: unknown }).key));
			if (entry === undefined) {
				throw new RemoteGone("something came back to its owner, who has let it go");
			}
			return entry.target;
		}
		const stands = checked(value);
		const known = this.holdings.get(stands.key);
		const proxy = known?.proxy.deref();
		if (known !== undefined && proxy !== undefined) {
			known.count++;
			return proxy;
		}
		if (this.holdings.size >= REMOTE_OBJECTS) {
			throw new LimitExceeded(
				`remote_objects=${REMOTE_OBJECTS}: this node holds so many functions and objects of others already: let some go (dispose)`,
			);
		}
		return this.hold(stands);
	};

	private hold(stands: Stands): object {
		const shared: { holding?: Holding } = {};
		const holdingOf = (): Holding => shared.holding as Holding;
		const proxy = this.proxy(stands, holdingOf);
		const holding: Holding = {
			stands,
			count: 1,
			isGone: false,
			proxy: new WeakRef(proxy),
		};
		shared.holding = holding;
		this.holdings.set(stands.key, holding);
		this.runtime.shell.watch(proxy, () => this.letGo(holding));
		const claims = this.claims.get(stands.node) ?? [];
		claims.push(stands.key);
		this.claims.set(stands.node, claims);
		this.tellSoon();
		return proxy;
	}

	private proxy(stands: Stands, holdingOf: () => Holding): object {
		const dispose = (): void => this.letGo(holdingOf());
		const common = {
			dispose,
			[asyncDispose]: async (): Promise<void> => dispose(),
			[HELD]: holdingOf,
		};
		if (stands.kind === "items") {
			return Object.assign(new RemoteThing(), common, {
				[Symbol.asyncIterator]: () => new Stream(this.site(), this.plan(holdingOf(), "take", [])),
			});
		}
		// What has a method of this name would be taken for a promise.
		const callable = stands.methods.filter(([name]) => name !== "then" && name !== "__proto__");
		const methods = callable.map(([name]) => [name, this.method(holdingOf, name)] as const);
		if (stands.kind === "function") {
			return Object.assign(this.method(holdingOf, "call"), common);
		}
		return Object.assign(new RemoteThing(), Object.fromEntries(methods), common);
	}

	private method(holdingOf: () => Holding, name: string): (...args: unknown[]) => Invocation {
		return (...args) => {
			const plan = (): Plan => this.plan(holdingOf(), name, args);
			return new Invocation(
				async () => callValue(this.site(), plan()),
				() => new Stream(this.site(), plan()),
			);
		};
	}

	private plan(holding: Holding, name: string, args: readonly unknown[]): Plan {
		const { node, key, title, kind, methods } = holding.stands;
		if (holding.isGone) {
			throw new RemoteGone(`${title}: it was let go, or its node or this one has lost its link: ask for it again`);
		}
		const [positional, byName] = splitArguments(args);
		const timeout = methods.find((method) => method[0] === name)?.[2];
		return {
			title: kind === "object" ? `${title}.${name}` : title,
			subject: () => `$node.${node}.${key}.${name}`,
			value: byName ? [tuple(...positional), byName] : tuple(...positional),
			fields: [],
			lane: NORMAL,
			timeoutMs: undefined,
			defaultMs: typeof timeout === "number" ? timeout * 1000 : ASK_TIMEOUT_MS,
			choice: 0,
			again: false,
			signal: undefined,
			peer: node,
			gives: true,
			gone: () => {
				holding.isGone = true;
				this.holdings.delete(key);
			},
		};
	}

	private letGo(holding: Holding): void {
		const { key, node } = holding.stands;
		if (this.holdings.get(key) === holding) {
			this.holdings.delete(key);
		}
		if (holding.isGone) {
			return;
		}
		holding.isGone = true;
		const counts = this.releases.get(node) ?? new Map<string, number>();
		counts.set(key, (counts.get(key) ?? 0) + holding.count);
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
				const wanted = keys.filter((key) => this.holdings.has(key));
				if (wanted.length > 0) {
					this.tell(`$node.${node}.claim`, wanted);
				}
			}
			for (const [node, counts] of releases) {
				this.tell(`$node.${node}.release`, [...counts].flat());
			}
		});
	}

	private tell(subject: string, value: unknown): void {
		const plan: Plan = {
			title: subject,
			subject: () => subject,
			value,
			fields: [],
			lane: NORMAL,
			timeoutMs: TELL_MS,
			defaultMs: TELL_MS,
			choice: 0,
			again: false,
			signal: undefined,
			gives: false,
		};
		// An owner that can't be told ends the lease by itself.
		callValue(this.site(), plan).catch(() => {});
	}
}

function given(kind: Kind, target: object): [title: string, methods: ReadonlyMap<string, Bound>] {
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

/** Whether a value is read item by item: an async iterable, or an iterator such as a generator. */
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

function held(value: unknown): Holding | undefined {
	const isProxy = (typeof value === "object" && value !== null) || typeof value === "function";
	const of = isProxy ? (value as { [HELD]?: () => Holding })[HELD] : undefined;
	return of?.();
}

function list(value: unknown): readonly unknown[] {
	if (!Array.isArray(value)) {
		throw new WireError("claims and releases are arrays");
	}
	return value;
}

function checked(value: unknown): Stands {
	const stands = value as Partial<Stands> | null;
	const isStands =
		typeof stands === "object" &&
		stands !== null &&
		typeof stands.node === "number" &&
		typeof stands.name === "string" &&
		typeof stands.title === "string" &&
		typeof stands.key === "string" &&
		KEY.test(stands.key) &&
		(stands.kind === "function" || stands.kind === "object" || stands.kind === "items");
	const methods: unknown = stands?.methods ?? [];
	if (!isStands || !Array.isArray(methods) || !methods.every(isMethod)) {
		throw new WireError("a reference to a function or an object is not of the form that this version knows");
	}
	return { ...(stands as Stands), methods };
}

function isMethod(method: unknown): boolean {
	return (
		Array.isArray(method) && method.length === 3 && typeof method[0] === "string" && typeof method[1] === "boolean"
	);
}
