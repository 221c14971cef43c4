/**
 * Hostile bytes for everything of the client that reads them. FUZZ_INPUTS says how many for each
 * (2,000), FUZZ_SEED by which chance (1). `make fuzz` tries 20,000 each.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { readInstances } from "../src/discovery/discovery.js";
import { TidewireError } from "../src/error.js";
import { WireError } from "../src/generated/errors.js";
import { fieldBytes, Kind, readFrames, readHead, writeFrame } from "../src/wire/frames.js";
import "../src/lazy_chunk.js";
import { readValue } from "../src/values/reader.js";
import { writeValue } from "../src/values/writer.js";
import { inflate } from "../src/wire/lz4.js";
import { Dice, fuzz, type Target } from "./fuzzing.js";
import { ROOT } from "./python.js";
import { settled, World } from "./virtual.js";

const INPUTS = Number(process.env.FUZZ_INPUTS ?? 2_000);
const SEED = Number(process.env.FUZZ_SEED ?? 1);
const FRAME_BYTES = 1_048_576;
const PAYLOAD_BYTES = 1_000_000;

interface Vectors {
	readonly frames?: readonly { readonly hex: string; readonly payload: string; readonly inflated?: string }[];
	readonly values?: readonly { readonly hex: string }[];
	readonly malformed: readonly { readonly hex: string }[];
}

const bytes = (hex: string): Uint8Array => new Uint8Array(Buffer.from(hex, "hex"));
const vectors = (name: string): Vectors =>
	JSON.parse(readFileSync(`${ROOT}spec/vectors/${name}.json`, "utf8")) as Vectors;
const { frames = [], malformed } = vectors("frames");
const { values = [], malformed: wrongValues } = vectors("values");
const packed = frames.filter(({ inflated }) => inflated !== undefined).map(({ payload }) => bytes(payload));

/** Runs something that may refuse what it is given, and may do nothing else. */
function refuses(run: () => void, kind: typeof TidewireError = WireError): void {
	try {
		run();
	} catch (error) {
		assert.ok(error instanceof kind, String(error));
	}
}

const TARGETS: readonly Target[] = [
	{
		name: "frames",
		seeds: [...frames, ...malformed].map(({ hex }) => bytes(hex)),
		run: (input) =>
			refuses(() => {
				for (const frame of readFrames(input, FRAME_BYTES)) {
					readHead(frame);
					assert.ok(frame.at < frame.headEnd && frame.headEnd <= frame.end && frame.end <= input.length);
				}
			}),
	},
	{
		name: "values",
		seeds: [...values, ...wrongValues].map(({ hex }) => bytes(hex)),
		run: (input) =>
			refuses(() => {
				const value = readValue(input);
				// A value that can be read can be written, unless it is too deep, and read again.
				refuses(() => readValue(writeValue(value)), TidewireError);
			}),
	},
	{
		name: "compressed payloads",
		seeds: [...packed, new Uint8Array(12)],
		run: (input) => refuses(() => assert.ok(inflate(input, PAYLOAD_BYTES).length <= PAYLOAD_BYTES)),
	},
	{
		name: "lists of services",
		seeds: [instance("shop", "one"), new Uint8Array(0)],
		run: (input) => refuses(() => readInstances(input)),
	},
];

function instance(name: string, id: string): Uint8Array {
	const info = JSON.stringify({ name, methods: [], instances: [id] });
	const fields = fieldBytes([["service", new TextEncoder().encode(info)]]);
	const text = (part: string): Buffer => {
		const length = Buffer.alloc(2);
		length.writeUInt16LE(part.length);
		return Buffer.concat([length, Buffer.from(part)]);
	};
	const rest = Buffer.alloc(8);
	rest.writeUInt32LE(fields.length, 4);
	return Uint8Array.from(Buffer.concat([text("node"), text(""), text(`svc.${name}.${id}.*`), rest, fields]));
}

for (const target of TARGETS) {
	test(`hostile bytes: ${target.name}`, (t) => {
		const { inputs, corpus, ways } = fuzz(target, INPUTS, SEED);
		t.diagnostic(`${inputs} inputs, ${corpus} kept, ${ways} ways through functions`);
		assert.ok(corpus > target.seeds.length, "coverage leads to new inputs");
	});
}

test("hostile messages end the link, and nothing else", async () => {
	const dice = new Dice(SEED);
	const seeds = frames.map(({ hex }) => bytes(hex));
	const rounds = Math.max(50, INPUTS / 200);
	for (let round = 0; round < rounds; round++) {
		const world = new World();
		const node = await world.join();
		await node.serve("math", { add: (a: number, b: number) => a + b });
		await node.subscribe("news", () => {});
		void Promise.resolve(node.client("far").away?.(1)).catch(() => {});
		await settled();
		for (let message = 0; message < 20 && !world.last.isClosed; message++) {
			const hostile = dice.of(seeds).slice();
			for (let left = dice.below(4); left > 0; left--) {
				hostile[dice.below(hostile.length)] = dice.below(256);
			}
			world.last.raw(hostile);
			await settled();
		}
		// Joined, or on the way to be again; and a hub that is in order finds it in order.
		await world.pass(60_000);
		const { last } = world;
		if (!last.isClosed) {
			assert.equal(node.hub, "hub");
			last.raw(writeFrame(Kind.PING, 0, { slot: 77, generation: 0 }, {}));
			await settled();
			assert.ok(last.of(Kind.PONG).length > 0, "it still answers");
		}
		await node.close({ timeout: 1 }).catch(() => {});
	}
});
