/** `tidewire generate ts`: what it writes is stable, and TypeScript holds programs to it. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import test, { after, before } from "node:test";
import { transformSync } from "esbuild";
import { problems } from "./programs/compiler.js";
import { Peer, PYTHON, ROOT } from "./python.js";

const FOLDER = `${ROOT}js/packages/client/build/generated`;
let hub: Peer;
let server: Peer;

before(async () => {
	mkdirSync(FOLDER, { recursive: true });
	hub = await Peer.start("hub");
	server = await Peer.start("server", hub.url);
});

after(async () => {
	await server?.stop();
	await hub?.stop();
});

function generate(name: string): string {
	const out = `${FOLDER}/${name}.ts`;
	execFileSync(PYTHON, ["-m", "tidewire", "generate", "ts", hub.url, "--out", out]);
	return readFileSync(out, "utf8");
}

const GOOD = `
import type { Node } from "tidewire";
import { named } from "tidewire";
import type { Quote, Services } from "./services.js";

export async function run(node: Node): Promise<number> {
	const pricing = node.client<Services["pricing"]>("pricing");
	const quote: Quote = await pricing.with({ timeout: 500 }).quote("X", 3);
	const again: Quote = await pricing.quote("X", named({ qty: 3 }));
	const whole: Quote = await pricing.quote(named({ symbol: again.symbol, qty: 3 }));
	await node.client("pricing").quote?.("X", named({ any: whole.qty }));
	for await (const tick of pricing.ticks("X")) {
		const next: number = tick + quote.price + again.price;
		return next;
	}
	const state: Record<string, number | bigint> = await pricing.state();
	return Number(state.open);
}

export async function untyped(node: Node): Promise<unknown> {
	return node.client("pricing").quote("X");
}
`;

const WRONG = [
	'await node.client<Services["pricing"]>("pricing").quote(3)',
	'await node.client<Services["pricing"]>("pricing").quot("X")',
	'await node.client<Services["pricing"]>("pricing").quote("X", named({ quantity: 3 }))',
	'await node.client<Services["pricing"]>("pricing").quote(3, named({ qty: 3 }))',
	'await node.client<Services["pricing"]>("pricing").slow(named({ qty: 3 }))',
	'await node.client<Services["pricing"]>("pricing").quote("X", named({ qty: 3, quantity: 3 }))',
	'await node.client<Services["pricing"]>("pricing").quote("X", named({ qty: "three" }))',
	'const wrong: string = await node.client<Services["pricing"]>("pricing").quote("X")',
	'for await (const item of node.client<Services["pricing"]>("pricing").quote("X")) { item; }',
	'(await node.client("pricing").quote("X")).price',
	'await node.client<"quote">("pricing").qote("X")',
	'await node.serve("x", { f: 1 })',
	'await node.serve("x", () => 1)',
	'await node.serve("x", class { f() {} })',
];

const SERVED = `
import { EventEmitter } from "node:events";
import type { Node } from "tidewire";

class Counter extends EventEmitter {
	#count = 0;
	step = 1;
	add(): number {
		this.#count += this.step;
		return this.#count;
	}
}

export async function serve(node: Node, unknown: object, record: Record<string, unknown>, any: any): Promise<void> {
	await node.serve("x", new Counter());
	await node.serve("x", { f: () => 1, version: 1 });
	await node.serve("x", { f: undefined as (() => number) | undefined });
	await node.serve("x", unknown);
	await node.serve("x", record);
	await node.serve("x", any);
}

export async function named(node: Node): Promise<unknown> {
	const pricing = node.client<"quote" | "ticks">("pricing").with({ timeout: undefined });
	for await (const tick of pricing.ticks("X")) {
		return tick;
	}
	return pricing.quote("X");
}
`;

test("what is served, and a client of named methods, under the strictest options", () => {
	writeFileSync(`${FOLDER}/served.ts`, SERVED);
	const strictest = { noUncheckedIndexedAccess: true, exactOptionalPropertyTypes: true, types: ["node"] };
	assert.deepEqual(problems([`${FOLDER}/served.ts`], strictest), [[]]);
});

test("types of a hub's services, checked with tsc --strict", () => {
	const text = generate("services");
	assert.match(text, /export interface Quote \{\n\tsymbol: string;\n\tprice: number;\n\tqty\?: number \| bigint;\n\}/);
	assert.match(text, /quote\(symbol: string, qty\?: number \| bigint\): Promise<Quote>;/);
	assert.match(text, /ticks\(symbol: string, count\?: number \| bigint\): AsyncIterable<number>;/);
	writeFileSync(`${FOLDER}/good.ts`, GOOD);
	const wrong = WRONG.map((line, at) => {
		const file = `${FOLDER}/wrong${at}.ts`;
		const source = `import { named, type Node } from "tidewire";\nimport type { Services } from "./services.js";\n`;
		writeFileSync(
			file,
			`${source}export async function run(node: Node) {\n${line}\n;}\nexport type Used = Services; named({});\n`,
		);
		return file;
	});
	const [good, ...found] = problems([`${FOLDER}/good.ts`, ...wrong]);
	assert.deepEqual(good, []);
	for (const [at, line] of WRONG.entries()) {
		assert.equal(found[at]?.length, 1, `${line}: ${found[at]?.join("\n")}`);
	}
});

/** Head of a module of random calls. */
const RANDOM = `
import assert from "node:assert/strict";
import {
	Complex, connect, DateTime, Decimal, Duration, FrozenSet, LocalDate, LocalDateTime, LocalTime, named, Tuple, tuple, UUID,
} from "tidewire";
import type { Services } from "./random.js";

type Given<T> = T extends AsyncIterable<infer I> ? I : Awaited<T>;
type Result<K extends keyof Services> = Services[K] extends { call: (...args: never) => infer R } ? Given<R> : never;
export const used = [Complex, DateTime, Decimal, Duration, FrozenSet, LocalDate, LocalDateTime, LocalTime, named, Tuple, tuple, UUID];

function shown(value: unknown): string {
	const parts = (items: Iterable<unknown>): string[] => Array.from(items, shown);
	if (typeof value !== "object" || value === null) return typeof value + String(value);
	if (value instanceof Date) return value.toISOString() + ((value as DateTime).micros ?? 0) + (value as DateTime).offsetMicros;
	if (value instanceof Map || value instanceof Set) return value.constructor.name + parts(value).sort();
	if (Array.isArray(value) || value instanceof Uint8Array) return "[" + parts(value) + "]";
	return value.constructor.name + Object.entries(value).sort().map(([key, item]) => key + shown(item));
}

function same(value: unknown, wanted: unknown, call: string): void {
	assert.equal(shown(value), shown(wanted), call);
}

async function first<T>(items: AsyncIterable<T>): Promise<T | undefined> {
	for await (const item of items) return item;
	return undefined;
}

export async function run(url: string): Promise<void> {
	await using node = await connect(url);
`;

test("random signatures: Python and TypeScript get what the types say", async () => {
	const calls = `${FOLDER}/calls.ts`;
	const seed = process.env.SEED ?? "1";
	const random = await Peer.program("signatures", hub.url, seed, calls);
	writeFileSync(calls, `${RANDOM}${readFileSync(calls, "utf8")}}\n`);
	generate("random");
	const strictest = { noUncheckedIndexedAccess: true, exactOptionalPropertyTypes: true, types: ["node"] };
	assert.deepEqual(problems([calls], strictest), [[]]);
	const { code } = transformSync(readFileSync(calls, "utf8"), { loader: "ts", format: "esm", target: "es2022" });
	writeFileSync(`${FOLDER}/calls.mjs`, code);
	const { run } = (await import(`${FOLDER}/calls.mjs`)) as { run(url: string): Promise<void> };
	await run(hub.url);
	await random.stop();
});

test("the same services give the same text", () => {
	assert.equal(generate("one"), generate("two"));
});
