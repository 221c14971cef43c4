import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { WireError } from "../src/generated/errors.js";
import { type Frame, type Head, type Id, NAMES, readFrames, readHead, writeFrame } from "../src/wire/frames.js";
import "../src/lazy_chunk.js";
import { readValue } from "../src/values/reader.js";
import { writeValue } from "../src/values/writer.js";
import { inflate } from "../src/wire/lz4.js";
import { WireFault } from "../src/wire/wire_fault.js";
import { ROOT } from "./python.js";

const MAX = 1_048_576;
const FLAGS: Record<string, number> = {
	MORE: 4,
	ANSWER: 8,
	COMPRESSED: 16,
	AGAIN: 32,
	PLACED: 64,
};
const LANES = ["urgent", "high", "normal", "low"];

interface FrameVector {
	name: string;
	kind: string;
	lane: string;
	flags: string[];
	id: string;
	head: Record<string, unknown>;
	payload_fields?: [string, string][];
	payload: string;
	inflated?: string;
	hex: string;
	written?: string;
}

interface Vectors {
	frames: FrameVector[];
	malformed: { name: string; rule: string; hex: string }[];
}

function vectors<T>(name: string): T {
	return JSON.parse(readFileSync(`${ROOT}spec/vectors/${name}.json`, "utf8")) as T;
}

const bytes = (hex: string): Uint8Array => new Uint8Array(Buffer.from(hex, "hex"));
const hex = (of: Uint8Array): string => Buffer.from(of).toString("hex");

function idOf(text: string): Id {
	const id = BigInt(text);
	return { slot: Number(id & 0xffff_ffffn), generation: Number(id >> 32n) };
}

function headOf(vector: FrameVector): Head {
	const { to, deadline_ms, blocked_ms, fields, ...rest } = vector.head;
	const head = { ...rest } as Head;
	if (to !== undefined) {
		head.to = idOf(to as string);
	}
	if (deadline_ms !== undefined) {
		head.deadlineMs = deadline_ms as number;
	}
	if (blocked_ms !== undefined) {
		head.blockedMs = blocked_ms as number;
	}
	const said = vector.payload_fields ?? (fields as [string, string][] | undefined);
	if (said !== undefined) {
		head.fields = said.map(([name, value]) => [name, bytes(value)]);
	}
	return head;
}

function only(message: Uint8Array): Frame {
	const frames = [...readFrames(message, MAX)];
	assert.equal(frames.length, 1);
	return frames[0] as Frame;
}

const frames = vectors<Vectors>("frames");

for (const vector of frames.frames) {
	test(`frame: ${vector.name}`, () => {
		const frame = only(bytes(vector.hex));
		const flags = vector.flags.reduce((all, flag) => all | (FLAGS[flag] ?? 0), LANES.indexOf(vector.lane));
		assert.equal(frame.kind, NAMES.indexOf(vector.kind));
		assert.equal(frame.flags, flags);
		assert.deepEqual({ slot: frame.slot, generation: frame.generation }, idOf(vector.id));
		const head = headOf(vector);
		assert.deepEqual(readHead(frame), head);
		assert.equal(hex(frame.payload), vector.payload);
		assert.equal(
			hex(writeFrame(frame.kind, flags, idOf(vector.id), head, bytes(vector.payload))),
			vector.written ?? vector.hex,
		);
		if (vector.inflated !== undefined) {
			assert.equal(hex(inflate(frame.payload, MAX)), vector.inflated);
		}
	});
}

for (const vector of frames.malformed) {
	test(`malformed frame: ${vector.name}`, () => {
		assert.throws(
			() => {
				for (const frame of readFrames(bytes(vector.hex), MAX)) {
					readHead(frame);
				}
			},
			(error) => error instanceof WireFault && error.rule === vector.rule,
		);
	});
}

interface ValueVectors {
	values: {
		name: string;
		description: string;
		written: boolean;
		hex: string;
	}[];
	malformed: { description: string; hex: string }[];
}

const values = vectors<ValueVectors>("values");

for (const vector of values.values) {
	test(`value: ${vector.name}`, () => {
		const value = readValue(bytes(vector.hex));
		if (vector.written) {
			assert.equal(hex(writeValue(value)), vector.hex);
		} else {
			assert.deepEqual(readValue(writeValue(value)), value);
		}
	});
}

for (const vector of values.malformed) {
	test(`malformed value: ${vector.description}`, () => {
		assert.throws(() => readValue(bytes(vector.hex)), WireError);
	});
}
