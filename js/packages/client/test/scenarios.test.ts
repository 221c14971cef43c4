/** The scenarios of `spec/scenarios`, which nodes of every language play. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import test from "node:test";
import {
	type CallOptions,
	connect,
	context,
	type Node,
	type Priority,
	type ServiceHandle,
	type UntypedClient,
} from "tidewire";
import { Peer, ROOT } from "./python.js";

const PATIENCE_MS = 30_000;
const FOLDER = `${ROOT}spec/scenarios/`;

interface Step {
	readonly do: string;
	readonly id?: string;
	readonly method?: string;
	readonly priority?: Priority;
	readonly timeout_s?: number;
	readonly instance?: string;
	readonly at?: string;
	readonly as?: string;
	readonly count?: number;
	readonly node?: string;
	readonly given?: number;
	readonly held?: number;
	readonly instances?: readonly string[];
}

interface Scenario {
	readonly name: string;
	readonly instances: readonly string[];
	readonly limits: { readonly concurrency?: number; readonly waiting?: number; readonly streams?: number };
	readonly steps: readonly Step[];
}

/** Values in order, for a test that waits for the next. */
class Said<T> {
	private readonly said: T[] = [];
	private readonly waiting: ((one: T) => void)[] = [];

	say(one: T): void {
		const waits = this.waiting.shift();
		if (waits === undefined) {
			this.said.push(one);
		} else {
			waits(one);
		}
	}

	next(): Promise<T> {
		const one = this.said.shift();
		return one === undefined ? new Promise((resolve) => this.waiting.push(resolve)) : Promise.resolve(one);
	}

	get left(): readonly T[] {
		return this.said;
	}
}

/** A call of the caller: how it ended, and how it is given up. */
interface Made {
	readonly ended: Promise<string>;
	readonly cancel: () => Promise<unknown> | undefined;
}

/** The nodes of a scenario. */
class World {
	readonly begun = new Said<readonly [id: string, instance: string]>();
	readonly told = new Said<string>();
	readonly ended: string[] = [];
	readonly calls = new Map<string, Made>();
	private readonly doors = new Map<string, { readonly open: () => void; readonly opened: Promise<void> }>();
	private readonly nodes = new Map<string, Node>();
	private readonly served = new Map<string, ServiceHandle>();
	private readonly leaving = new Map<string, Promise<void>>();
	private hub: Peer | undefined;
	private port = "0";

	constructor(private readonly limits: Scenario["limits"]) {}

	async begin(instances: readonly string[]): Promise<void> {
		await this.hub_starts();
		for (const instance of instances) {
			await this.serve({ instance });
		}
		this.nodes.set("caller", await this.join("caller"));
		await this.known({ instances });
	}

	async end(): Promise<void> {
		await this.hub?.stop();
		await Promise.all([...this.nodes.values()].map((node) => node.close({ timeout: 1 })));
	}

	private async join(name: string): Promise<Node> {
		return connect(`ws://127.0.0.1:${this.port}`, { name });
	}

	private door(id: string): { readonly open: () => void; readonly opened: Promise<void> } {
		let open = (): void => {};
		const opened = new Promise<void>((resolve) => {
			open = resolve;
		});
		const door = this.doors.get(id) ?? { open, opened };
		this.doors.set(id, door);
		return door;
	}

	private async inside(id: string, instance: string): Promise<string> {
		const { signal } = context();
		this.begun.say([id, instance]);
		const aborted = new Promise<never>((_, reject) => {
			signal.addEventListener("abort", () => reject(signal.reason as Error));
		});
		try {
			await Promise.race([this.door(id).opened, aborted]);
		} catch (error) {
			this.told.say(id);
			throw error;
		}
		return instance;
	}

	private room(instance: string): object {
		const inside = (id: string): Promise<string> => this.inside(id, instance);
		return {
			hold: inside,
			steady: inside,
			keep: (id: string, _kept: () => null) => inside(id),
			fail: async (id: string) => {
				throw new Error(await inside(id));
			},
			async *items(id: string) {
				yield await inside(id);
			},
		};
	}

	async call({ id, method, timeout_s, priority, instance }: Step): Promise<void> {
		const [name, controller] = [method as string, new AbortController()];
		// This client follows no lists: that a method is idempotent its caller says.
		const options: CallOptions = {
			timeout: timeout_s === undefined ? 2 * PATIENCE_MS : timeout_s * 1000,
			...(priority && { priority }),
			...(instance && { instance }),
			...(name === "steady" && { idempotent: true }),
			...(name !== "items" && { signal: controller.signal }),
		};
		const room = (this.nodes.get("caller") as Node).client("room").with(options) as UntypedClient;
		const made = room[name]?.(id, ...(name === "keep" ? [() => null] : []));
		assert.ok(made);
		const how = (error: unknown): string => {
			const { code, name: kind } = error as { readonly code?: string; readonly name: string };
			return typeof code === "string" ? kind : "RemoteError";
		};
		const items = made[Symbol.asyncIterator]() as AsyncIterator<unknown>;
		const ended = (name === "items" ? all(items) : Promise.resolve(made)).then(() => "ok", how);
		const cancel = (): Promise<unknown> | undefined => {
			controller.abort(new Error("given up"));
			return name === "items" ? items.return?.() : undefined;
		};
		this.calls.set(id as string, { ended, cancel });
	}

	async begins({ id, at }: Step): Promise<void> {
		const [begun, instance] = await this.begun.next();
		assert.equal(begun, id);
		assert.ok(at === undefined || at === instance, `at ${instance}`);
	}

	async waits({ instance, count }: Step): Promise<void> {
		await until(() => this.served.get(instance as string)?.statistics().waiting === count);
	}

	async let_go({ id }: Step): Promise<void> {
		this.door(id as string).open();
	}

	async ends({ id, as }: Step): Promise<void> {
		assert.equal(await this.taken(id as string).ended, as);
	}

	async cancel({ id }: Step): Promise<void> {
		const { cancel, ended } = this.taken(id as string);
		await cancel();
		await ended;
	}

	private taken(id: string): Made {
		const made = this.calls.get(id);
		assert.ok(made);
		this.calls.delete(id);
		return made;
	}

	async cancelled({ id }: Step): Promise<void> {
		while (!this.ended.includes(id as string)) {
			this.ended.push(await this.told.next());
		}
		this.ended.splice(this.ended.indexOf(id as string), 1);
	}

	async remote({ node, given, held }: Step): Promise<void> {
		// A proxy that nobody holds is released when it is collected.
		const collect = (globalThis as { gc?: () => void }).gc;
		await until(() => {
			collect?.();
			const { remote } = (this.nodes.get(node as string) as Node).statistics();
			return remote.given === given && remote.held === held;
		});
	}

	async known({ instances }: Pick<Step, "instances">): Promise<void> {
		const caller = this.nodes.get("caller") as Node;
		const wanted = [...(instances ?? [])].sort().join();
		await until(async () => {
			const room = (await caller.services()).find(({ name }) => name === "room");
			return room !== undefined && [...room.instances].sort().join() === wanted;
		});
	}

	async serve({ instance }: Pick<Step, "instance">): Promise<void> {
		const name = instance as string;
		const node = await this.join(name);
		this.nodes.set(name, node);
		this.served.set(name, await node.serve("room", this.room(name), { instance: name, ...this.limits }));
	}

	async leave({ instance }: Step): Promise<void> {
		const name = instance as string;
		const node = this.nodes.get(name) as Node;
		this.nodes.delete(name);
		this.leaving.set(name, node.close({ timeout: PATIENCE_MS }));
	}

	async gone({ instance }: Step): Promise<void> {
		await this.leaving.get(instance as string);
	}

	async hub_stops(): Promise<void> {
		await this.hub?.stop();
	}

	async hub_starts(): Promise<void> {
		this.hub = await Peer.start("hub", this.port);
		this.port = new URL(this.hub.url).port;
	}

	async joined(): Promise<void> {
		await until(() => this.nodes.get("caller")?.hub !== undefined);
	}
}

async function all(items: AsyncIterator<unknown>): Promise<void> {
	for (let next = await items.next(); !next.done; next = await items.next()) {
		// There is one.
	}
}

async function until(check: () => boolean | Promise<boolean>): Promise<void> {
	for (const end = Date.now() + PATIENCE_MS; !(await check()); ) {
		assert.ok(Date.now() < end, "not within 30 s");
		await new Promise<void>((resolve) => setImmediate(resolve));
	}
}

for (const file of readdirSync(FOLDER).filter((name) => name.endsWith(".json"))) {
	for (const scenario of JSON.parse(readFileSync(FOLDER + file, "utf8")) as Scenario[]) {
		test(`${file}: ${scenario.name}`, { timeout: 3 * PATIENCE_MS }, async (t) => {
			const world = new World(scenario.limits);
			try {
				await world.begin(scenario.instances);
				for (const step of scenario.steps) {
					t.diagnostic(JSON.stringify(step));
					const play = world[step.do as "begins"] as (step: Step) => Promise<void>;
					await play.call(world, step);
				}
				assert.deepEqual([world.begun.left, world.told.left, world.ended, world.calls.size], [[], [], [], 0]);
			} finally {
				await world.end();
			}
		});
	}
}
