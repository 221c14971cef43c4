/** Rows of all nodes that fit a query: each node searches and sorts its own. */
import { useRef } from "preact/hooks";
import { named } from "tidewire";
import { INSPECTION } from "tidewire/subjects";
import { type Query, useQuery } from "./hooks.js";
import { identity, type Kind, type NodeRow, num, type Row, rated, type Snapshot, sum } from "./snapshots.js";
import type { RowsQuery } from "./table.js";

const ASK_MS = 3_000;

/** The rows that fit, how many the nodes have of them, and how many in all. */
export interface NodeRows {
	readonly lines: readonly NodeRow[];
	readonly found: number;
	readonly total: number;
}

type Answer = Readonly<Record<string, unknown>> & { readonly rows: readonly Row[] };

/** Asks every node that answers for its rows of some kinds, every two seconds. */
export function useNodeRows(kinds: readonly Kind[], query: RowsQuery): Query<NodeRows> {
	const before = useRef(new Map<string, { at: number; rows: ReadonlyMap<string, Row> }>());
	const { field: sort, isDown: descending, search, limit } = query;
	return useQuery(
		kinds.join(" "),
		async (hub) => {
			const ask = async (snapshot: Snapshot): Promise<NodeRows> => {
				const { key } = snapshot;
				const args = [kinds, named({ sort, descending, search, limit })];
				const answer = (await hub.call(INSPECTION, "rows", args, { instance: key, timeout: ASK_MS })) as Answer;
				const old = before.current.get(key);
				const passed = old === undefined ? 0 : num(answer, "at_s") - old.at;
				const rows = answer.rows.map((row) => rated(row, old?.rows.get(identity(row)), passed));
				if (passed > 0 || old === undefined) {
					before.current.set(key, { at: num(answer, "at_s"), rows: new Map(rows.map((row) => [identity(row), row])) });
				}
				return {
					lines: rows.map((row) => ({ snapshot, row })),
					found: num(answer, "found"),
					total: num(answer, "total"),
				};
			};
			const answers = await Promise.allSettled([...hub.snapshots.values()].map(ask));
			const all = answers.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
			return {
				lines: all.flatMap((one) => one.lines),
				found: sum(all, (one) => one.found),
				total: sum(all, (one) => one.total),
			};
		},
		2_000,
		JSON.stringify(query),
	);
}
