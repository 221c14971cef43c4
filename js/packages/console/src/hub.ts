/** Link of the page to its hub: joins, snapshots at nodes every two seconds, and joins again. */
import { connect, type Node, type ServiceInfo, TidewireError } from "tidewire";
import { reasonOf } from "./format.js";
import { type Snapshot, snapshotOf, type Totals, totalsOf } from "./snapshots.js";

/** Seconds between two snapshots, and the time that sparklines show. */
export const EVERY_S = 2;
export const HISTORY_S = 300;
/** Nodes that are read in one round; further ones take turns. */
const ROUND_MAX = 100;
const LOOK_MS = 3_000;
/** Pause before the page looks for a lost hub again. */
const RETRY_MS = 2_000;
/** Streams whose consumers are looked at, and rounds between two such snapshots. */
const STREAMS_MAX = 50;
const DURABLE_ROUNDS = 3;
const TOKEN = "tidewire-token";

/** State of the link. */
export type Link =
	| { readonly state: "joining" | "ready" }
	| { readonly state: "token"; readonly error: string }
	| { readonly state: "lost"; readonly reason: string };

/** A consumer that is behind, or has dead letters. */
export interface Lagging {
	readonly stream: string;
	readonly consumer: string;
	readonly lag: number;
	readonly dead: number;
	readonly oldest: Date | undefined;
	readonly isPaused: boolean;
}

/** True for the service by which nodes show their statistics. */
export function isInspection(service: string): boolean {
	return service.startsWith("$");
}

/** All that the page knows of its hub. `subscribe` tells of each change. */
export class Hub {
	link: Link = { state: "joining" };
	/** The name of the hub. */
	name = "";
	/** The node of this page; undefined before it joins. */
	node: Node | undefined;
	services: readonly ServiceInfo[] = [];
	/** Nodes that allow inspection, by key of `$sys`. */
	readonly snapshots = new Map<string, Snapshot>();
	/** Nodes that did not answer in time, with the reason. */
	readonly silent = new Map<string, string>();
	lagging: readonly Lagging[] = [];
	history: readonly Totals[] = [];
	/** True if the page may act: the hub has tokens, or the console has admin rights. */
	mayAct = false;
	/** True if the hub has no tokens. */
	isOpen = false;
	private readonly listeners = new Set<() => void>();
	private round = 0;
	private timer: number | undefined;

	constructor() {
		document.addEventListener("visibilitychange", () => void this.sample());
	}

	/** Starts. A hub with tokens is joined with the token of this tab. */
	async start(): Promise<void> {
		try {
			const said = (await (await fetch("hub.json")).json()) as { open: boolean; admin: boolean };
			this.isOpen = said.open;
			this.mayAct = !said.open || said.admin;
		} catch {
			return this.retry("the hub does not answer");
		}
		const token = sessionStorage.getItem(TOKEN);
		if (this.isOpen || token !== null) {
			await this.join(token ?? undefined);
		} else {
			this.set({ state: "token", error: "" });
		}
	}

	/** Joins with a token, and keeps it for this tab if the hub accepts it. */
	async join(token: string | undefined): Promise<void> {
		this.set({ state: "joining" });
		const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/console/link`;
		const name = `console-${crypto.getRandomValues(new Uint32Array(1))[0]?.toString(36)}`;
		try {
			const node = await connect(url, { name, token, joinTimeout: 3_000 });
			this.adopt(node, token);
		} catch (error) {
			const reason = reasonOf(error);
			if (error instanceof TidewireError && error.name === "Unauthorized") {
				sessionStorage.removeItem(TOKEN);
				this.set({ state: "token", error: token === undefined ? "" : reason });
				return;
			}
			this.retry(reason);
		}
	}

	/** Shows that the hub is lost, and starts again after a pause. */
	private retry(reason: string): void {
		this.set({ state: "lost", reason });
		setTimeout(() => void this.start(), RETRY_MS);
	}

	/** Calls a method of a service. */
	call(service: string, method: string, args: readonly unknown[] = [], options = {}): Promise<unknown> {
		if (this.node === undefined) {
			throw new Error("there is no link to the hub");
		}
		const client = this.node.client(service, options) as Record<string, (...args: unknown[]) => PromiseLike<unknown>>;
		const called = client[method];
		return Promise.resolve(called?.(...args));
	}

	/** Has a listener called after each change, and returns the end of that. */
	subscribe(listener: () => void): () => void {
		this.listeners.add(listener);
		return () => this.listeners.delete(listener);
	}

	private adopt(node: Node, token: string | undefined): void {
		if (token !== undefined) {
			sessionStorage.setItem(TOKEN, token);
		}
		this.node = node;
		this.name = node.hub ?? "";
		node.on("joined", (hub) => {
			this.name = hub;
			this.set({ state: "ready" });
			void this.readServices(node);
		});
		node.on("lost", (reason) => this.set({ state: "lost", reason }));
		node.on("closed", (error) => this.retry(error?.message ?? "the link was closed"));
		node.on("error", () => {});
		this.set({ state: "ready" });
		void this.watch(node);
		clearInterval(this.timer);
		this.timer = setInterval(() => void this.sample(), EVERY_S * 1_000) as unknown as number;
	}

	/** Reads the list of services again after each change. */
	private async watch(node: Node): Promise<void> {
		await this.readServices(node);
		try {
			for await (const _ of node.watchServices()) {
				await this.readServices(node);
			}
		} catch {
			// The link is lost for good: the page joins again.
		}
	}

	private async readServices(node: Node): Promise<void> {
		try {
			const before = this.services;
			this.services = await node.services();
			this.tell();
			if (before.length === 0 || this.snapshots.size === 0 || this.silent.size > 0) {
				void this.sample();
			}
		} catch {
			// A link that is lost now reads them when it is back.
		}
	}

	/** Reads all nodes once. A hidden page rests. */
	private async sample(): Promise<void> {
		const { node } = this;
		if (node === undefined || this.link.state !== "ready" || document.hidden) {
			return;
		}
		const inspection = this.services.find((one) => isInspection(one.name));
		const keys = inspection?.instances ?? [];
		const round = this.round++;
		const from = (round * ROUND_MAX) % Math.max(keys.length, 1);
		const turn = keys.length <= ROUND_MAX ? keys : [...keys.slice(from), ...keys.slice(0, from)].slice(0, ROUND_MAX);
		await Promise.all([
			...turn.map((key) => this.inspect(inspection?.name ?? "", key)),
			round % DURABLE_ROUNDS === 0 && this.readStreams(node),
		]);
		for (const key of [...this.snapshots.keys(), ...this.silent.keys()].filter((key) => !keys.includes(key))) {
			this.snapshots.delete(key);
			this.silent.delete(key);
		}
		const durable = {
			dead: this.lagging.reduce((sum, one) => sum + one.dead, 0),
			lag: this.lagging.reduce((sum, one) => sum + one.lag, 0),
		};
		const now = Date.now();
		const recent = this.history.filter((one) => one.at > now - HISTORY_S * 1_000);
		this.history = [...recent, totalsOf(now, [...this.snapshots.values()], durable)];
		this.tell();
	}

	private async inspect(service: string, key: string): Promise<void> {
		try {
			const said = await this.call(service, "statistics", [], { instance: key, timeout: LOOK_MS });
			this.snapshots.set(key, snapshotOf(key, said as Record<string, unknown>, this.snapshots.get(key)));
			this.silent.delete(key);
		} catch (error) {
			this.silent.set(key, reasonOf(error));
		}
	}

	private async readStreams(node: Node): Promise<void> {
		if (!this.services.some((one) => one.name === "tidewire-streams")) {
			this.lagging = [];
			return;
		}
		try {
			const streams = (await node.streams()).filter((one) => one.consumers > 0).slice(0, STREAMS_MAX);
			const found = streams.map(async ({ name: stream }) =>
				(await (await node.stream(stream)).consumers()).map(
					({ name: consumer, lag, dead, oldestTime, isPaused }) =>
						({ stream, consumer, lag, dead, oldest: oldestTime, isPaused }) satisfies Lagging,
				),
			);
			this.lagging = (await Promise.all(found)).flat();
		} catch {
			// A token may not read streams; the views of streams give the reason.
			this.lagging = [];
		}
	}

	private set(link: Link): void {
		this.link = link;
		this.tell();
	}

	private tell(): void {
		for (const listener of [...this.listeners]) {
			listener();
		}
	}
}
