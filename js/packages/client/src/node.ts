/** Node: the program's interface to its link to a hub. */

import type { AnyService, Client } from "./calls/client.js";
import { Clients, checkService } from "./calls/clients.js";
import type { Interceptor } from "./calls/interceptors.js";
import { type ConnectOptions, checkConnect } from "./connect_options.js";
import type { ServiceInfo } from "./discovery/discovery.js";
import type { InstanceChange } from "./discovery/service_watch.js";
import { InvalidArgument, NodeStopped, Unauthorized } from "./generated/errors.js";
import * as limits from "./generated/limits.js";
import { lazyReader } from "./iterators/lazy_reader.js";
import type { Reader } from "./iterators/page_reader.js";
import type { Joined, LinkEvents } from "./link/link.js";
import { Presence } from "./link/presence.js";
import { Runtime } from "./link/runtime.js";
import type { Session } from "./link/session.js";
import type { NodeEvents, NodeStatistics } from "./node_events.js";
import {
	type CallOptions,
	checkNames,
	checkOptions,
	checkTimeout,
	headerFields,
	laneOf,
	type Priority,
	shown,
} from "./options.js";
import { randomName, type Shell } from "./platform/shell.js";
import type { Incoming } from "./services/inbound.js";
import type { Servable, ServeOptions, ServiceHandle } from "./services/served_instance.js";
import type { HandlerLimits } from "./services/service_instance.js";
import type { Bucket, BucketInfo, BucketSettings } from "./streams/bucket.js";
import type { Commands } from "./streams/commands.js";
import type { Lease, LeaseOptions } from "./streams/lease.js";
import type { Store } from "./streams/store.js";
import type { Stream, StreamInfo, StreamSettings } from "./streams/stream.js";
import { checkSubject, checkSubscription, covers } from "./subjects/subjects.js";
import type { Envelope, Listener, SubscribeOptions, Subscription } from "./subjects/subscriptions.js";
import { asyncDispose } from "./symbols.js";
import { encode } from "./text.js";
import { writeValue } from "./values/writer.js";

const REMOTE_GONE = 30;
const EVENTS: readonly (keyof NodeEvents)[] = ["joined", "lost", "closed", "error"];

/** Joins a hub with a shell; `connect` does so with that of the platform. */
export function join(shell: Shell, url: string, options: ConnectOptions = {}): Promise<Node> {
	return Node.join(shell, url, options);
}

/** A node that has joined a hub. `connect` makes one. */
export class Node {
	/** Its name on the hub. */
	readonly name: string;
	/** @internal */
	readonly runtime: Runtime;
	private readonly presence: Presence;
	/** @internal */
	readonly clients: Clients;
	private readonly listeners = new Map<keyof NodeEvents, Set<(...args: never[]) => void>>();
	private current: Joined | undefined;
	private incoming: Incoming | undefined;
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
		this.clients = new Clients(
			this.runtime,
			this.presence,
			() => this.incoming?.references,
			() => this.answering(),
		);
		this.clients.start = async (...args) => (await this.commands()).start(...args);
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
	 * A client of a service. Nothing is sent before a method is called.
	 *
	 * @typeParam T Its methods, which `tidewire generate ts` writes; or only their names, such as
	 * `"quote" | "ticks"`: then their values are unknown. Without it all names are allowed, and
	 * `noUncheckedIndexedAccess` asks for `?.`.
	 */
	client<T = AnyService>(service: string, options: CallOptions = {}): Client<T> {
		return this.clients.client(service, options);
	}

	/**
	 * Has each later call of this node's clients pass a function, behind those that are used
	 * already. So do the calls of streams, buckets, commands and leases, whose services are named
	 * `tidewire-...`. Requests, and calls of remote functions and objects, do not.
	 */
	use(interceptor: Interceptor): void {
		this.clients.use(interceptor);
	}

	/**
	 * Serves the functions of an object, or of an instance of a class, under a name. Functions may
	 * be async; generators, async or not, are streams. Awaited, it is known to the hub; while the
	 * link is lost that waits. TypeScript's `private` hides nothing at run time: methods whose
	 * names begin with `#` or `_` are not served, nor are those of classes of the platform.
	 *
	 * @throws InvalidArgument if it is a function or has no functions, or an option is not allowed.
	 */
	async serve<T extends object>(
		name: string,
		target: T & Servable<T>,
		options: ServeOptions = {},
	): Promise<ServiceHandle> {
		return (await this.answering()).serve(name, target, options);
	}

	/**
	 * Inbound side of the node: its code is loaded with the first service, subscription, or
	 * function that is given or taken.
	 */
	private async answering(): Promise<Incoming> {
		const { Incoming } = await import("./lazy_chunk.js");
		if (this.incoming === undefined) {
			this.incoming = new Incoming(this.runtime, this.presence, this.clients.site, this.name, this.report);
			this.incoming.references.joined(this.current?.node ?? 0);
		}
		return this.incoming;
	}

	/**
	 * Publishes a value on a subject, at most once to each subscriber; this node's own get it, too.
	 * Returns whether the link had room for it.
	 *
	 * @throws InvalidArgument if the value can't travel, with its path; Unauthorized if the token
	 * does not allow the subject; LinkLost if there is no link.
	 */
	publish(
		subject: string,
		value: unknown,
		options: {
			readonly headers?: Readonly<Record<string, string>> | undefined;
			readonly priority?: Priority | undefined;
		} = {},
	): boolean {
		checkSubject(subject, false);
		checkNames("publish", options, { headers: 0, priority: 0 });
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
		this.incoming?.publishedHere(subject, value, options.headers);
		return sent;
	}

	/**
	 * Has a listener called with each message that is published on subjects of a pattern. Awaited,
	 * it is known to the hub.
	 */
	async subscribe(pattern: string, listener: Listener, options: SubscribeOptions = {}): Promise<Subscription> {
		if (typeof listener !== "function") {
			throw new InvalidArgument(`subscribe: listener: ${shown(listener)} is not allowed: give a function`);
		}
		checkSubscription(pattern, options);
		return (await this.answering()).subscribe(pattern, listener, options);
	}

	/**
	 * The messages of a pattern, to be read in a loop. It is known to the hub once its first
	 * message is asked for; up to 1,000 wait.
	 */
	subscription(pattern: string, options: SubscribeOptions = {}): Reader<Envelope> {
		checkSubscription(pattern, options);
		return lazyReader(
			this.runtime.shell,
			async () => (await this.answering()).subscribe(pattern, undefined, options),
			true,
		);
	}

	/**
	 * Sends a request to a subscriber of a subject, and gives its answer. A subscriber of this
	 * node is asked first.
	 */
	async request(
		subject: string,
		value: unknown,
		options: Omit<CallOptions, "instance" | "policy"> = {},
	): Promise<unknown> {
		checkSubject(subject, false);
		checkOptions(options, "request");
		return (
			this.incoming?.requestedHere(subject, value, options.headers) ?? this.clients.request(subject, value, options)
		);
	}

	/** The services of all nodes, with schemas, as the hub lists them. */
	async services(): Promise<ServiceInfo[]> {
		return (await this.clients.directory()).services();
	}

	/**
	 * The instances of a service, or of all, and then each that joins or leaves, until the node
	 * closes. A slow reader gets the difference to what it had, so nothing queues up. While the
	 * link is lost nothing comes; the watch goes on when it is back.
	 *
	 * @throws InvalidArgument if it is no name of a service; the first read throws Unauthorized if
	 * the token does not allow `$hub.services` and `$hub.services.*`.
	 */
	watchServices(service?: string): Reader<InstanceChange> {
		if (service !== undefined) {
			checkService("watchServices", service);
		}
		return lazyReader(this.runtime.shell, async () => {
			const { watchServices } = await import("./lazy_chunk.js");
			const onJoined = (listener: () => void): (() => void) => this.on("joined", listener);
			const [incoming, directory] = [await this.answering(), await this.clients.directory()];
			return watchServices({ incoming, presence: this.presence, directory, onJoined }, service);
		});
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
			subscriptions: this.incoming?.subscriptions.size ?? 0,
			services: this.incoming?.services ?? 0,
			skipped: this.clients.skipped,
			remote: this.incoming?.references.statistics() ?? { given: 0, held: 0 },
		};
	}

	/** Has a listener called when something happens, and returns what ends that. */
	on<K extends keyof NodeEvents>(event: K, listener: NodeEvents[K]): () => void {
		if (!EVENTS.includes(event)) {
			throw new InvalidArgument(`on: ${shown(event)} is not allowed: use one of ${EVENTS.join(", ")}`);
		}
		const listeners = this.listeners.get(event) ?? new Set();
		listeners.add(listener);
		this.listeners.set(event, listeners);
		return () => listeners.delete(listener);
	}

	private emit<K extends keyof NodeEvents>(event: K, ...args: Parameters<NodeEvents[K]>): void {
		for (const listener of [...(this.listeners.get(event) ?? [])]) {
			try {
				(listener as unknown as (...args: Parameters<NodeEvents[K]>) => void)(...args);
			} catch (error) {
				// A listener of errors that fails is not told of its own error.
				(event === "error" ? this.runtime.shell.report : this.report)(error);
			}
		}
	}

	/** Says what can't be thrown to anybody: no message of another node ends a program. */
	private readonly report = (error: unknown): void => {
		if (this.listeners.get("error")?.size) {
			this.emit("error", error);
		} else {
			this.runtime.shell.report(error);
		}
	};

	/**
	 * A stream of the hub's data folder. With settings it is made, or found with the same ones;
	 * without, it is to be there.
	 *
	 * @typeParam T What is published on it.
	 * @throws SettingsDiffer if it exists with other settings; NotFound if it is to be there and is
	 * not; NoResponders if the hub has no data folder.
	 */
	async stream<T = unknown>(name: string, settings?: StreamSettings): Promise<Stream<T>> {
		return (await this.stores()).stream<T>(name, settings);
	}

	/** State of every stream of the hub, by name. */
	async streams(): Promise<StreamInfo[]> {
		return (await this.stores()).streams();
	}

	/**
	 * A key-value bucket of the hub's data folder. With settings, `{}` too, it is made, or found
	 * with the same ones; without, it is to be there.
	 *
	 * @typeParam T What its values are.
	 * @throws SettingsDiffer, NotFound and NoResponders as of `stream`.
	 */
	async kv<T = unknown>(name: string, settings?: BucketSettings): Promise<Bucket<T>> {
		return (await this.stores()).kv<T>(name, settings);
	}

	/** State of every bucket of the hub, by name. */
	async buckets(): Promise<BucketInfo[]> {
		return (await this.stores()).buckets();
	}

	/** The commands of the hub: long work that is started, followed, and found again by its id. */
	async commands(): Promise<Commands> {
		const { Commands } = await import("./lazy_chunk.js");
		return new Commands(this, this.runtime);
	}

	/**
	 * Waits for a lease of the hub, and holds it until it is released, or its `await using` block
	 * ends; it is renewed meanwhile. When the link is lost, so is the lease.
	 *
	 * @param name A subject's text, such as `orders.matching`.
	 * @throws NoResponders if the hub has no data folder; the reason of `signal`, when that aborts.
	 */
	async lease(name: string, options: LeaseOptions = {}): Promise<Lease> {
		const { Clock, Lease } = await import("./lazy_chunk.js");
		return Lease.acquire(this, new Clock(this.runtime), name, options);
	}

	private async stores(): Promise<Store> {
		const { Store } = await import("./lazy_chunk.js");
		this.store ??= new Store(this, this.runtime.shell);
		return this.store;
	}

	/**
	 * Leaves the hub: takes no new calls, finishes those that came, ends the streams of its
	 * services, and closes once the hub has read everything. A second call waits for the first.
	 *
	 * @param options `timeout`: milliseconds (30,000) after which what is left is cut off.
	 */
	close(options: { readonly timeout?: number | undefined } = {}): Promise<void> {
		checkNames("close", options, { timeout: 0 });
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
		for (const limits of this.limits) {
			limits.cut();
		}
		this.runtime.close();
	}

	private async left(session: Session): Promise<void> {
		session.goodbye();
		this.runtime.plan();
		await Promise.all(this.limits.map((limits) => limits.drain()));
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

	private get limits(): readonly HandlerLimits[] {
		return this.incoming?.limits ?? [];
	}

	// The link

	private readonly events: LinkEvents = {
		joined: (joined, session) => {
			this.current = joined;
			this.incoming?.references.joined(joined.node);
			session.subscribe(`$node.${joined.node}.>`, "", false, [], () => {});
			this.incoming?.joined();
			this.presence.notify();
			this.emit("joined", joined.hub);
		},
		lost: (reason) => {
			this.losses++;
			this.current = undefined;
			this.incoming?.lost();
			this.emit("lost", reason);
		},
		closed: (error) => {
			this.current = undefined;
			this.presence.notify(error ?? new NodeStopped("the node was closed"));
			this.incoming?.closed();
			this.emit("closed", error);
		},
		goodbye: () => {},
		left: (origin) => this.incoming?.references.left(origin),
		// Without subscriptions nobody waits for messages.
		published: (message) => this.incoming?.published(message),
		called: (call, now) => {
			if (this.incoming !== undefined) {
				return this.incoming.called(call, now);
			}
			this.runtime.session.theirs.fail(
				call.id,
				REMOTE_GONE,
				encode(`${call.subject}: this node has given nothing to anybody`),
			);
			return undefined;
		},
	};
}
