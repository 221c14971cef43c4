/** A node: what a program does with its link to a hub. */

import type { AnyService, Client } from "./client.js";
import { Clients, NAME } from "./clients.js";
import { type ConnectOptions, checkConnect } from "./connecting.js";
import { type ServiceInfo, services, type Visibility } from "./discovery.js";
import { Dispatch } from "./dispatch.js";
import type { TidewireError } from "./error.js";
import { InvalidArgument, LinkLost, NodeStopped, Unauthorized } from "./generated/errors.js";
import * as limits from "./generated/limits.js";
import { Host, type HostLimits, type ServiceStatistics } from "./hosting.js";
import type { Joined, LinkEvents } from "./link.js";
import { boundMethods, type MethodOptions } from "./methods.js";
import { type CallOptions, checkOptions, checkTimeout, headerFields, laneOf, type Priority, shown } from "./options.js";
import { Presence } from "./presence.js";
import { References } from "./references.js";
import { Runtime } from "./runtime.js";
import { checkLimits, openOf, Serving, said } from "./serving.js";
import type { Session } from "./session.js";
import type { Shell } from "./shell.js";
import type { Bucket, BucketInfo, BucketSettings } from "./streams/bucket.js";
import type { Commands } from "./streams/commands.js";
import type { Lease, LeaseOptions } from "./streams/lease.js";
import type { Store } from "./streams/store.js";
import type { Stream, StreamInfo, StreamSettings } from "./streams/stream.js";
import { checkSubject, covers } from "./subjects.js";
import {
	type Envelope,
	type Listener,
	Subscribed,
	type SubscribeOptions,
	type Subscription,
	Subscriptions,
} from "./subscriptions.js";
import { asyncDispose } from "./symbols.js";
import { encode } from "./text.js";
import { readValue } from "./values/reader.js";
import { writeValue } from "./values/writer.js";

/** What `node.serve` is told. */
export interface ServeOptions extends HostLimits {
	readonly description?: string;
	/** "private" (nodes that joined the hub) or "public" (also those who come over HTTP). */
	readonly visibility?: Visibility;
	/** The id of this instance; one that nobody else has if nothing is said. */
	readonly instance?: string;
	/** The semantic version of this instance, such as "1.4.2". */
	readonly version?: string;
	/** What else others are told of this instance: texts by name, 4,096 bytes in all. */
	readonly metadata?: Readonly<Record<string, string>>;
	/** What others are told of single methods. */
	readonly methods?: Readonly<Record<string, MethodOptions>>;
}

/** An instance of a service that this node serves. */
export interface ServiceHandle {
	readonly name: string;
	readonly instance: string;
	statistics(): ServiceStatistics;
	/** Takes no more calls, ends its streams, and waits for the calls that came. */
	stop(): Promise<void>;
	[Symbol.asyncDispose](): Promise<void>;
}

/** What a node tells by itself. */
export interface NodeEvents {
	/** It has joined its hub, for the first time or again: services and subscriptions are on their way back. */
	joined: (hub: string) => void;
	/** Its link was lost; it is looked for again. */
	lost: (reason: string) => void;
	/** There is no link, and none will come; with the error, if that is not because of `close()`. */
	closed: (error: TidewireError | undefined) => void;
}

/** Counts of a node. */
export interface NodeStatistics {
	readonly name: string;
	/** The name of the hub; null while there is no link. */
	readonly hub: string | null;
	/** How often a link was lost. */
	readonly lost: number;
	/** Messages of the link since it was joined, bytes that wait to be sent, and messages published that found no room. */
	readonly link: {
		readonly sent: number;
		readonly received: number;
		readonly dropped: number;
		readonly waitingBytes: number;
	};
	/** Calls, streams and subscriptions of this node, and calls of others, that are open. */
	readonly open: { readonly mine: number; readonly theirs: number };
	readonly subscriptions: number;
	readonly services: number;
	/** Entries of the hub's lists of services that were skipped, as they were not of the form that they have to have. */
	readonly skipped: number;
	/** Functions, objects and streams that were given to others, and that are held of them. */
	readonly remote: { readonly given: number; readonly held: number };
}

/** Joins a hub with a shell; `connect` does so with that of the platform. */
export function join(shell: Shell, url: string, options: ConnectOptions = {}): Promise<Node> {
	return Node.join(shell, url, options);
}

/** A node that has joined a hub. `connect` makes one. */
export class Node {
	/** Its name on the hub. */
	readonly name: string;
	private readonly runtime: Runtime;
	private readonly presence: Presence;
	private readonly clients: Clients;
	private readonly references: References;
	private readonly dispatch: Dispatch;
	private readonly subscriptions = new Subscriptions();
	private readonly servings = new Set<Serving>();
	private readonly byService = new Map<string, Serving>();
	private readonly listeners = new Map<keyof NodeEvents, Set<(...args: never[]) => void>>();
	private current: Joined | undefined;
	private store: Store | undefined;
	private losses = 0;
	private ending: Promise<void> | undefined;

	private constructor(shell: Shell, url: string, options: ConnectOptions) {
		this.name = options.name ?? `js-${randomName(shell)}`;
		const link = {
			name: this.name,
			token: options.token,
			joinTimeoutMs: options.joinTimeout ?? 0,
			heartbeatMs: options.heartbeat ?? limits.LINK_HEARTBEAT_MS,
			backoffMs: limits.LINK_BACKOFF_MS,
			backoffMaxMs: limits.LINK_BACKOFF_MAX_MS,
			payloadBytes: options.payloadBytes ?? limits.PAYLOAD_BYTES,
			random: () => (shell.randomBytes(1)[0] as number) / 255,
		};
		this.runtime = new Runtime(shell, url, link, this.events);
		this.presence = new Presence(this.runtime);
		this.clients = new Clients(this.runtime, this.presence, () => this.references);
		this.references = new References(this.runtime, this.clients.site, this.name);
		this.dispatch = new Dispatch(this.runtime, this.servings, this.subscriptions, this.references);
	}

	/** @internal */
	static async join(shell: Shell, url: string, options: ConnectOptions): Promise<Node> {
		checkConnect(url, options);
		options.signal?.throwIfAborted();
		const node = new Node(shell, url, options);
		const abort = (): void => node.runtime.link.close();
		options.signal?.addEventListener("abort", abort);
		try {
			node.runtime.start();
			await node.presence.joined();
		} catch (error) {
			node.runtime.close();
			options.signal?.throwIfAborted();
			throw error;
		} finally {
			options.signal?.removeEventListener("abort", abort);
		}
		return node;
	}

	/** The name of its hub; undefined while there is no link. */
	get hub(): string | undefined {
		return this.current?.hub;
	}

	/**
	 * A client of a service. Nothing is sent before a method is called and awaited, or read.
	 *
	 * @typeParam T What the service offers: `tidewire generate ts` writes it. Without it everything is unknown.
	 */
	client<T = AnyService>(service: string, options: CallOptions = {}): Client<T> {
		return this.clients.client(service, options);
	}

	/**
	 * Serves the functions of an object, or of an instance of a class, under a name. Functions may be async; generators, async or not, are streams. Awaited,
	 * it is known to the hub; while the link is lost that waits.
	 */
	async serve(name: string, target: object, options: ServeOptions = {}): Promise<ServiceHandle> {
		const instance = options.instance ?? randomName(this.runtime.shell);
		for (const [field, value] of [
			["name", name],
			["instance", instance],
		]) {
			if (typeof value !== "string" || !NAME.test(value)) {
				throw new InvalidArgument(
					`serve: ${field}: ${shown(value)} is not allowed: give one token without dots, blanks, '*' and '>'`,
				);
			}
		}
		checkLimits(options);
		const methods = boundMethods(target, options.methods ?? {});
		if (methods.size === 0) {
			throw new InvalidArgument(
				`serve: ${name}: it has no functions: give an object of functions, or an instance of a class`,
			);
		}
		const info = said(name, instance, methods, options);
		const open = openOf(methods, options);
		const serving: Serving = new Serving(name, instance, methods, open, info, new Host(this.runtime, options), () =>
			this.stopServing(serving),
		);
		const key = `svc.${name}.${instance}`;
		if (this.byService.has(key)) {
			throw new InvalidArgument(
				`serve: instance: '${instance}' of '${name}' is served by this node already: choose another id`,
			);
		}
		this.servings.add(serving);
		this.byService.set(key, serving);
		try {
			await this.presence.during(() => this.announce(serving));
			serving.isKnown = true;
		} catch (error) {
			this.stopServing(serving);
			throw error;
		}
		return serving;
	}

	private stopServing(serving: Serving): void {
		this.servings.delete(serving);
		this.byService.delete(`svc.${serving.name}.${serving.instance}`);
		for (const id of serving.ids.splice(0)) {
			this.runtime.link.session?.unsubscribe(id);
		}
		this.runtime.plan();
	}

	private announce(serving: Serving): Promise<void> {
		const session = this.runtime.session;
		const { name, instance, info } = serving;
		serving.ids.length = 0;
		const one = (pattern: string, queue: string, fields: readonly (readonly [string, Uint8Array])[]): Promise<void> =>
			new Promise((resolve, reject) => {
				const answered = (error?: TidewireError): void => (error === undefined ? resolve() : reject(error));
				serving.ids.push(session.subscribe(pattern, queue, false, fields, answered));
			});
		const both = [one(`svc.${name}.${instance}.*`, "", [["service", encode(info)]]), one(`svc.${name}.*`, name, [])];
		this.runtime.plan();
		return Promise.all(both).then(() => {});
	}

	/**
	 * Publishes a value on a subject, at most once to each subscriber; this node's own get it, too. Returns whether the link had room for it.
	 *
	 * @throws InvalidArgument if the value can't travel, with its path; Unauthorized if the token does not allow the subject; LinkLost if there is no link.
	 */
	publish(
		subject: string,
		value: unknown,
		options: {
			readonly headers?: Readonly<Record<string, string>>;
			readonly priority?: Priority;
		} = {},
	): boolean {
		checkSubject(subject, false);
		const session = this.runtime.session;
		const allowed = session.agreed.publish;
		if (
			subject.startsWith("$hub.") ||
			subject.startsWith("$node.") ||
			allowed?.every((pattern) => !covers(pattern, subject))
		) {
			const text = allowed
				? `the token allows ${allowed.length > 0 ? allowed.join(" ") : "nothing"}`
				: "it belongs to the protocol";
			throw new Unauthorized(`publish: '${subject}' is not allowed: ${text}`);
		}
		const payload = writeValue(value);
		const sent = session.publish(subject, headerFields(options.headers), payload, laneOf(options.priority));
		this.runtime.plan();
		const envelope: Envelope = {
			subject,
			value,
			headers: { ...options.headers },
			node: this.name,
			user: "",
		};
		for (const one of this.subscriptions.chosen(subject)) {
			one.deliver({ envelope: () => envelope });
		}
		return sent;
	}

	/** Has a listener called with each message that is published on subjects of a pattern. Awaited, it is known to the hub. */
	async subscribe(pattern: string, listener: Listener, options: SubscribeOptions = {}): Promise<Subscription> {
		if (typeof listener !== "function") {
			throw new InvalidArgument(`subscribe: listener: ${shown(listener)} is not allowed: give a function`);
		}
		return this.subscribed(pattern, listener, options);
	}

	/** The messages of a pattern, to be read in a loop. It is known to the hub once its first message is asked for; up to 1,000 wait. */
	subscription(
		pattern: string,
		options: SubscribeOptions = {},
	): AsyncIterableIterator<Envelope, undefined, undefined> & AsyncDisposable {
		Subscriptions.check(pattern, options.queue ?? "");
		let own: Promise<Subscribed> | undefined;
		const begin = (): Promise<Subscribed> => {
			own ??= this.subscribed(pattern, undefined, options);
			return own;
		};
		const end = async (): Promise<IteratorResult<Envelope, undefined>> => {
			await (await own)?.return();
			return { done: true, value: undefined };
		};
		return {
			next: async () => (await begin()).next(),
			return: end,
			[Symbol.asyncIterator]() {
				void begin().catch(() => {});
				return this;
			},
			[asyncDispose]: async () => {
				await end();
			},
		};
	}

	private async subscribed(
		pattern: string,
		listener: Listener | undefined,
		options: SubscribeOptions,
	): Promise<Subscribed> {
		const queue = options.queue ?? "";
		Subscriptions.check(pattern, queue);
		const ends = (one: Subscribed): void => {
			if (one.id !== undefined) {
				this.runtime.link.session?.unsubscribe(one.id);
				this.runtime.plan();
			}
			this.subscriptions.remove(one);
		};
		const subscribed = new Subscribed(pattern, queue, listener, ends, (error) => this.runtime.shell.report(error));
		this.subscriptions.add(subscribed);
		try {
			await this.presence.during(() => this.enter(subscribed));
			subscribed.isKnown = true;
		} catch (error) {
			subscribed.stop();
			throw error;
		}
		return subscribed;
	}

	private enter(one: Subscribed): Promise<void> {
		return new Promise((resolve, reject) => {
			const answered = (error?: TidewireError): void => (error === undefined ? resolve() : reject(error));
			this.subscriptions.at(
				one,
				this.runtime.session.subscribe(one.pattern, one.queue, one.listener === undefined, [], answered),
			);
			this.runtime.plan();
		});
	}

	/** Asks whoever is subscribed to a subject, and gives its answer. A subscriber of this node is asked first. */
	async request(
		subject: string,
		value: unknown,
		options: Omit<CallOptions, "instance" | "policy"> = {},
	): Promise<unknown> {
		checkSubject(subject, false);
		checkOptions(options);
		const own = this.subscriptions.of(subject).find((one) => one.listener !== undefined);
		if (own?.listener === undefined) {
			return this.clients.request(subject, value, options);
		}
		const copy = readValue(writeValue(value));
		const envelope: Envelope = { subject, value: copy, headers: { ...options.headers }, node: this.name, user: "" };
		return readValue(writeValue(await own.listener(copy, envelope)));
	}

	/** What is served, with schemas, as the hub lists it. */
	async services(): Promise<ServiceInfo[]> {
		return services(await this.clients.instances());
	}

	/** Counts of this node. */
	statistics(): NodeStatistics {
		const session = this.runtime.link.session;
		return {
			name: this.name,
			hub: this.current?.hub ?? null,
			lost: this.losses,
			link: {
				...(session?.counts ?? { sent: 0, received: 0, dropped: 0 }),
				waitingBytes: session?.waitingBytes ?? 0,
			},
			open: session?.open ?? { mine: 0, theirs: 0 },
			subscriptions: this.subscriptions.size,
			services: this.servings.size,
			skipped: this.clients.skipped,
			remote: this.references.statistics(),
		};
	}

	/** Has a listener called when something happens, and returns what ends that. */
	on<K extends keyof NodeEvents>(event: K, listener: NodeEvents[K]): () => void {
		if (!["joined", "lost", "closed"].includes(event)) {
			throw new InvalidArgument(`on: ${shown(event)} is not allowed: use 'joined', 'lost' or 'closed'`);
		}
		const listeners = this.listeners.get(event) ?? new Set();
		listeners.add(listener);
		this.listeners.set(event, listeners);
		return () => listeners.delete(listener);
	}

	private emit<K extends keyof NodeEvents>(event: K, ...args: Parameters<NodeEvents[K]>): void {
		for (const listener of [...(this.listeners.get(event) ?? [])]) {
			try {
				(listener as unknown as (...given: Parameters<NodeEvents[K]>) => void)(...args);
			} catch (error) {
				this.runtime.shell.report(error);
			}
		}
	}

	/**
	 * A stream of the hub's data folder. With settings it is made, or found with the same ones; without, it is to be there.
	 *
	 * @typeParam T What is published on it.
	 * @throws SettingsDiffer if it exists with other settings; NotFound if it is to be there and is not; NoResponders if the hub has no data folder.
	 */
	async stream<T = unknown>(name: string, settings?: StreamSettings): Promise<Stream<T>> {
		return (await this.stores()).stream<T>(name, settings);
	}

	/** What there is of every stream of the hub, by name. */
	async streams(): Promise<StreamInfo[]> {
		return (await this.stores()).streams();
	}

	/**
	 * A key-value bucket of the hub's data folder. With settings, `{}` too, it is made, or found with the same ones; without, it is to be there.
	 *
	 * @typeParam T What its values are.
	 * @throws SettingsDiffer, NotFound and NoResponders as of `stream`.
	 */
	async kv<T = unknown>(name: string, settings?: BucketSettings): Promise<Bucket<T>> {
		return (await this.stores()).kv<T>(name, settings);
	}

	/** What there is of every bucket of the hub, by name. */
	async buckets(): Promise<BucketInfo[]> {
		return (await this.stores()).buckets();
	}

	/** The commands of the hub: long work that is started, followed, and found again by its id. */
	async commands(): Promise<Commands> {
		const { Clock, Commands } = await import("./streams/store.js");
		const { shell } = this.runtime;
		return new Commands(this, new Clock(this.runtime), () => randomName(shell) + randomName(shell));
	}

	/**
	 * Waits for a lease of the hub, and holds it until it is released, or its `await using` block ends; it is renewed meanwhile. When the link is lost, so is
	 * the lease.
	 *
	 * @param name A subject's text, such as `orders.matching`.
	 * @throws NoResponders if the hub has no data folder; the reason of `signal`, when that aborts.
	 */
	async lease(name: string, options: LeaseOptions = {}): Promise<Lease> {
		const { Clock, Lease } = await import("./streams/store.js");
		return Lease.acquire(this, new Clock(this.runtime), name, options);
	}

	private async stores(): Promise<Store> {
		const { Home, Store } = await import("./streams/store.js");
		const { shell } = this.runtime;
		this.store ??= new Store(new Home(this, () => shell.now()), () => randomName(shell));
		return this.store;
	}

	/**
	 * Leaves the hub: takes no new calls, finishes those that came, ends the streams of its services, and closes once the hub has read everything. A second
	 * call waits for the first.
	 *
	 * @param options `timeout`: milliseconds (30,000) after which what is left is cut off.
	 */
	close(options: { readonly timeout?: number } = {}): Promise<void> {
		checkTimeout("close: timeout", options.timeout);
		this.ending ??= this.drain(options.timeout ?? limits.STOP_TIMEOUT_MS);
		return this.ending;
	}

	/** The same as `close()`, for `await using`. */
	[asyncDispose](): Promise<void> {
		return this.close();
	}

	private async drain(timeoutMs: number): Promise<void> {
		const session = this.runtime.link.session;
		if (session !== undefined) {
			const { timers } = this.runtime;
			await new Promise<void>((resolve) => {
				const timer = timers.add(this.runtime.now + timeoutMs, () => resolve());
				this.left(session)
					.catch(() => {})
					.finally(() => {
						timers.cancel(timer);
						resolve();
					});
				this.runtime.plan();
			});
		}
		for (const host of this.hosts()) {
			host.cut();
		}
		this.runtime.close();
	}

	private async left(session: Session): Promise<void> {
		session.goodbye();
		this.runtime.plan();
		await Promise.all(this.hosts().map((host) => host.drain()));
		await new Promise<void>((resolve) => {
			this.runtime.when(() => {
				const isSaid = session.waitingBytes === 0 || this.runtime.link.session !== session;
				if (isSaid) {
					session.arrived(resolve);
					this.runtime.plan();
				}
				return isSaid;
			});
		});
	}

	private hosts(): Host[] {
		return [...this.dispatch.hosts, ...[...this.servings].map((serving) => serving.host)];
	}

	// The link

	private readonly events: LinkEvents = {
		joined: (joined, session) => {
			this.current = joined;
			this.references.joined(joined.node);
			session.subscribe(`$node.${joined.node}.>`, "", false, [], () => {});
			this.restore();
			this.presence.told();
			this.emit("joined", joined.hub);
		},
		lost: (reason) => {
			this.losses++;
			this.current = undefined;
			this.references.lost();
			for (const one of this.subscriptions) {
				this.subscriptions.at(one, undefined);
			}
			this.emit("lost", reason);
		},
		closed: (error) => {
			this.current = undefined;
			this.references.lost();
			this.presence.told(error ?? new NodeStopped("the node was closed"));
			for (const one of [...this.subscriptions]) {
				one.stop();
			}
			this.emit("closed", error);
		},
		goodbye: () => {},
		left: (origin) => this.references.left(origin),
		published: (message) => this.dispatch.published(message),
		called: (call, now) => this.dispatch.called(call, now),
	};

	/** What was known to the hub before is to be known to it again. */
	private restore(): void {
		const report = (error: unknown): void => {
			if (!(error instanceof LinkLost)) {
				this.runtime.shell.report(error);
			}
		};
		for (const serving of this.servings) {
			if (serving.isKnown) {
				this.announce(serving).catch(report);
			}
		}
		for (const one of this.subscriptions) {
			if (one.isKnown) {
				this.enter(one).catch(report);
			}
		}
	}
}

function randomName(shell: Shell): string {
	return Array.from(shell.randomBytes(6), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
