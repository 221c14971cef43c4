/** Pools: workers, the queue, and the scaling of each. */
import type { JSX } from "preact";
import { age, count, counted, micros, percent, rate } from "../format.js";
import { useHub } from "../hooks.js";
import { ACT, Action, Detail, facts, NodeView, queue, queueOf, stated } from "../parts.js";
import { failures, type NodeRow, num, type Row, text, times } from "../snapshots.js";
import { type Column, number, Table } from "../table.js";

const busy = (row: Row): string => `${num(row, "workers_busy")} of ${num(row, "workers")}`;
const millis = (value: unknown): string =>
	typeof value !== "number" ? "–" : value < 10_000 ? micros(value * 1_000) : age(value / 1_000);
const ago = (ms: unknown): string => `${millis(ms)} ago`;

function limitsOf(row: Row): string {
	const [least, most, set] = [num(row, "workers_min"), num(row, "workers_max"), text(row, "workers_set")];
	return least === most ? `always ${most}` : `${least} to ${most}, ${set ? `set to ${set}` : "by its load"}`;
}

const COLUMNS: readonly Column<NodeRow>[] = [
	{ title: "Pool", value: ({ row }) => text(row, "name") },
	{ title: "Node", value: (line) => line.snapshot.node },
	{ title: "Function", value: ({ row }) => text(row, "function"), isWide: true },
	{ title: "Kind", value: ({ row }) => text(row, "kind"), isWide: true },
	stated(
		({ row }) => text(row, "state"),
		(state) => (state === "running" ? "good" : "warn"),
	),
	{ title: "Busy", value: ({ row }) => num(row, "workers_busy"), cell: ({ row }) => busy(row), isNumber: true },
	queue((line) => line.row),
	number("Per second", ({ row }) => row.rate, rate),
	{ title: "Failed", value: ({ row }) => failures(row), isNumber: true },
	{ title: "Restarts", value: ({ row }) => num(row, "restarts"), isNumber: true },
	number("Run p99", ({ row }) => num(row, "handling_p99_us"), micros),
];

export function Pools(): JSX.Element {
	return (
		<NodeView
			label="Pools"
			kind="pools"
			columns={COLUMNS}
			sortBy={6}
			empty="No pool runs on a node that allows inspection: node.pool(...) makes one."
			detail={(line) => <PoolDetail of={line} />}
		/>
	);
}

const WORKERS: readonly Column<Row>[] = [
	{ title: "Worker", value: (row) => num(row, "worker") },
	stated(
		(row) => text(row, "state"),
		(state) => (state === "busy" ? "good" : ""),
	),
	{ title: "Runs in", value: (row) => (row.pid ? `process ${row.pid}` : text(row, "thread")) },
	{ title: "Task", value: (row) => text(row, "task") || "–", isNumber: true },
	{ title: "For", value: (row) => num(row, "task_ms"), cell: (row) => millis(row.task_ms), isNumber: true },
	number("Heartbeat", (row) => num(row, "last_heartbeat_ms_ago"), ago),
	number("Busy", (row) => num(row, "busy_share"), percent),
	{ title: "Failed", value: (row) => num(row, "errors"), isNumber: true },
	{ title: "Restarts", value: (row) => num(row, "restarts"), isNumber: true },
];

function PoolActions(props: { of: NodeRow }): JSX.Element {
	const hub = useHub();
	const { row, snapshot } = props.of;
	const [name, least, most] = [text(row, "name"), num(row, "workers_min"), num(row, "workers_max")];
	const isSet = text(row, "workers_set") !== "";
	const isOver = ["stopping", "failed"].includes(text(row, "state"));
	const acted = async (outcome: string, action: string, ...args: readonly unknown[]): Promise<string> => {
		await hub.act(snapshot.key, `${action}_pool`, name, ...args);
		return `${name} ${outcome}`;
	};
	const scale = (workers: number): Promise<string> => acted(`gets ${counted(workers, "worker")}`, "scale", workers);
	return (
		<div class="buttons">
			{most > least && (
				<Action
					label={`Scale ${name}`}
					ask="It keeps this number, whatever waits, until it follows its load again. A spare worker leaves after its task."
					disabled={isOver}
					by={ACT}
					run={(fields) => scale(Number(fields.get("workers")))}
				>
					<label>
						{`Workers, ${least} to ${most} `}
						<input
							name="workers"
							type="number"
							min={least}
							max={most}
							required
							defaultValue={`${num(row, "workers_wanted")}`}
						/>
					</label>
				</Action>
			)}
			{isSet && (
				<Action
					label={`Let ${name} follow its load`}
					disabled={isOver}
					by={ACT}
					run={() => acted("follows its load", "scale", null)}
				/>
			)}
			<Action
				label={`Drain ${name}`}
				ask="It takes no more tasks, and stops after those that it has. Only its program can make a new one."
				type={name}
				isDanger
				disabled={isOver}
				by={ACT}
				run={() => acted("takes no more tasks", "drain")}
			/>
		</div>
	);
}

function PoolDetail(props: { of: NodeRow }): JSX.Element {
	const { row, snapshot } = props.of;
	const workers = (row.worker_rows ?? []) as readonly Row[];
	const decisions = (row.decisions ?? []) as readonly Row[];
	const target = num(row, "workers_wanted");
	return (
		<Detail title={text(row, "name")}>
			{facts({
				Node: snapshot.node,
				Function: text(row, "function"),
				Kind: text(row, "kind"),
				State: text(row, "state"),
				Workers: `${num(row, "workers_busy")} of ${counted(num(row, "workers"), "worker")} busy${target ? `; ${target} wanted` : ""}`,
				Limits: limitsOf(row),
				Queue: queueOf(row),
				Handled: count(num(row, "handled")),
				Failed: count(failures(row)),
				Restarts: count(num(row, "restarts")),
				"Time in the queue": times(row, "queueing"),
				"Time of a task": times(row, "handling"),
			})}
			<PoolActions of={props.of} />
			{decisions.length > 0 && (
				<>
					<h3>Scaling</h3>
					<ul class="lines">
						{decisions.map((one) => (
							<li key={text(one, "ago_ms")}>
								{`${ago(one.ago_ms)}: from ${num(one, "before")} to ${counted(num(one, "workers"), "worker")}, ${text(one, "reason")}`}
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
