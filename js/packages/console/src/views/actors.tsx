/** Agents and actors: the busiest of each node, with queues, rates, failures and times. */
import type { JSX } from "preact";
import { keyOf, nameOf } from "../attention.js";
import { count, micros, rate } from "../format.js";
import { select, useHub, useRoute } from "../hooks.js";
import { Detail, Facts, Fill, State } from "../parts.js";
import { depth, failures, num, type Row, type Snapshot, text, times } from "../snapshots.js";
import { type Column, Table } from "../table.js";

interface Line {
	readonly key: string;
	readonly snapshot: Snapshot;
	readonly row: Row;
	readonly isAgent: boolean;
}

const of =
	(key: string) =>
	(line: Line): number =>
		num(line.row, key);

const COLUMNS: readonly Column<Line>[] = [
	{ title: "Name", value: (line) => nameOf(line.row) },
	{ title: "Node", value: (line) => line.snapshot.node },
	{ title: "Kind", value: (line) => kindOf(line), isWide: true },
	{ title: "Status", value: (line) => statusOf(line.row), cell: (line) => <Status of={line.row} /> },
	{
		title: "Queue",
		value: (line) => depth(line.row),
		cell: (line) => (
			<>
				<Fill value={depth(line.row)} of={num(line.row, "capacity")} />
				{count(depth(line.row))}
			</>
		),
		isNumber: true,
	},
	{
		title: "Per second",
		value: (line) => line.row.rate,
		cell: (line) => rate(line.row.rate),
		isNumber: true,
	},
	{ title: "Handled", value: of("handled"), cell: (line) => count(of("handled")(line)), isNumber: true, isWide: true },
	{ title: "Failed", value: (line) => failures(line.row), cell: (line) => count(failures(line.row)), isNumber: true },
	{ title: "Restarts", value: of("restarts"), isNumber: true, isWide: true },
	{ title: "Wait p99", value: of("queueing_p99_us"), cell: time("queueing_p99_us"), isNumber: true },
	{ title: "Run p99", value: of("handling_p99_us"), cell: time("handling_p99_us"), isNumber: true },
];

function time(key: string): (line: Line) => string {
	return (line) => (num(line.row, "handled") > 0 ? micros(num(line.row, key)) : "–");
}

export function Actors(): JSX.Element {
	const hub = useHub();
	const { selected } = useRoute();
	const snapshots = [...hub.snapshots.values()];
	const lines = snapshots.flatMap((snapshot) => [
		...snapshot.rows.agents.map((row) => ({ key: keyOf(snapshot, row), snapshot, row, isAgent: true })),
		...snapshot.rows.actors.map((row) => ({ key: keyOf(snapshot, row), snapshot, row, isAgent: false })),
	]);
	const total = snapshots.reduce((all, snapshot) => all + snapshot.counts.agents + snapshot.counts.actors, 0);
	const opened = lines.find((line) => line.key === selected);
	return (
		<>
			<h1>Agents and actors</h1>
			<div class="split">
				<Table
					label="Agents and actors"
					columns={COLUMNS}
					rows={lines}
					rowKey={(line) => line.key}
					onOpen={(line) => select("actors", line.key)}
					opened={selected}
					sortBy={4}
					total={total}
					empty="No agent and no actor runs on a node that allows inspection."
				/>
				{opened && <ActorDetail of={opened} />}
			</div>
		</>
	);
}

function ActorDetail(props: { of: Line }): JSX.Element {
	const { row, snapshot } = props.of;
	const capabilities = row.capabilities as readonly string[] | undefined;
	return (
		<Detail title={nameOf(row)} onClose={() => select("actors")}>
			<Facts
				of={{
					Kind: kindOf(props.of),
					Node: snapshot.node,
					Status: <Status of={row} />,
					Dispatcher: text(row, "dispatcher"),
					Capabilities: capabilities?.join(", "),
					Queue: `${count(depth(row))}${num(row, "capacity") > 0 ? ` of ${count(num(row, "capacity"))}` : ""}`,
					Handled: count(num(row, "handled")),
					Failed: count(failures(row)),
					Retried: "retried" in row ? count(num(row, "retried")) : undefined,
					Expired: "expired" in row ? count(num(row, "expired")) : undefined,
					Restarts: "restarts" in row ? count(num(row, "restarts")) : undefined,
					"Time in the queue": times(row, "queueing"),
					"Time in the handler": times(row, "handling"),
				}}
			/>
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

function kindOf(line: Line): string {
	return line.isAgent ? `agent ${text(line.row, "type")}`.trim() : "actor";
}
