/** Looks at nodes: answers of `$sys`, with rates since the look before. */

import { micros } from "./format.js";

/** One actor, agent, pool, service or dispatcher; see `docs/guides/top.md`. */
export type Row = Readonly<Record<string, unknown>> & {
	/** Handled since the last snapshot, per second; undefined at the first. */
	readonly rate?: number | undefined;
	/** Failed since the last snapshot, per second. */
	readonly errorRate?: number | undefined;
};

export const KINDS = ["agents", "pools", "services", "actors", "dispatchers"] as const;
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
}

/** Keys that identify a row from look to snapshot. */
const IDENTITY = ["actor", "id", "name", "function", "service", "instance"];
const FAILURES = ["errors", "failed"];

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

export function failures(row: Row): number {
	return FAILURES.reduce((sum, key) => sum + num(row, key), 0);
}

/** How much waits in a row of any kind. */
export function depth(row: Row): number {
	return num(row, "depth" in row ? "depth" : "waiting");
}

/** The 99th percentile of the time in the handler, in microseconds. */
export function p99(row: Row): number {
	return num(row, "handling_p99_us" in row ? "handling_p99_us" : "p99_us");
}

/** Median and 99th percentile of the time in the queue or in the handler, as text. */
export function times(row: Row, kind: "queueing" | "handling"): string {
	const shown = (name: string): string => micros(num(row, `${kind}_${name}_us`));
	return num(row, "handled") > 0 ? `median ${shown("p50")}, p99 ${shown("p99")}` : "–";
}

/** Reads an answer of `$sys.statistics`. A repeated answer gives the last look again. */
export function snapshotOf(
	key: string,
	said: Readonly<Record<string, unknown>>,
	before: Snapshot | undefined,
): Snapshot {
	const at = num(said, "at_s");
	if (before !== undefined && before.at === at) {
		return before;
	}
	const passed = before === undefined ? 0 : at - before.at;
	const rows = {} as Record<Kind, readonly Row[]>;
	const counts = {} as Record<Kind, number>;
	const about: Record<string, unknown> = {};
	for (const kind of KINDS) {
		const listed = (said[kind] ?? []) as readonly Row[];
		const old = new Map(before?.rows[kind].map((row) => [identity(row), row]));
		rows[kind] = listed.map((row) => rated(row, old.get(identity(row)), passed));
		counts[kind] = Math.max(num(said, `${kind}_count`), listed.length);
	}
	for (const [name, value] of Object.entries(said)) {
		if (!(KINDS as readonly string[]).includes(name)) {
			about[name] = value;
		}
	}
	const used = num(said, "cpu_s") - num(before?.about, "cpu_s");
	return { key, node: text(said, "node"), about, at, rows, counts, cpu: passed > 0 ? used / passed : undefined };
}

function identity(row: Row): string {
	return IDENTITY.map((name) => text(row, name)).join("\n");
}

function rated(row: Row, before: Row | undefined, passed: number): Row {
	const since = (now: number, then: number): number | undefined =>
		passed > 0 && now >= then ? (now - then) / passed : undefined;
	if (before === undefined) {
		return row;
	}
	const rate = since(num(row, "handled"), num(before, "handled"));
	return { ...row, rate, errorRate: since(failures(row), failures(before)) };
}

/** Figures of all nodes at one time. */
export interface Totals {
	/** Milliseconds since 1970, on the clock of the page. */
	readonly at: number;
	readonly messages: number;
	readonly calls: number;
	readonly errors: number;
	readonly waiting: number;
	/** Microseconds: the slowest of the medians, and of the 99th percentiles, of busy services. */
	readonly p50: number;
	readonly p99: number;
	/** Of streams, if the hub has any. */
	readonly dead: number;
	readonly lag: number;
}

export function totalsOf(at: number, snapshots: readonly Snapshot[], durable: { dead: number; lag: number }): Totals {
	const all = (kind: Kind): Row[] => snapshots.flatMap((snapshot) => snapshot.rows[kind]);
	const [services, dispatchers] = [all("services"), all("dispatchers")];
	const sum = (rows: readonly Row[], of: (row: Row) => number | undefined): number =>
		rows.reduce((total, row) => total + (of(row) ?? 0), 0);
	const busy = services.filter((row) => (row.rate ?? 0) > 0);
	return {
		at,
		messages: sum(dispatchers, (row) => row.rate),
		calls: sum(services, (row) => row.rate),
		errors: sum([...services, ...dispatchers], (row) => row.errorRate),
		waiting: sum([...services, ...all("agents"), ...all("pools"), ...all("actors")], depth),
		p50: Math.max(0, ...busy.map((row) => num(row, "p50_us"))),
		p99: Math.max(0, ...busy.map(p99)),
		...durable,
	};
}
