/** Stories of reads that are given up, in virtual time and with a hub and a node of Python. */
import assert from "node:assert/strict";
import test from "node:test";
import { connect, type InstanceChange, type Node, type Reader } from "tidewire";
import { InvalidArgument, Unauthorized } from "../src/generated/errors.js";
import { writeValue } from "../src/values/writer.js";
import { fieldBytes, Kind, writeFrame } from "../src/wire/frames.js";
import { Peer } from "./python.js";
import { type Connection, type Said, settled, World } from "./virtual.js";

const encoder = new TextEncoder();

/** A hub that lists instances of `shop`, and tells of changes. */
class Shops {
	readonly world = new World();
	/** Versions of the instances by their ids. */
	instances: Record<string, string> = {};
	private answered = new Set<Said>();

	async join(): Promise<Node> {
		await import("../src/lazy_chunk.js");
		const joining = this.world.join();
		await this.world.pass(0);
		return joining as unknown as Promise<Node>;
	}

	get asked(): Said[] {
		return this.world.last.of(Kind.CALL).filter(({ head }) => head.subject === "$hub.services");
	}

	/** Answers the lists that were asked for, until none is. */
	async answer(): Promise<void> {
		// Code that is loaded takes some turns.
		for (let quiet = 0; quiet < 5; ) {
			await settled();
			const open = this.asked.filter((said) => !this.answered.has(said));
			quiet = open.length === 0 ? quiet + 1 : 0;
			for (const said of open) {
				this.answered.add(said);
				this.world.last.say(Kind.REPLY, 2 | 8, said.frame, {}, writeValue(this.list()));
			}
		}
	}

	/** Publishes that something has changed. */
	async tell(event: "added" | "missed" = "added"): Promise<void> {
		const head = { origin: 0, to: { slot: 0, generation: 0 }, subject: `$hub.services.${event}`, fields: [] };
		this.world.last.say(Kind.PUBLISH, 2, { slot: 0, generation: 0 }, head, writeValue(new Uint8Array()));
		await settled();
	}

	private list(): Uint8Array {
		const sized = (text: string): Buffer => Buffer.from([text.length, 0, ...encoder.encode(text)]);
		const entries = Object.entries(this.instances).map(([id, version]) => {
			const info = { name: "shop", methods: [], instances: [id], details: [{ id, version, metadata: {} }] };
			const fields = fieldBytes([["service", encoder.encode(JSON.stringify(info))]]);
			const rest = Buffer.alloc(8);
			rest.writeUInt32LE(fields.length, 4);
			return Buffer.concat([sized("ann"), sized(""), sized(`svc.shop.${id}.*`), rest, fields]);
		});
		return Uint8Array.from(Buffer.concat(entries));
	}
}

function said({ value }: IteratorResult<InstanceChange, undefined>): string {
	assert.ok(value !== undefined, "the watch goes on");
	return `${value.kind} ${value.service} ${value.instance.id} ${value.instance.version}`;
}

/** A read that lost its race: nobody looks at its result. */
async function abandoned(read: Promise<unknown>): Promise<void> {
	assert.equal(await Promise.race([read, settled().then(() => "late")]), "late");
}

test("a watch gives the instances that are there, and then each that joins or leaves", async () => {
	const shops = new Shops();
	const node = await shops.join();
	shops.instances = { one: "1.0.0", two: "" };
	const watch = node.watchServices("shop");
	const first = watch.next();
	await shops.answer();
	assert.deepEqual(await first, {
		done: false,
		value: {
			kind: "joined",
			service: "shop",
			instance: { id: "one", node: "ann", version: "1.0.0", metadata: {} },
		},
	});
	assert.equal(said(await watch.next()), "joined shop two ");
	// Of another service nothing is said.
	const elsewhere = node.watchServices("other").next();
	await shops.answer();
	await abandoned(elsewhere);
	// A slow reader gets the difference, and a list is asked for once.
	const before = shops.asked.length;
	shops.instances = { one: "1.1.0", three: "" };
	for (let n = 0; n < 2000; n++) {
		await shops.tell(n % 2 === 0 ? "added" : "missed");
	}
	const next = watch.next();
	await shops.answer();
	const found = [await next, await watch.next(), await watch.next(), await watch.next()].map(said);
	assert.deepEqual(found, ["left shop one 1.0.0", "left shop two ", "joined shop one 1.1.0", "joined shop three "]);
	assert.ok(shops.asked.length <= before + 4, `${shops.asked.length - before} lists`);
	for (const name of ["a.b", "", 7]) {
		assert.throws(() => node.watchServices(name as string), InvalidArgument);
	}
	await watch.return();
	assert.deepEqual(await watch.next(), { done: true, value: undefined });
	await settled();
	assert.equal(shops.world.last.of(Kind.UNSUBSCRIBE).length, 1);
});

test("a watch goes on when the link is back, and says what has changed meanwhile", async () => {
	const shops = new Shops();
	const node = await shops.join();
	shops.instances = { one: "", two: "" };
	const watch = node.watchServices();
	const first = watch.next();
	await shops.answer();
	assert.deepEqual([said(await first), said(await watch.next())], ["joined shop one ", "joined shop two "]);
	// One link is lost while the watch waits, and one while it has asked for the list.
	const waiting = watch.next();
	await settled();
	shops.world.last.cut();
	await shops.world.pass(1_000);
	assert.ok(shops.asked.length > 0, "the list is asked for again");
	shops.world.last.cut();
	await shops.world.pass(1_000);
	const order = (connection: Connection): number[] =>
		connection.said.map(({ kind }) => kind).filter((kind) => kind === Kind.SUBSCRIBE || kind === Kind.CALL);
	assert.deepEqual(order(shops.world.last).at(-1), Kind.CALL, "after the subscription");
	shops.instances = { two: "", three: "" };
	await shops.answer();
	assert.deepEqual([said(await waiting), said(await watch.next())], ["left shop one ", "joined shop three "]);
	// It ends with its node.
	const last = watch.next();
	const closed = node.close();
	await shops.world.pass(30_000);
	await closed;
	assert.deepEqual(await last, { done: true, value: undefined });
});

test("a watch that the token does not allow says so, and may be tried again", async () => {
	const shops = new Shops();
	const node = await shops.join();
	shops.world.last.isKind = false;
	const watch = node.watchServices();
	const refused = assert.rejects(watch.next(), Unauthorized);
	await settled();
	const [asked] = shops.world.last.of(Kind.SUBSCRIBE).filter(({ head }) => head.pattern === "$hub.services.*");
	assert.ok(asked);
	const text = encoder.encode("subscribe: not allowed");
	shops.world.last.raw(writeFrame(Kind.FAIL, 8, asked.frame, { number: 19 }, text));
	await refused;
	shops.world.last.isKind = true;
	shops.instances = { one: "" };
	const next = watch.next();
	await shops.answer();
	assert.equal(said(await next), "joined shop one ");
});

test("a page watches the services of Python, also when the hub comes back", { timeout: 60_000 }, async () => {
	let hub = await Peer.start("hub");
	const { port } = new URL(hub.url);
	const node = await connect(hub.url, { name: "page" });
	const watch: Reader<InstanceChange> = node.watchServices();
	let server: Peer | undefined;
	try {
		const own = await node.serve("places", { where: () => "here" }, { instance: "here", version: "1.4.2" });
		assert.deepEqual((await watch.next()).value, {
			kind: "joined",
			service: "places",
			instance: { id: "here", node: "page", version: "1.4.2", metadata: {} },
		});
		server = await Peer.start("server", hub.url);
		const names = async (kind: string, count: number): Promise<string[]> => {
			const found = [];
			while (found.length < count) {
				const { value } = await watch.next();
				assert.equal(value?.kind, kind);
				assert.equal(value?.instance.node, "server");
				found.push(value?.service);
			}
			return found.sort() as string[];
		};
		const all = ["driver", "pricing", "shop", "values"];
		assert.deepEqual(await names("joined", 4), all);
		await server.stop();
		assert.deepEqual(await names("left", 4), all);
		await own.stop();
		assert.equal(said(await watch.next()), "left places here 1.4.2");
		await hub.stop();
		hub = await Peer.start("hub", port);
		server = await Peer.start("server", hub.url);
		assert.deepEqual(await names("joined", 4), all);
	} finally {
		await node.close({ timeout: 1_000 });
		await server?.stop();
		await hub.stop();
	}
	assert.deepEqual(await watch.next(), { done: true, value: undefined });
});

/** An iterator, and what has its next item come. */
interface Source {
	readonly name: string;
	readonly items: Reader<unknown>;
	readonly give: (value: number) => Promise<void>;
}

async function sources(world: World, node: Node): Promise<Source[]> {
	const call = async (subject: string, count: number): Promise<Said> => {
		for (let turn = 0; turn < 100; turn++) {
			const found = world.last.of(Kind.CALL).filter(({ head }) => head.subject === subject);
			if (found.length > count) {
				return found[count] as Said;
			}
			await settled();
		}
		throw new Error(`${subject}: it was not called`);
	};
	const home = "svc.tidewire-streams";
	const reply = (to: Said, value: unknown): void => world.last.say(Kind.REPLY, 2 | 8, to.frame, {}, writeValue(value));
	const stream = node.client("pricing").ticks?.()[Symbol.asyncIterator]();
	assert.ok(stream);
	const subscription = node.subscription("ticks");
	const bucket = node.kv("config");
	const found = await call(`${home}.look`, 0);
	reply(found, {});
	const watch = (await bucket).watch();
	let watched = 0;
	return [
		{
			name: "method",
			items: stream,
			give: async (value) =>
				world.last.say(Kind.ITEM, 2 | 8, (await call("svc.pricing.ticks", 0)).frame, {}, writeValue(value)),
		},
		{
			name: "subscription",
			items: subscription,
			give: async (value) => {
				const head = { origin: 0, to: { slot: 0, generation: 0 }, subject: "ticks", fields: [] };
				world.last.say(Kind.PUBLISH, 2, { slot: 0, generation: 0 }, head, writeValue(value));
			},
		},
		{
			name: "watch",
			items: watch,
			give: async (value) =>
				reply(await call(`${home}.read`, watched++), [[["key", writeValue(value), value, 0]], value]),
		},
	];
}

/** Begins a read, and aborts it. */
async function aborted(items: Reader<unknown>): Promise<void> {
	const controller = new AbortController();
	const read = assert.rejects(items.next({ signal: controller.signal }), /enough/);
	await settled();
	controller.abort(new Error("enough"));
	await read;
}

test("reads that are given up take no item of a method, a subscription or a watch", async () => {
	const shops = new Shops();
	const node = await shops.join();
	for (const { name, items, give } of await sources(shops.world, node)) {
		const taken = (result: IteratorResult<unknown, undefined>): unknown => {
			const { done, value } = result;
			assert.ok(!done, name);
			return typeof value === "object" ? (value as { value: unknown }).value : value;
		};
		// A race is lost, and the read that follows waits.
		await abandoned(items.next());
		const second = items.next();
		await settled();
		await give(1);
		assert.equal(taken(await second), 1, name);
		// A signal ends a wait, and the item comes later.
		await aborted(items);
		await give(2);
		await settled();
		assert.equal(taken(await items.next()), 2, name);
		// The end of a reader ends its waits.
		const open = items.next();
		await settled();
		void items.return();
		assert.deepEqual(await open, { done: true, value: undefined }, name);
	}
});

test("a read of a subscription is given up while there is no link", async () => {
	const shops = new Shops();
	const node = await shops.join();
	shops.world.isUp = false;
	shops.world.last.cut();
	const items = node.subscription("ticks");
	await aborted(items);
});
