/** The spans of one trace as a tree, with the clocks of their hosts aligned. */
import { num, text } from "./snapshots.js";

/** The answer of one node to `$sys.trace`. */
export type TraceAnswer = Readonly<Record<string, unknown>> & {
	readonly spans: readonly Readonly<Record<string, unknown>>[];
};

/** A span in the waterfall. Times are microseconds since the first span began. */
export interface SpanRow {
	readonly id: string;
	readonly parent: string;
	readonly name: string;
	readonly kind: string;
	readonly service: string;
	readonly method: string;
	readonly node: string;
	readonly host: string;
	readonly instance: string;
	readonly error: string;
	/** Its place in the order of the tree, and how many spans are around it. */
	readonly at: number;
	readonly depth: number;
	readonly start: number;
	/** Undefined while it runs. */
	readonly duration: number | undefined;
	/** The time on the clock of its host, in microseconds since 1970. */
	readonly clock: number;
}

export interface Waterfall {
	readonly lines: readonly SpanRow[];
	/** Microseconds from the first begin to the last end that is known. */
	readonly total: number;
	/** Hosts whose times were moved, and by how many microseconds. */
	readonly moves: readonly { readonly host: string; readonly by: number }[];
	/** Spans whose parent no node has stored. */
	readonly orphans: number;
}

type Span = Omit<SpanRow, "at" | "depth" | "start">;
type Range = readonly [low: number, high: number];

/** Puts the spans of all answers into one tree. */
export function waterfallOf(answers: readonly TraceAnswer[]): Waterfall {
	const spans = new Map<string, Span>();
	for (const { spans: rows, ...from } of answers) {
		const host = text(from, "host") || text(from, "node");
		for (const row of rows) {
			const read = (key: string): string => text(row, key);
			const duration = row.duration_us === null ? undefined : num(row, "duration_us");
			const labels = { id: read("id"), parent: read("parent"), name: read("name"), kind: read("kind") };
			const by = { service: read("service"), method: read("method"), node: read("node"), instance: read("instance") };
			const span = { ...labels, ...by, host, error: read("error"), duration };
			spans.has(span.id) || spans.set(span.id, { ...span, clock: num(row, "start_us") });
		}
	}
	const moved = offsets(spans);
	const startOf = (span: Span): number => span.clock + (moved.get(span.host) ?? 0);
	const ordered = [...spans.values()].sort((one, other) => startOf(one) - startOf(other));
	const began = ordered.length > 0 ? startOf(ordered[0] as Span) : 0;
	const children = new Map<string, Span[]>();
	for (const span of ordered) {
		const parent = spans.has(span.parent) ? span.parent : "";
		children.set(parent, [...(children.get(parent) ?? []), span]);
	}
	const lines: SpanRow[] = [];
	const visited = new Set<string>();
	// Spans that are around each other in a circle come after all others.
	for (const root of [...(children.get("") ?? []), ...ordered]) {
		const stack: [Span, number][] = [[root, 0]];
		for (let next = stack.pop(); next; next = stack.pop()) {
			const [span, depth] = next;
			if (!visited.has(span.id)) {
				visited.add(span.id);
				lines.push({ ...span, at: lines.length, depth, start: startOf(span) - began });
				const inner = children.get(span.id) ?? [];
				stack.push(...inner.map((one): [Span, number] => [one, depth + 1]).reverse());
			}
		}
	}
	const total = Math.max(0, ...lines.map((line) => line.start + (line.duration ?? 0)));
	const moves = [...moved].filter(([, by]) => by !== 0).map(([host, by]) => ({ host, by }));
	const orphans = ordered.filter((span) => span.parent !== "" && !spans.has(span.parent)).length;
	return { lines, total, moves, orphans };
}

/**
 * By how much each host is moved. A call contains the call that it caused, and an event is handled
 * after it was published; a host whose times contradict that is moved by the least that makes them
 * fit. The host of the first root stays.
 */
function offsets(spans: ReadonlyMap<string, Span>): ReadonlyMap<string, number> {
	const edges = new Map<string, Map<string, Range>>();
	const add = (from: string, to: string, [low, high]: Range): void => {
		const of = edges.get(from) ?? new Map<string, Range>();
		const [least, most] = of.get(to) ?? [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY];
		const [start, end] = [Math.max(low, least), Math.min(high, most)];
		edges.set(from, of.set(to, start <= end ? [start, end] : [(start + end) / 2, (start + end) / 2]));
	};
	for (const span of spans.values()) {
		const parent = spans.get(span.parent);
		if (parent !== undefined && parent.host !== span.host) {
			const low = parent.clock - span.clock;
			const isNested = span.kind === "server" && parent.duration !== undefined && span.duration !== undefined;
			const high = isNested ? low + (parent.duration ?? 0) - (span.duration ?? 0) : Number.POSITIVE_INFINITY;
			const range: Range = high < low ? [(low + high) / 2, (low + high) / 2] : [low, high];
			add(parent.host, span.host, range);
			add(span.host, parent.host, [-range[1], -range[0]]);
		}
	}
	const roots = [...spans.values()].filter((span) => !spans.has(span.parent));
	const found = new Map<string, number>();
	for (const { host } of roots.sort((one, other) => one.clock - other.clock)) {
		const queue = found.has(host) ? [] : [host];
		queue.length > 0 && found.set(host, 0);
		for (let from = queue.pop(); from !== undefined; from = queue.pop()) {
			for (const [to, [low, high]] of edges.get(from) ?? []) {
				if (!found.has(to)) {
					found.set(to, (found.get(from) ?? 0) + Math.min(Math.max(0, low), high));
					queue.push(to);
				}
			}
		}
	}
	return found;
}

/** The id in what an operator pastes: 32 hex digits, or a whole `traceparent`. */
export function traceIdOf(input: string): string | undefined {
	return /^(?:[0-9a-f]{2}-)?([0-9a-f]{32})(?:-[0-9a-f]{16}-[0-9a-f]{2})?$/.exec(input.trim().toLowerCase())?.[1];
}
