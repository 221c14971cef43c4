/** Link of the page to its hub: joins, snapshots at nodes every two seconds, and joins again. */
import { type ConsumerInfo, connect, type Node, type ServiceInfo, Unauthorized } from "tidewire";
import { INSPECTION, serviceSubject } from "tidewire/subjects";
import { reasonOf } from "./format.js";
import { type Snapshot, snapshotOf, sum, type Totals, totalsOf } from "./snapshots.js";

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
/** The service of the storage backend. */
export const STREAMS = "tidewire-streams";

/** State of the link. */
export type Link =
	| { readonly state: "joining" | "ready" }
	| { readonly state: "token"; readonly error: string }
	| { readonly state: "lost"; readonly reason: string };

/** A consumer, with its stream. */
export type StreamConsumer = ConsumerInfo & { readonly stream: string };

type Called = (...args: readonly unknown[]) => PromiseLike<unknown>;

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
	consumers: readonly StreamConsumer[] = [];
	history: readonly Totals[] = [];
	/** True if the hub has no tokens. */
	isOpen = false;
	/** Patterns of the subjects that the page may call. */
	private calls: readonly string[] = [];
	private readonly listeners = new Set<() => void>();
	private round = 0;
	private timer: number | undefined;

	constructor() {
		document.addEventListener("visibilitychange", () => void this.sample());
	}

	/** True if the page may call a method. The hub checks each call. */
	may(service: string, method: string): boolean {
		const subject = serviceSubject(service, method).split(".");
		const has = (token: string, at: number): boolean => [">", "*", subject[at]].includes(token);
		const patterns = this.calls.map((pattern) => pattern.split("."));
		return patterns.some((all) => all.every(has) && (all.length === 3 || (all.length < 3 && all.at(-1) === ">")));
	}

	/** Starts. A hub with tokens is joined with the token of this tab. */
	async start(): Promise<void> {
		try {
			await this.readRights({});
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
			await this.readRights(token === undefined ? {} : { authorization: `Bearer ${token}` });
			this.adopt(node, token);
		} catch (error) {
			const reason = reasonOf(error);
			if (!(error instanceof Unauthorized)) {
				return this.retry(reason);
			}
			sessionStorage.removeItem(TOKEN);
			this.set({ state: "token", error: token === undefined ? "" : reason });
		}
	}

	private async readRights(headers: Record<string, string>): Promise<void> {
		const rights = (await (await fetch("hub.json", { headers })).json()) as { open: boolean; calls: string[] };
		[this.isOpen, this.calls] = [rights.open, rights.calls];
	}

	/** Shows that the hub is lost, and starts again after a pause. */
	private retry(reason: string): void {
		this.set({ state: "lost", reason });
		setTimeout(() => void this.start(), RETRY_MS);
	}

	/** Calls a method of a service. */
	call(service: string, method: string, args: readonly unknown[] = [], options = {}): Promise<unknown> {
		const client = this.node?.client(service, options) as Readonly<Record<string, Called>> | undefined;
		return Promise.resolve(client?.[method]?.(...args));
	}

	/** Acts on a pool or campaign of a node, and reads all nodes. Nothing repeats the call. */
	async act(key: string, action: string, ...args: readonly unknown[]): Promise<void> {
		await this.call(INSPECTION, "act", [action, args], { instance: key });
		await this.sample();
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
			this.services = await node.services();
			this.tell();
			if (this.snapshots.size === 0 || this.silent.size > 0) {
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
		const keys = this.services.find((one) => one.name === INSPECTION)?.instances ?? [];
		const round = this.round++;
		const from = (round * ROUND_MAX) % Math.max(keys.length, 1);
		const turn = keys.length <= ROUND_MAX ? keys : [...keys.slice(from), ...keys.slice(0, from)].slice(0, ROUND_MAX);
		await Promise.all([
			...turn.map((key) => this.inspect(key)),
			round % DURABLE_ROUNDS === 0 && this.readConsumers(node),
		]);
		for (const key of [...this.snapshots.keys(), ...this.silent.keys()].filter((key) => !keys.includes(key))) {
			this.snapshots.delete(key);
			this.silent.delete(key);
		}
		const durable = { dead: sum(this.consumers, (one) => one.dead), lag: sum(this.consumers, (one) => one.lag) };
		const now = Date.now();
		const recent = this.history.filter((one) => one.at > now - HISTORY_S * 1_000);
		this.history = [...recent, totalsOf(now, [...this.snapshots.values()], durable)];
		this.tell();
	}

	private async inspect(key: string): Promise<void> {
		try {
			const statistics = await this.call(INSPECTION, "statistics", [], { instance: key, timeout: LOOK_MS });
			this.snapshots.set(key, snapshotOf(key, statistics as Record<string, unknown>, this.snapshots.get(key)));
			this.silent.delete(key);
		} catch (error) {
			this.silent.set(key, reasonOf(error));
		}
	}

	/** Reads the consumers of the first streams; none without the right to read them. */
	private async readConsumers(node: Node): Promise<void> {
		const has = this.services.some((one) => one.name === STREAMS);
		try {
			const query = ["page_streams", ["", "dead", true, true, 0, 4 * STREAMS_MAX]];
			const page = has ? ((await this.call(STREAMS, "look", query)) as [{ name: string; consumers: number }[]]) : [[]];
			const some = page[0].filter((one) => one.consumers > 0).slice(0, STREAMS_MAX);
			const found = some.map(async ({ name: stream }) =>
				(await (await node.stream(stream)).consumers()).map((one) => ({ ...one, stream })),
			);
			this.consumers = (await Promise.all(found)).flat();
		} catch {
			this.consumers = [];
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
