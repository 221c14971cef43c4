/** Agents and actors: the first ones of a search, with queues, rates, failures and times. */
import type { JSX } from "preact";
import { keyOf, nameOf } from "../attention.js";
import { count, micros, rate } from "../format.js";
import { useHub, useRoute } from "../hooks.js";
import { useNodeRows } from "../node_rows.js";
import { Detail, facts, queue, queueOf, State, TableView } from "../parts.js";
import { depth, failures, type NodeRow, num, type Row, rowsOf, text, times } from "../snapshots.js";
import { type Column, number, useRowsQuery } from "../table.js";

const of =
	(key: string) =>
	(line: NodeRow): number =>
		num(line.row, key);

const COLUMNS: readonly Column<NodeRow>[] = [
	{ title: "Name", value: (line) => nameOf(line.row), field: "name" },
	{ title: "Node", value: (line) => line.snapshot.node },
	{ title: "Kind", value: (line) => kindOf(line.row), isWide: true },
	{ title: "Status", value: (line) => statusOf(line.row), cell: (line) => <Status of={line.row} />, field: "status" },
	{ ...queue((line: NodeRow) => line.row), field: "load" },
	number("Per second", (line) => line.row.rate, rate),
	{ ...number("Handled", of("handled"), count), isWide: true, field: "handled" },
	{ ...number("Failed", (line: NodeRow) => failures(line.row), count), field: "failed" },
	{ title: "Restarts", value: of("restarts"), isNumber: true, isWide: true, field: "restarts" },
	{ ...number("Wait p99", of("queueing_p99_us"), time), field: "queueing_p99_us" },
	{ ...number("Run p99", of("handling_p99_us"), time), field: "handling_p99_us" },
];

function time(value: number | undefined, line: NodeRow): string {
	return num(line.row, "handled") > 0 ? micros(value) : "–";
}

export function Actors(): JSX.Element {
	const snapshots = [...useHub().snapshots.values()];
	const { selected } = useRoute();
	const [query, change] = useRowsQuery("load");
	const { data } = useNodeRows(["agents", "actors"], query);
	const key = ({ snapshot, row }: NodeRow): string => keyOf(snapshot, row);
	// The row of an address may be another than the first ones.
	const busiest = rowsOf(snapshots, "agents", "actors");
	const isListed = data?.lines.some((line) => key(line) === selected);
	const lines = data && [...data.lines, ...busiest.filter((line) => !isListed && key(line) === selected)];
	return (
		<TableView
			label="Agents and actors"
			columns={COLUMNS}
			rows={lines}
			rowKey={key}
			sortBy={4}
			total={data?.total}
			found={data?.found}
			query={query}
			onQuery={change}
			empty="No agent and no actor runs on a node that allows inspection."
			detail={(line) => <ActorDetail of={line} />}
		/>
	);
}

function ActorDetail(props: { of: NodeRow }): JSX.Element {
	const { row, snapshot } = props.of;
	const counter = (key: string): string | undefined => (key in row ? count(num(row, key)) : undefined);
	return (
		<Detail title={nameOf(row)}>
			{facts({
				Kind: kindOf(row),
				Node: snapshot.node,
				Status: <Status of={row} />,
				Dispatcher: text(row, "dispatcher"),
				Capabilities: (row.capabilities as readonly string[] | undefined)?.join(", "),
				Queue: queueOf(row),
				Handled: count(num(row, "handled")),
				Failed: count(failures(row)),
				Retried: counter("retried"),
				Expired: counter("expired"),
				Restarts: counter("restarts"),
				"Time in the queue": times(row, "queueing"),
				"Time in the handler": times(row, "handling"),
			})}
		</Detail>
	);
}

function Status(props: { of: Row }): JSX.Element {
	const status = statusOf(props.of);
	return <State is={status} level={status === "failing" ? "bad" : status === "busy" ? "good" : ""} />;
}

function statusOf(row: Row): string {
	return text(row, "status") || (depth(row) > 0 ? "busy" : "idle");
}

function kindOf(row: Row): string {
	return "actor" in row ? `agent ${text(row, "type")}`.trim() : "actor";
}
