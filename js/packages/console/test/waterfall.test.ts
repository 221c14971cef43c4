/** The waterfall of a trace: its tree, and clocks of hosts that differ. */
import assert from "node:assert/strict";
import test from "node:test";
import { type TraceAnswer, traceIdOf, waterfallOf } from "../src/waterfall.js";

const MINUTE = 60_000_000;

type Given = readonly [id: string, parent: string, kind: string, start: number, duration: number | null];

const answer = (host: string, ...spans: Given[]): TraceAnswer => ({
	host,
	spans: spans.map(([id, parent, kind, start_us, duration_us]) => ({
		id,
		parent,
		kind,
		name: id,
		start_us,
		duration_us,
	})),
});

const shown = (...answers: TraceAnswer[]): unknown[] =>
	waterfallOf(answers).lines.map(({ id, depth, start }) => [id, depth, start]);

test("spans stand below their parents, in the order of their begin, and each once", () => {
	const here = answer("one", ["call", "outside", "client", 1_000, 90], ["late", "handler", "client", 1_060, 5]);
	const there = answer("one", ["handler", "call", "server", 1_010, 70], ["early", "handler", "producer", 1_020, 0]);
	const tree = [
		["call", 0, 0],
		["handler", 1, 10],
		["early", 2, 20],
		["late", 2, 60],
	];
	assert.deepEqual(shown(here, there, here), tree);
	const { total, orphans, moves } = waterfallOf([here, there]);
	assert.deepEqual([total, orphans, moves], [90, 1, []]);
	const circle = answer("one", ["a", "b", "client", 5, 1], ["b", "a", "server", 4, 1], ["own", "own", "server", 6, 1]);
	assert.deepEqual(shown(circle).length, 3);
	assert.deepEqual(waterfallOf([]), { lines: [], total: 0, moves: [], orphans: 0 });
});

test("a host whose clock is wrong is moved by the least with which a call contains the call that it caused", () => {
	const caller = answer("one", ["call", "", "client", 1_000, 100], ["publish", "", "producer", 1_200, 0]);
	const late = answer(
		"two",
		["handler", "call", "server", 1_000 + MINUTE, 60],
		["next", "handler", "client", 1_010 + MINUTE, 40],
	);
	assert.deepEqual(waterfallOf([caller, late]).moves, [{ host: "two", by: 40 - MINUTE }]);
	assert.deepEqual(shown(caller, late), [
		["call", 0, 0],
		["handler", 1, 40],
		["next", 2, 50],
		["publish", 0, 200],
	]);
	const early = answer("two", ["handler", "call", "server", 10, 60]);
	assert.deepEqual(waterfallOf([caller, early]).moves, [{ host: "two", by: 990 }]);
	const behind = answer("two", ["process", "publish", "consumer", 1_150, 10]);
	assert.deepEqual(waterfallOf([caller, behind]).moves, [{ host: "two", by: 50 }]);
	const fits = answer("two", ["handler", "call", "server", 1_005, 60], ["process", "publish", "consumer", 9_000, 10]);
	assert.deepEqual(waterfallOf([caller, fits]).moves, []);
	const third = answer("three", ["far", "next", "server", 5, 20]);
	assert.deepEqual(waterfallOf([caller, late, third]).lines.find((line) => line.id === "far")?.start, 50);
	const runs = answer("two", ["handler", "call", "server", 900, null]);
	assert.deepEqual(waterfallOf([caller, runs]).moves, [{ host: "two", by: 100 }]);
});

test("the id of a trace is taken from what an operator pastes", () => {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736";
	for (const said of [id, ` ${id.toUpperCase()}\n`, `00-${id}-00f067aa0ba902b7-01`]) {
		assert.equal(traceIdOf(said), id);
	}
	for (const said of ["", id.slice(1), `${id}0`, `g${id.slice(1)}`, `${id}-01`]) {
		assert.equal(traceIdOf(said), undefined);
	}
});
