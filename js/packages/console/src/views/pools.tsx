/** Pools: workers, the queue, and the scaling of each. */
import type { JSX } from "preact";
import { age, count, counted, micros, percent, rate } from "../format.js";
import { select, useHub, useRoute } from "../hooks.js";
import { Detail, Facts, Fill, State } from "../parts.js";
import { depth, failures, num, type Row, type Snapshot, text, times } from "../snapshots.js";
import { type Column, Table } from "../table.js";

interface Line {
	readonly key: string;
	readonly snapshot: Snapshot;
	readonly row: Row;
}

const COLUMNS: readonly Column<Line>[] = [
	{ title: "Pool", value: (line) => text(line.row, "name") },
	{ title: "Node", value: (line) => line.snapshot.node },
	{ title: "Function", value: (line) => text(line.row, "function"), isWide: true },
	{ title: "Kind", value: (line) => text(line.row, "kind"), isWide: true },
	{
		title: "State",
		value: (line) => text(line.row, "state"),
		cell: (line) => (
			<State is={text(line.row, "state")} level={text(line.row, "state") === "running" ? "good" : "warn"} />
		),
	},
	{
		title: "Busy",
		value: (line) => num(line.row, "workers_busy"),
		cell: (line) => `${num(line.row, "workers_busy")} of ${num(line.row, "workers")}`,
		isNumber: true,
	},
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
	{ title: "Per second", value: (line) => line.row.rate, cell: (line) => rate(line.row.rate), isNumber: true },
	{ title: "Failed", value: (line) => failures(line.row), isNumber: true },
	{ title: "Restarts", value: (line) => num(line.row, "restarts"), isNumber: true },
	{
		title: "Run p99",
		value: (line) => num(line.row, "handling_p99_us"),
		cell: (line) => micros(num(line.row, "handling_p99_us")),
		isNumber: true,
	},
];

export function Pools(): JSX.Element {
	const hub = useHub();
	const { selected } = useRoute();
	const snapshots = [...hub.snapshots.values()];
	const lines = snapshots.flatMap((snapshot) =>
		snapshot.rows.pools.map((row) => ({ key: text(row, "name"), snapshot, row })),
	);
	const opened = lines.find((line) => line.key === selected);
	return (
		<>
			<h1>Pools</h1>
			<div class="split">
				<Table
					label="Pools"
					columns={COLUMNS}
					rows={lines}
					rowKey={(line) => `${line.snapshot.key}:${line.key}`}
					onOpen={(line) => select("pools", line.key)}
					opened={opened && `${opened.snapshot.key}:${opened.key}`}
					sortBy={6}
					empty="No pool runs on a node that allows inspection: node.pool(...) makes one."
				/>
				{opened && <PoolDetail of={opened} />}
			</div>
		</>
	);
}

const WORKERS: readonly Column<Row>[] = [
	{ title: "Worker", value: (row) => num(row, "worker") },
	{
		title: "State",
		value: (row) => text(row, "state"),
		cell: (row) => <State is={text(row, "state")} level={text(row, "state") === "busy" ? "good" : ""} />,
	},
	{ title: "Runs in", value: (row) => (row.pid ? `process ${row.pid}` : text(row, "thread")) },
	{ title: "Task", value: (row) => text(row, "task") || "–", isNumber: true },
	{ title: "For", value: (row) => num(row, "task_ms"), cell: (row) => millis(row.task_ms), isNumber: true },
	{
		title: "Heartbeat",
		value: (row) => num(row, "last_heartbeat_ms_ago"),
		cell: (row) => `${millis(row.last_heartbeat_ms_ago)} ago`,
		isNumber: true,
	},
	{
		title: "Busy",
		value: (row) => num(row, "busy_share"),
		cell: (row) => percent(num(row, "busy_share")),
		isNumber: true,
	},
	{ title: "Failed", value: (row) => num(row, "errors"), isNumber: true },
	{ title: "Restarts", value: (row) => num(row, "restarts"), isNumber: true },
];

function millis(value: unknown): string {
	return typeof value !== "number" ? "–" : value < 10_000 ? micros(value * 1_000) : age(value / 1_000);
}

function PoolDetail(props: { of: Line }): JSX.Element {
	const { row, snapshot } = props.of;
	const workers = (row.worker_rows ?? []) as readonly Row[];
	const decisions = (row.decisions ?? []) as readonly Row[];
	const wanted = num(row, "workers_wanted");
	return (
		<Detail title={text(row, "name")} onClose={() => select("pools")}>
			<Facts
				of={{
					Node: snapshot.node,
					Function: text(row, "function"),
					Kind: text(row, "kind"),
					State: text(row, "state"),
					Workers: `${num(row, "workers_busy")} of ${counted(num(row, "workers"), "worker")} busy${wanted ? `; ${wanted} wanted` : ""}`,
					Queue: `${count(depth(row))}${num(row, "capacity") > 0 ? ` of ${count(num(row, "capacity"))}` : ""}`,
					Handled: count(num(row, "handled")),
					Failed: count(failures(row)),
					Restarts: count(num(row, "restarts")),
					"Time in the queue": times(row, "queueing"),
					"Time of a task": times(row, "handling"),
				}}
			/>
			{decisions.length > 0 && (
				<>
					<h3>Scaling</h3>
					<ul class="lines">
						{decisions.map((one) => (
							<li key={text(one, "ago_ms")}>
								{`${millis(one.ago_ms)} ago: from ${num(one, "before")} to ${counted(num(one, "workers"), "worker")}, ${text(one, "reason")}`}
							</li>
						))}
					</ul>
				</>
			)}
			{workers.length > 0 && (
				<>
					<h3>Workers</h3>
					<Table
						label="Workers"
						columns={WORKERS}
						rows={workers}
						rowKey={(one) => text(one, "worker")}
						empty="No worker runs."
					/>
				</>
			)}
		</Detail>
	);
}
