/** Calls of the storage backend: streams, consumers and dead letters, as its service gives them. */
import { useRef } from "preact/hooks";
import { type Query, useQuery } from "./hooks.js";
import { type Hub, STREAMS } from "./hub.js";
import { num, type Row, text } from "./snapshots.js";
import type { RowsQuery } from "./table.js";

const ASK_MS = 5_000;

/** Asks the storage backend for a description. A lost link repeats the call. */
export function ask<T>(hub: Hub, name: string, ...args: readonly unknown[]): Promise<T> {
	return hub.call(STREAMS, "look", [name, args], { idempotent: true, timeout: ASK_MS }) as Promise<T>;
}

/** Changes something in the storage backend. Nothing repeats the call. */
export function change<T>(hub: Hub, name: string, ...args: readonly unknown[]): Promise<T> {
	return hub.call(STREAMS, "act", [name, args]) as Promise<T>;
}

/** Answer of the storage backend; empty at a hub without one. */
export function orNone<T>(answer: Promise<readonly T[]>): Promise<readonly T[]> {
	return answer.catch((error) => orThrow(error, []));
}

/** The answer for a hub without a storage backend. Other errors are thrown. */
function orThrow<T>(error: unknown, none: T): T {
	if ((error as Error).name === "NoResponders") {
		return none;
	}
	throw error;
}

/** So many items at most. */
export async function take<T>(items: AsyncIterable<T> | undefined, most: number): Promise<T[]> {
	const found: T[] = [];
	for await (const item of items ?? []) {
		if (found.push(item) === most) {
			break;
		}
	}
	return found;
}

type Page = readonly [rows: readonly Row[], found: number | bigint, total: number | bigint];

/** The first streams of a query, with how many fit and how many there are. */
function pageStreams(hub: Hub, { search, field, isDown, limit }: RowsQuery, hasOwn: boolean): Promise<Page> {
	const page = ask<Page>(hub, "page_streams", search, field, isDown, hasOwn, 0, limit);
	return page.catch((error) => orThrow<Page>(error, [[], 0, 0]));
}

/** The streams with the most dead letters; none without any. */
export async function listDead(hub: Hub): Promise<readonly Row[]> {
	const [rows] = await pageStreams(hub, { search: "", field: "dead", isDown: true, limit: 1_000 }, true);
	return rows.filter((row) => num(row, "dead") > 0);
}

/** Streams that fit a query, how many the hub has of them, and how many in all. */
export interface StreamRows {
	readonly rows: readonly Row[];
	readonly found: number;
	readonly total: number;
}

/**
 * The first streams of a query every two seconds, with the events that each stored per second. The
 * stream of this name is listed, too. `hasOwn` adds those of Tidewire itself.
 */
export function useStreams(query: RowsQuery, hasOwn: boolean, name: string): Query<StreamRows> {
	const before = useRef(new Map<string, readonly [at: number, last: number]>());
	const rated = (row: Row): Row => {
		const [at, last] = [performance.now() / 1_000, num(row, "last")];
		const old = before.current.get(text(row, "name"));
		before.current.set(text(row, "name"), [at, last]);
		return { ...row, rate: old && last >= old[1] ? (last - old[1]) / (at - old[0]) : undefined };
	};
	const page = async (hub: Hub): Promise<StreamRows> => {
		const [rows, found, total] = await pageStreams(hub, query, hasOwn);
		const isListed = name === "" || rows.some((row) => row.name === name);
		const named = isListed
			? []
			: await ask<Row>(hub, "stream_info", name).then(
					(row) => [row],
					() => [],
				);
		return { rows: [...rows, ...named].map(rated), found: Number(found), total: Number(total) };
	};
	return useQuery("streams", page, 2_000, JSON.stringify([query, hasOwn, name]));
}

/** A time of the storage backend, in microseconds since 1970. */
export function timeOf(row: Row, key: string): Date | undefined {
	return row[key] === null || row[key] === undefined ? undefined : new Date(num(row, key) / 1_000);
}
