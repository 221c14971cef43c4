/** Snapshots of nodes: answers of `$sys`, with rates since the snapshot before. */

import { micros } from "./format.js";

/** One actor, agent, pool, service or dispatcher; see `docs/guides/top.md`. */
export type Row = Readonly<Record<string, unknown>> & {
	/** Handled since the last snapshot, per second; undefined at the first. */
	readonly rate?: number | undefined;
	/** Failed since the last snapshot, per second. */
	readonly errorRate?: number | undefined;
};

const KINDS = ["agents", "pools", "services", "actors", "dispatchers", "campaigns", "joins", "routes"] as const;
export type Kind = (typeof KINDS)[number];

/** The answer of one node. */
export interface Snapshot {
	/** The instance of `$sys`. */
	readonly key: string;
	readonly node: string;
	/** Other fields of the answer, such as `pid` and `uptime_s`. */
	readonly about: Readonly<Record<string, unknown>>;
	/** Seconds on the clock of the node. */
	readonly at: number;
	readonly rows: Readonly<Record<Kind, readonly Row[]>>;
	/** How many rows the node has of each kind; the answer has the busiest. */
	readonly counts: Readonly<Record<Kind, number>>;
	/** Processor time of the process in the last seconds, 1 for a whole core. */
	readonly cpu: number | undefined;
	/** Bytes from its hub, and to it, per second. */
	readonly received: number | undefined;
	readonly sent: number | undefined;
}

/** Keys that identify a row in all snapshots. */
const IDENTITY = ["actor", "id", "name", "function", "service", "instance"];

/** A row with the answer that it is of. */
export interface NodeRow {
	readonly snapshot: Snapshot;
	readonly row: Row;
}

/** The rows of some kinds of all nodes. */
export function rowsOf(snapshots: readonly Snapshot[], ...kinds: readonly Kind[]): NodeRow[] {
	return snapshots.flatMap((snapshot) =>
		kinds.flatMap((kind) => snapshot.rows[kind].map((row) => ({ snapshot, row }))),
	);
}

/** The sum of a figure of all rows. */
export function sum<T>(rows: readonly T[] = [], of: (row: T) => number | undefined): number {
	return rows.reduce((total, row) => total + (of(row) ?? 0), 0);
}

/** How much waits in queues of all kinds. */
export const waiting = (snapshots: readonly Snapshot[]): number =>
	sum(rowsOf(snapshots, "services", "agents", "pools", "actors"), (line) => depth(line.row));

/** A number of a row, 0 if it has none. */
export function num(row: Readonly<Record<string, unknown>> | undefined, key: string): number {
	const value = row?.[key];
	return typeof value === "number" ? value : typeof value === "bigint" ? Number(value) : 0;
}

/** A text of a row, empty if it has none. */
export function text(row: Readonly<Record<string, unknown>> | undefined, key: string): string {
	const value = row?.[key];
	return typeof value === "string" ? value : value === undefined || value === null ? "" : String(value);
}

export const failures = (row: Row): number => num(row, "errors") + num(row, "failed");

/** How much waits in a row of any kind. */
export const depth = (row: Row): number => num(row, "depth" in row ? "depth" : "waiting");

/** The 99th percentile of the time in the handler, in microseconds. */
export const p99 = (row: Row): number => num(row, "handling_p99_us" in row ? "handling_p99_us" : "p99_us");

/** Median and 99th percentile of the time in the queue or in the handler, as text. */
export function times(row: Row, kind: "queueing" | "handling"): string {
	const shown = (name: string): string => micros(num(row, `${kind}_${name}_us`));
	return num(row, "handled") > 0 ? `median ${shown("p50")}, p99 ${shown("p99")}` : "–";
}

/** Reads an answer of `$sys.statistics`. A repeated answer gives the last snapshot again. */
export function snapshotOf(
	key: string,
	answer: Readonly<Record<string, unknown>>,
	before: Snapshot | undefined,
): Snapshot {
	const at = num(answer, "at_s");
	if (before !== undefined && before.at === at) {
		return before;
	}
	const passed = before === undefined ? 0 : at - before.at;
	const rows = {} as Record<Kind, readonly Row[]>;
	const counts = {} as Record<Kind, number>;
	const about = { ...answer };
	for (const kind of KINDS) {
		const listed = (answer[kind] ?? []) as readonly Row[];
		const old = new Map(before?.rows[kind].map((row) => [identity(row), row]));
		rows[kind] = listed.map((row) => rated(row, old.get(identity(row)), passed));
		counts[kind] = Math.max(num(answer, `${kind}_count`), listed.length);
		delete about[kind];
	}
	const per = (name: string): number | undefined => {
		const more = num(answer, name) - num(before?.about, name);
		return name in answer && passed > 0 && more >= 0 ? more / passed : undefined;
	};
	const [cpu, received, sent] = [per("cpu_s"), per("received_bytes"), per("sent_bytes")];
	return { key, node: text(answer, "node"), about, at, rows, counts, cpu, received, sent };
}

export const identity = (row: Row): string => IDENTITY.map((name) => text(row, name)).join("\n");

/** A row with its rates since the answer before, so many seconds ago. */
export function rated(row: Row, before: Row | undefined, passed: number): Row {
	const since = (of: (row: Row) => number): number | undefined =>
		before && passed > 0 && of(row) >= of(before) ? (of(row) - of(before)) / passed : undefined;
	return { ...row, rate: since((one) => num(one, "handled")), errorRate: since(failures) };
}

/** Figures of all nodes at one time. */
export type Totals = ReturnType<typeof totalsOf>;

/**
 * Sums of the figures of all nodes, at a time in milliseconds since 1970. Times of calls are those
 * of the slowest busy service, in microseconds.
 */
export function totalsOf(at: number, snapshots: readonly Snapshot[], durable: { dead: number; lag: number }) {
	const all = (kind: Kind): Row[] => rowsOf(snapshots, kind).map((line) => line.row);
	const [services, dispatchers] = [all("services"), all("dispatchers")];
	const busy = services.filter((row) => (row.rate ?? 0) > 0);
	return {
		at,
		messages: sum(dispatchers, (row) => row.rate),
		calls: sum(services, (row) => row.rate),
		errors: sum([...services, ...dispatchers], (row) => row.errorRate),
		waiting: waiting(snapshots),
		p50: Math.max(0, ...busy.map((row) => num(row, "p50_us"))),
		p99: Math.max(0, ...busy.map(p99)),
		...durable,
	};
}
