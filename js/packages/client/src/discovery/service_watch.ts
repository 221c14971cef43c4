/** Watches of services: instances that join and leave. */

import { AskTimeout, LinkLost, NodeStopped } from "../generated/errors.js";
import { PageReader } from "../iterators/page_reader.js";
import type { Presence } from "../link/presence.js";
import type { Incoming } from "../services/inbound.js";
import type { Subscribed } from "../subjects/subscriptions.js";
import type { Directory } from "./directory.js";
import type { InstanceInfo } from "./discovery.js";

/** The subject on which the hub publishes that instances join and leave. */
const CHANGES = "$hub.services.*";

/** An instance of a service that joined or left. */
export interface InstanceChange {
	/** An instance that returns with another version or other metadata has left and joined. */
	readonly kind: "joined" | "left";
	/** The name of the service. */
	readonly service: string;
	/** The instance, as it describes itself. */
	readonly instance: InstanceInfo;
}

/** Parts of a node that a watch needs. */
interface WatchedNode {
	readonly incoming: Incoming;
	readonly presence: Presence;
	readonly directory: Directory;
	/** Has a listener called when the node has joined, and returns what ends that. */
	readonly onJoined: (listener: () => void) => () => void;
}

/** Watches the instances of a service, or of all. */
export function watchServices(node: WatchedNode, service: string | undefined): PageReader<InstanceChange> {
	const watch = new ServiceWatch(node, service);
	return new PageReader(
		() => watch.changes(),
		undefined,
		() => watch.stop(),
	);
}

class ServiceWatch {
	private known = new Map<string, InstanceChange>();
	private subscription: Subscribed | undefined;
	private forget: (() => void) | undefined;
	/** True if the hub's list may differ from what is known. */
	private isStale = true;
	private isOver = false;
	private wake: () => void = () => {};

	constructor(
		private readonly node: WatchedNode,
		private readonly service: string | undefined,
	) {}

	/** Waits for the next changes. Undefined: the node has stopped, or the watch. */
	async changes(): Promise<readonly InstanceChange[] | undefined> {
		while (!this.isOver) {
			try {
				await this.follow();
				if (this.isStale) {
					const changes = await this.refresh();
					if (changes.length > 0) {
						return changes;
					}
				} else {
					await new Promise<void>((resolve) => {
						this.wake = resolve;
					});
				}
			} catch (error) {
				this.isStale = true;
				if (error instanceof NodeStopped) {
					return undefined;
				}
				// A link that is lost may first show as an answer that is late.
				if (!(error instanceof LinkLost || error instanceof AskTimeout)) {
					throw error;
				}
			}
		}
		return undefined;
	}

	stop(): void {
		this.isOver = true;
		this.subscription?.stop();
		this.forget?.();
		this.wake();
	}

	/** Waits for a link, and has the hub tell changes from the first time on. */
	private async follow(): Promise<void> {
		const { incoming, presence, onJoined } = this.node;
		await presence.joined();
		if (this.subscription === undefined) {
			this.subscription = await incoming.subscribe(CHANGES, undefined, {});
			this.forget = onJoined(() => this.changed());
			void this.hear(this.subscription);
			if (this.isOver) {
				this.stop();
			}
		}
	}

	/** Hears of changes until the subscription or the node ends. */
	private async hear(subscription: Subscribed): Promise<void> {
		while (!(await subscription.next()).done) {
			this.changed();
		}
		this.stop();
	}

	private changed(): void {
		this.isStale = true;
		this.wake();
	}

	/** Compares the hub's list with the last one. */
	private async refresh(): Promise<InstanceChange[]> {
		// Before the request: a change meanwhile causes another refresh.
		this.isStale = false;
		const found = new Map<string, InstanceChange>();
		for (const { name, details } of await this.node.directory.services()) {
			if (this.service === undefined || this.service === name) {
				for (const instance of details) {
					found.set(`${name}.${instance.id}`, { kind: "joined", service: name, instance });
				}
			}
		}
		const before = this.known;
		this.known = found;
		const differs = (others: ReadonlyMap<string, InstanceChange>, key: string, { instance }: InstanceChange): boolean =>
			JSON.stringify(others.get(key)?.instance) !== JSON.stringify(instance);
		const left = [...before].filter(([key, change]) => differs(found, key, change));
		const joined = [...found].filter(([key, change]) => differs(before, key, change));
		return [
			...left.map(([, change]): InstanceChange => ({ ...change, kind: "left" })),
			...joined.map(([, change]) => change),
		];
	}
}
