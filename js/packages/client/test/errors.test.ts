/** Stories of mistakes of programs and of other nodes, with a hub: none ends a program. */
import assert from "node:assert/strict";
import { AsyncResource } from "node:async_hooks";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { EventEmitter } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import test, { after, before, describe } from "node:test";
import { promisify } from "node:util";
import { runInNewContext, runInThisContext } from "node:vm";
import { transformSync } from "esbuild";
import {
	CallCancelled,
	connect,
	InvalidArgument,
	type Node,
	NoSuchTarget,
	RemoteError,
	type RemoteObject,
	remote,
	TidewireError,
} from "tidewire";
import ts from "typescript";
import { Peer, ROOT } from "./python.js";

const FOLDER = `${ROOT}js/packages/client/build/programs`;
/** A string of MessagePack whose one byte is not UTF-8. */
const NO_TEXT = Uint8Array.of(0xa1, 0xff);

const collect = (globalThis as { gc?: () => void }).gc ?? (() => {});

/** Publishes bytes as they are, as no node of Tidewire does. */
function publishBytes(node: Node, subject: string, bytes: Uint8Array): void {
	const { runtime } = node as unknown as {
		runtime: { session: { publish(...args: unknown[]): boolean }; plan(): void };
	};
	runtime.session.publish(subject, [], bytes, 2);
	runtime.plan();
}

/** Runs a program of its own, and gives what it says. */
async function run(name: string, source: string): Promise<{ stdout: string; stderr: string }> {
	mkdirSync(FOLDER, { recursive: true });
	const file = `${FOLDER}/${name}.mjs`;
	writeFileSync(file, source);
	return promisify(execFile)(process.execPath, [file], { timeout: 30_000 });
}

describe("with a hub", { timeout: 60_000 }, () => {
	let hub: Peer;
	let node: Node;

	before(async () => {
		hub = await Peer.start("hub");
		node = await connect(hub.url, { name: "page" });
	});

	after(async () => {
		await node?.close();
		await hub?.stop();
	});

	test("messages that can't be read, and listeners that throw, end no program", async () => {
		const program = run(
			"subscriber",
			`import { connect } from "tidewire";
			const node = await connect(${JSON.stringify(hub.url)}, { name: "subscriber" });
			node.on("joined", () => { throw new Error("thrown at joined"); });
			await node.subscribe("news.bytes", () => {});
			await node.subscribe("news.thrown", (text) => { throw new Error(text); });
			await node.subscribe("news.rejected", async (text) => { throw new Error(text); });
			await node.subscribe("news.called", (text) => node.client("nobody").call(text));
			await node.subscribe("news.end", async () => { await node.close(); console.log("closed"); });
			await node.serve("subscriber", { ready: () => true });`,
		);
		for await (const { kind } of node.watchServices("subscriber")) {
			assert.equal(kind, "joined");
			break;
		}
		publishBytes(node, "news.bytes", NO_TEXT);
		node.publish("news.thrown", "thrown by a listener");
		node.publish("news.rejected", "rejected by a listener");
		node.publish("news.called", 1);
		node.publish("news.end", 1);
		const { stdout, stderr } = await program;
		assert.equal(stdout, "closed\n");
		assert.match(stderr, /WireError: data: at byte \d+: text that is not UTF-8/);
		assert.match(stderr, /Error: thrown by a listener/);
		assert.match(stderr, /Error: rejected by a listener/);
		assert.match(stderr, /NoResponders: nobody.call/);
	});

	test("a listener of errors gets what nobody else can", async () => {
		await using subscriber = await connect(hub.url);
		const errors: unknown[] = [];
		const over = new Promise<void>((resolve) => {
			subscriber.on("error", (error) => {
				errors.push(error);
				if (errors.length === 2) {
					resolve();
				}
			});
		});
		await using unread = await subscriber.subscribe("bytes", () => {});
		await using failed = await subscriber.subscribe("thrown", (text) => {
			throw new Error(String(text));
		});
		publishBytes(node, "bytes", NO_TEXT);
		node.publish("thrown", "no");
		await over;
		assert.deepEqual(errors.map(String).sort(), ["Error: no", "WireError: data: at byte 2: text that is not UTF-8"]);
		assert.deepEqual([unread.statistics().errors, failed.statistics().errors], [1, 1]);
	});

	test("a handler may throw anything: its caller is told", async () => {
		const thrown = [Object.create(null) as unknown, Symbol("odd"), Object.assign(new Error(), { message: 7 }), "text"];
		await using _ = await node.serve("odd", {
			now(at: number) {
				throw thrown[at];
			},
			async later(at: number) {
				throw thrown[at];
			},
			member: (name: string) => ({
				get [name]() {
					return assert.fail("a member of the result");
				},
			}),
			thenable: () => ({
				// biome-ignore lint/suspicious/noThenProperty: one that throws is the point.
				then: () => assert.fail("a member of the result"),
			}),
			// biome-ignore lint/correctness/useYield: it throws before its first item.
			async *items(at: number) {
				throw thrown[at];
			},
		});
		const odd = node.client<{
			now(at: number): void;
			later(at: number): void;
			items(at: number): AsyncIterable<never>;
		}>("odd");
		for (const at of thrown.keys()) {
			await assert.rejects(odd.now(at), RemoteError);
			await assert.rejects(odd.later(at), RemoteError);
			await assert.rejects(odd.items(at)[Symbol.asyncIterator]().next(), RemoteError);
		}
	});

	test("an error says which call failed, where it was awaited, and its causes", async () => {
		await using _ = await node.serve("deep", {
			fail() {
				throw new TypeError("outer", { cause: new RangeError("inner", { cause: new Error("innermost") }) });
			},
			late: () => new Promise(() => {}),
			// biome-ignore lint/correctness/useYield: it throws before its first item.
			async *items() {
				throw new TypeError("no items");
			},
			forward: () => node.client<"fail">("deep").fail(),
		});
		const deep = node.client<"fail" | "late" | "items" | "forward">("deep");
		const raised = async (run: () => Promise<unknown>): Promise<TidewireError> => {
			try {
				await run();
			} catch (error) {
				assert.ok(error instanceof TidewireError);
				return error;
			}
			return assert.fail("nothing was raised");
		};
		const failed = await raised(async function caller() {
			await deep.fail();
		});
		assert.ok(failed instanceof RemoteError);
		assert.equal(failed.message, "deep.fail: javascript:TypeError: outer");
		assert.equal(failed.typeName, "javascript:TypeError");
		assert.match(failed.stack ?? "", /^RemoteError: deep.fail: .*\n.*callValue.*\n.*async caller .*errors\.test/s);
		assert.match(
			failed.remoteTraceback,
			/^TypeError: outer\n.*\n\[cause\]: RangeError: inner\n.*\n\[cause\]: Error: innermost\n/s,
		);
		const stream = await raised(async function reader() {
			for await (const item of deep.items()) {
				assert.fail(String(item));
			}
		});
		assert.match(stream.stack ?? "", /^RemoteError: deep.items: javascript:TypeError: no items\n.*async reader /s);
		const late = await raised(async function waiter() {
			await deep.with({ timeout: 5 }).late();
		});
		assert.match(late.stack ?? "", /^AskTimeout: deep.late.*async waiter /s);
		const forwarded = await raised(async () => await deep.forward());
		assert.equal(forwarded.message, "deep.forward: javascript:TypeError: outer");
		const reason = new CallCancelled("the program's own");
		const { stack } = reason;
		const aborted = await raised(async () => await deep.with({ signal: AbortSignal.abort(reason) }).late());
		assert.equal(aborted, reason);
		assert.equal(reason.stack, stack);
	});

	test("an async generator that was compiled for an older platform is a stream", async () => {
		const source = `exports.service = {
			async *ticks(count) { for (let n = 0; n < count; n++) yield n; },
			async total(count) {
				let total = 0;
				for await (const n of (async function* () { for (let n = 0; n < count; n++) yield n; })()) total += n;
				return total;
			},
		};
		class Ticks { async *ticks(count) { for (let n = 0; n < count; n++) yield n; } }
		exports.instance = new Ticks();`;
		const compiled = [
			ts.transpile(source, { target: ts.ScriptTarget.ES2017 }),
			ts.transpile(source, { target: ts.ScriptTarget.ES5, downlevelIteration: true }),
			transformSync(source, { target: "es2017", format: "cjs" }).code,
		];
		for (const [at, code] of compiled.entries()) {
			const { service, instance } = runInThisContext(`(() => { const exports = {}; ${code}; return exports; })()`) as {
				service: object;
				instance: object;
			};
			await using _ = await node.serve(`old${at}`, service);
			await using _instance = await node.serve(`class${at}`, instance);
			const old = node.client<"ticks" | "total">(`old${at}`);
			assert.equal(await old.total(4), 6, "a generator within a function makes no stream of it");
			for (const ticks of [old.ticks(3), node.client<"ticks">(`class${at}`).ticks(3)]) {
				const read: unknown[] = [];
				for await (const tick of ticks) {
					read.push(tick);
				}
				assert.deepEqual(read, [0, 1, 2]);
			}
		}
	});

	test("a function or a class is not served: its source is nobody's business", async () => {
		for (const target of [(a: number) => a, class Pricing {}, async () => {}]) {
			await assert.rejects(
				node.serve("math", target as object),
				(error) => error instanceof InvalidArgument && /give an object of functions/.test(error.message),
			);
		}
		for (const target of [new Map(), [1], new EventEmitter(), new EventTarget(), "text"]) {
			await assert.rejects(node.serve("math", target as object), /it has no functions/);
		}
	});

	test("the methods of a class and of its own bases are served, those of the platform are not", async () => {
		class Base extends EventEmitter {
			inherited(): string {
				return "inherited";
			}
		}
		class Emitter extends Base {
			quote(): string {
				return this.#secret();
			}
			#secret(): string {
				return "quote";
			}
			override toString(): string {
				return "text for people";
			}
		}
		class Target extends EventTarget {
			quote(): void {}
		}
		class Input extends Readable {
			quote(): void {}
		}
		class Resource extends AsyncResource {
			quote(): void {}
		}
		class List extends Array<number> {
			quote(): void {}
		}
		const foreign = runInNewContext("({ quote() {}, __proto__: new (class { inherited() {} }) })") as object;
		const served = [
			[new Emitter(), ["quote", "inherited"]],
			[new Target(), ["quote"]],
			[new Input(), ["quote"]],
			[new Resource("resource"), ["quote"]],
			[new List(), ["quote"]],
			[foreign, ["quote", "inherited"]],
			[Object.assign(Object.create(null) as object, { quote: () => {} }), ["quote"]],
		] as const;
		for (const [at, [target, names]] of served.entries()) {
			await using _ = await node.serve(`of${at}`, target);
			const { methods = [] } = (await node.services()).find(({ name }) => name === `of${at}`) ?? {};
			assert.deepEqual(
				methods.map(({ name }) => name),
				names,
			);
		}
		await using _ = await node.serve("emitter", new Emitter());
		assert.equal(await node.client<Emitter>("emitter").quote(), "quote");
		await assert.rejects(Promise.resolve(node.client("emitter").removeAllListeners?.()), NoSuchTarget);
		assert.equal(JSON.stringify({ client: node.client("emitter") }), '{"client":{}}', "no call is made of it");
		assert.throws(() => String(node.client("emitter")), TypeError);
	});

	test("one `remote(function)` that is given again and again does not grow, and is released", async () => {
		await using server = await connect(hub.url);
		await using _ = await server.serve("taker", { take: () => {} });
		const taker = node.client<{ take(given: unknown): void }>("taker");
		const given = remote(() => {});
		const round = async (): Promise<number> => {
			for (let done = 0; done < 4_000; done += 500) {
				await Promise.all(Array.from({ length: 500 }, () => taker.take(given)));
			}
			// The next collection releases what the taker dropped.
			for (const end = Date.now() + 20_000; node.statistics().remote.given > 0 && Date.now() < end; ) {
				collect();
				await server.services();
			}
			collect();
			return process.memoryUsage().heapUsed;
		};
		const before = await round();
		const grown = (await round()) - before;
		assert.ok(grown < 1_000_000, `${grown} bytes more`);
		await taker.take(given);
		given.dispose();
		assert.equal(node.statistics().remote.given, 0);
	});

	test("a call of an export that is refused, as it is a stream, does not keep the export", async () => {
		await using server = await connect(hub.url);
		const counter = { *count() {}, one: () => 1 };
		await using _ = await server.serve("giver", { give: () => remote(counter), ping: () => {} });
		const giver = node.client<{ give(): RemoteObject<typeof counter>; ping(): void }>("giver");
		const exported = await giver.give();
		await assert.rejects(Promise.resolve(exported.count()), InvalidArgument);
		const items = exported.one() as unknown as AsyncIterable<number>;
		await assert.rejects(items[Symbol.asyncIterator]().next(), InvalidArgument);
		exported.dispose();
		await giver.ping();
		assert.equal(server.statistics().remote.given, 0);
	});

	test("a call that nobody awaits is sent, and a stream that is read later is a stream", async () => {
		const noted: number[] = [];
		let tell = (): void => {};
		await using _ = await node.serve("notes", {
			note(value: number) {
				noted.push(value);
				if (noted.length === 3) {
					tell();
				}
				return value;
			},
			async *values() {
				yield 1;
				yield 2;
			},
			giver: () => remote({ note: (value: number) => noted.push(value), fail: () => assert.fail() }),
		});
		const notes = node.client<{
			note(value: number): number;
			values(): AsyncIterable<number>;
			giver(): RemoteObject<{ note(value: number): number }>;
		}>("notes");
		const given = await notes.giver();
		const three = new Promise<void>((resolve) => {
			tell = resolve;
		});
		notes.note(1);
		given.note(2);
		const kept = notes.note(3);
		await three;
		assert.deepEqual(noted.sort(), [1, 2, 3]);
		assert.equal(await kept, 3);
		assert.equal(await kept, 3);
		assert.equal(noted.length, 3, "each was made once");
		const values = notes.values();
		// The hub answers in order: it has refused to give one value of the stream.
		await notes.note(4);
		const read: number[] = [];
		for await (const value of values) {
			read.push(value);
		}
		assert.deepEqual(read, [1, 2]);
	});

	test("an iterator that the program drops is closed, and one that waits is not dropped", async () => {
		let closed = 0;
		let tell = (): void => {};
		const forever = new Promise<number>((resolve) => {
			tell = () => resolve(2);
		});
		await using _ = await node.serve("counts", {
			async *values() {
				try {
					for (let value = 1; ; value++) {
						yield value;
					}
				} finally {
					closed++;
				}
			},
			async *slow() {
				try {
					yield 1;
					yield await forever;
				} finally {
					closed++;
				}
			},
		});
		const counts = node.client<{ values(): AsyncIterable<number>; slow(): AsyncIterable<number> }>("counts");
		const first = async (): Promise<number | undefined> => (await counts.values()[Symbol.asyncIterator]().next()).value;
		const second = async (): Promise<number | undefined> => {
			const reading = counts.slow()[Symbol.asyncIterator]();
			await reading.next();
			return (await reading.next()).value;
		};
		assert.equal(await first(), 1);
		assert.equal(
			await node
				.subscription("counts")
				[Symbol.asyncIterator]()
				.next({ signal: AbortSignal.timeout(1) })
				.catch(() => 0),
			0,
		);
		const waits = second();
		const drop = async (over: () => boolean): Promise<void> => {
			for (const end = Date.now() + 20_000; !over() && Date.now() < end; await node.services()) {
				collect();
			}
		};
		await drop(() => closed === 1 && node.statistics().subscriptions === 0);
		assert.deepEqual([closed, node.statistics().subscriptions], [1, 0]);
		tell();
		assert.equal(await waits, 2);
		await drop(() => closed === 2);
		assert.equal(closed, 2);
	});

	test("a call that fails, and that nobody awaits, is a rejection without a handler", async () => {
		await using _ = await node.serve("failing", {
			fail() {
				throw new Error("nobody awaits this");
			},
			wait: () => new Promise(() => {}),
		});
		const program = (end: string): string => `import { connect } from "tidewire";
			const node = await connect(${JSON.stringify(hub.url)});
			const failing = node.client("failing");
			process.on("unhandledRejection", async (error) => { console.log(error.message); await node.close(); });
			failing.fail().catch((error) => console.log("caught"));
			${end}`;
		const failed = await run("failed", program("failing.fail();"));
		assert.match(failed.stdout, /^caught\n.*nobody awaits this\n$/);
		const closed = await run(
			"closed",
			program('failing.wait(); await node.client("nobody").x().catch(() => {}); await node.close();'),
		);
		assert.equal(closed.stdout, "caught\n", "a program may leave calls alone, and close its node");
	});
});

test("a server that is no hub: the error names its URL and the cause", async () => {
	const answers: [frame: number[] | undefined, cause: RegExp][] = [
		[undefined, /could not be reached: Unexpected server response: 404/],
		[[0x81, 1, 0x61], /was closed \(.*, a message of the hub is not binary\)/],
		[[0x82, 127, 0, 0, 0, 0, 0x40, 0, 0, 0], /was closed \(.*, Max payload size exceeded\)/],
		[[0xc2, 1, 0], /was closed \(.*RSV1 must be clear\)/],
		[[0x88, 2, 0x03, 0xf0], /was closed \(1008\)/],
	];
	for (const [frame, cause] of answers) {
		const server = createServer((_, response) => response.writeHead(404).end());
		if (frame !== undefined) {
			server.on("upgrade", ({ headers }, socket) => {
				const key = `${headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
				const accept = createHash("sha1").update(key).digest("base64");
				socket.write(
					`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
						`Sec-WebSocket-Accept: ${accept}\r\nSec-WebSocket-Protocol: tidewire.v1\r\n\r\n`,
				);
				socket.on("data", () => socket.end()).on("error", () => {});
				socket.write(Buffer.from(frame));
			});
		}
		await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
		const url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
		await assert.rejects(connect(url), ({ message }) => cause.test(message) && message.includes(url));
		server.close();
	}
});
