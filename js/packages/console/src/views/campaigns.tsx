/** Campaigns that have not ended: progress and pace, workers, and failed runs of each. */
import type { JSX } from "preact";
import { age, count, percent, rate } from "../format.js";
import { useHub } from "../hooks.js";
import { ACT, Action, Detail, Fault, Fill, facts, NodeView, stated } from "../parts.js";
import { type NodeRow, num, type Row, text } from "../snapshots.js";
import { type Column, number, Table } from "../table.js";

const COLUMNS: readonly Column<NodeRow>[] = [
	{ title: "Campaign", value: ({ row }) => text(row, "name") },
	{ title: "Node", value: (line) => line.snapshot.node },
	stated(
		({ row }) => text(row, "condition"),
		(state) => (state === "running" ? "good" : "warn"),
	),
	number(
		"Progress",
		({ row }) => num(row, "handled") / Math.max(num(row, "runs"), 1),
		(part = 0) => [<Fill key="fill" value={part} of={1} isProgress />, percent(part)],
	),
	number("Runs/s", ({ row }) => row.rate, rate),
	number(
		"Left",
		({ row }) => num(row, "seconds_left"),
		(left) => (left ? age(left) : "–"),
	),
	{ title: "Workers", value: ({ row }) => num(row, "at_work"), isNumber: true },
	{ title: "Failed", value: ({ row }) => num(row, "failed"), isNumber: true },
];

export function Campaigns(): JSX.Element {
	return (
		<NodeView
			label="Campaigns"
			kind="campaigns"
			columns={COLUMNS}
			isEven
			empty="No campaign is open on a node that allows inspection: tw.campaign(...) makes one."
			detail={(line) => <CampaignDetail of={line} />}
		/>
	);
}

const WORKERS: readonly Column<Row>[] = [
	{ title: "Worker", value: (row) => text(row, "name") },
	stated(
		(row) => text(row, "state"),
		(state) => (state === "working" ? "good" : state === "lost" ? "bad" : ""),
	),
	{ title: "Runs in", value: (row) => `process ${text(row, "process")} of ${text(row, "host")}` },
	number("Runs", (row) => num(row, "runs"), count),
	number("In the function", (row) => num(row, "share"), percent),
];

function CampaignActions(props: { of: NodeRow }): JSX.Element {
	const hub = useHub();
	const { row, snapshot } = props.of;
	const name = text(row, "name");
	const acted = async (action: string, outcome: string): Promise<string> => {
		await hub.act(snapshot.key, `${action}_campaign`, name);
		return `${name} ${outcome}`;
	};
	return (
		<div class="buttons">
			{["paused", "draft"].includes(text(row, "condition")) ? (
				<Action label={`Resume ${name}`} by={ACT} run={() => acted("resume", "goes on")} />
			) : (
				<Action
					label={`Pause ${name}`}
					ask="No worker begins a further range of runs until it is resumed. Runs that have begun are stored."
					by={ACT}
					run={() => acted("pause", "is paused")}
				/>
			)}
			<Action
				label={`Cancel ${name}`}
				ask="It ends for good, and its stored results stay. Runs that have begun are not stored."
				type={name}
				isDanger
				by={ACT}
				run={() => acted("cancel", "is cancelled")}
			/>
		</div>
	);
}

function CampaignDetail(props: { of: NodeRow }): JSX.Element {
	const { row, snapshot } = props.of;
	const failed = (row.failures ?? []) as readonly Row[];
	return (
		<Detail title={text(row, "name")}>
			{facts({
				Node: snapshot.node,
				Function: text(row, "function"),
				Seed: text(row, "seed"),
				Reason: text(row, "reason"),
				Runs: `${count(num(row, "handled"))} of ${count(num(row, "runs"))}, ${count(num(row, "failed"))} failed`,
				"Runs/s": rate(row.rate),
				Pace: text(row, "limiting"),
			})}
			<CampaignActions of={props.of} />
			<h3>Workers</h3>
			<Table
				label="Workers"
				columns={WORKERS}
				rows={(row.workers ?? []) as readonly Row[]}
				rowKey={(one) => text(one, "id")}
				empty="No worker has joined."
			/>
			{failed.length > 0 && <h3>Failed runs</h3>}
			{failed.map((one) => (
				<section key={text(one, "run")} class="inner" aria-label={`Run ${one.run}`}>
					<Fault error={`Run ${one.run}: ${text(one, "error")}`} traceback={text(one, "traceback")} />
				</section>
			))}
		</Detail>
	);
}
