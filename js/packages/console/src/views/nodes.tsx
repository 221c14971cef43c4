/** Nodes: the processes that have joined, and how they are. */
import type { JSX } from "preact";
import { age, bytes, count, percent, rate } from "../format.js";
import { select, useHub, useRoute } from "../hooks.js";
import { isInspection } from "../hub.js";
import { Detail, Facts, State } from "../parts.js";
import { depth, num, type Row, type Snapshot, text } from "../snapshots.js";
import { type Column, Table } from "../table.js";

/** One line: a node that allows inspection, or one that is known by its services alone. */
interface Line {
	readonly key: string;
	readonly node: string;
	readonly snapshot: Snapshot | undefined;
	readonly silent: string | undefined;
	readonly services: readonly string[];
}

const of =
	(key: string) =>
	(line: Line): number =>
		num(line.snapshot?.about, key);

const COLUMNS: readonly Column<Line>[] = [
	{ title: "Node", value: (line) => line.node },
	{
		title: "State",
		value: (line) => stateOf(line),
		cell: (line) => <State is={stateOf(line)} level={line.silent ? "bad" : line.snapshot ? "good" : ""} />,
	},
	{ title: "Process", value: of("pid"), cell: (line) => text(line.snapshot?.about, "pid") || "–", isNumber: true },
	{ title: "Host", value: (line) => text(line.snapshot?.about, "host"), isWide: true },
	{ title: "Version", value: (line) => versionOf(line.snapshot), isWide: true },
	{
		title: "Up",
		value: of("uptime_s"),
		cell: (line) => (line.snapshot ? age(of("uptime_s")(line)) : "–"),
		isNumber: true,
	},
	{ title: "CPU", value: (line) => line.snapshot?.cpu, cell: (line) => percent(line.snapshot?.cpu), isNumber: true },
	{
		title: "Memory",
		value: of("memory_bytes"),
		cell: (line) => bytes(of("memory_bytes")(line) || undefined),
		isNumber: true,
	},
	{
		title: "Messages/s",
		value: (line) => sum(line.snapshot, (row) => row.rate),
		cell: (line) => shownRate(line),
		isNumber: true,
	},
	{
		title: "Waiting",
		value: (line) => waiting(line.snapshot),
		cell: (line) => count(waiting(line.snapshot)),
		isNumber: true,
	},
	{ title: "Link", value: (line) => text(line.snapshot?.about, "url"), isWide: true },
];

export function Nodes(): JSX.Element {
	const hub = useHub();
	const { selected } = useRoute();
	const lines = linesOf(hub.snapshots, hub.silent, hub.services);
	const opened = lines.find((line) => line.key === selected);
	return (
		<>
			<h1>Nodes</h1>
			<p class="dim">
				Nodes without <code>inspect=True</code> show their services alone.
			</p>
			<div class="split">
				<Table
					label="Nodes"
					columns={COLUMNS}
					rows={lines}
					rowKey={(line) => line.key}
					onOpen={(line) => select("nodes", line.key)}
					opened={selected}
					empty="No node allows inspection: start one with tw.Node(inspect=True), or TIDEWIRE_INSPECT=1."
				/>
				{opened && <NodeDetail of={opened} />}
			</div>
		</>
	);
}

function NodeDetail(props: { of: Line }): JSX.Element {
	const { snapshot, node, silent, services } = props.of;
	const about = snapshot?.about;
	const reasons = Object.entries((about?.dead_letters ?? {}) as Record<string, unknown>);
	return (
		<Detail title={node} onClose={() => select("nodes")}>
			{silent && <p class="failure">{silent}</p>}
			<Facts
				of={{
					Process: text(about, "pid"),
					Host: text(about, "host"),
					Version: versionOf(snapshot),
					"Joined by": text(about, "url"),
					Memory: snapshot && bytes(num(about, "memory_bytes") || undefined),
					CPU: snapshot && percent(snapshot.cpu),
					Agents: snapshot && count(snapshot.counts.agents),
					Pools: snapshot && count(snapshot.counts.pools),
					"Other actors": snapshot && count(snapshot.counts.actors),
					Timers: snapshot && count(num(about, "timers")),
					Subscriptions: snapshot && count(num(about, "subscriptions")),
					"Given up": reasons.map(([reason, number]) => `${number} ${reason.replaceAll("_", " ")}`).join(", "),
					Services: services.join(", "),
				}}
			/>
			{snapshot && (
				<Table
					label="Dispatchers"
					columns={DISPATCHERS}
					rows={snapshot.rows.dispatchers.filter((row) => num(row, "actors") > 0 || num(row, "handled") > 0)}
					rowKey={(row) => text(row, "name")}
					empty="No dispatcher has work."
				/>
			)}
		</Detail>
	);
}

const DISPATCHERS: readonly Column<Row>[] = [
	{ title: "Dispatcher", value: (row) => text(row, "name") },
	{
		title: "Busy",
		value: (row) => num(row, "threads") - num(row, "asleep"),
		cell: (row) =>
			"threads" in row ? `${num(row, "threads") - num(row, "asleep")} of ${num(row, "threads_max")}` : "–",
		isNumber: true,
	},
	{ title: "Per second", value: (row) => row.rate, cell: (row) => rate(row.rate), isNumber: true },
	{ title: "Waiting", value: depth, isNumber: true },
	{ title: "Failed", value: (row) => num(row, "failed"), isNumber: true },
];

function linesOf(
	snapshots: ReadonlyMap<string, Snapshot>,
	silent: ReadonlyMap<string, string>,
	services: readonly { name: string; details: readonly { id: string; node: string }[] }[],
): Line[] {
	const served = new Map<string, Set<string>>();
	const keys = new Map<string, string>();
	for (const { name, details } of services) {
		for (const { id, node } of details) {
			served.set(node, (served.get(node) ?? new Set()).add(name));
			if (isInspection(name)) {
				keys.set(node, id);
			}
		}
	}
	return [...served].map(([node, names]) => {
		const key = keys.get(node) ?? node;
		const shown = [...names].filter((name) => !isInspection(name)).sort();
		return { key, node, snapshot: snapshots.get(key), silent: silent.get(key), services: shown };
	});
}

function stateOf(line: Line): string {
	const unseen = line.key === line.node ? "not inspected" : "asking";
	return line.silent ? "silent" : line.snapshot ? "running" : unseen;
}

function versionOf(snapshot: Snapshot | undefined): string {
	const versions = snapshot?.about.versions as Readonly<Record<string, string>> | undefined;
	return versions ? `${versions.tidewire}, Python ${versions.python}` : "";
}

function waiting(snapshot: Snapshot | undefined): number {
	const rows = snapshot
		? [...snapshot.rows.agents, ...snapshot.rows.pools, ...snapshot.rows.services, ...snapshot.rows.actors]
		: [];
	return rows.reduce((all, row) => all + depth(row), 0);
}

function sum(snapshot: Snapshot | undefined, of: (row: Row) => number | undefined): number {
	return (snapshot?.rows.dispatchers ?? []).reduce((all, row) => all + (of(row) ?? 0), 0);
}

function shownRate(line: Line): string {
	return line.snapshot ? rate(sum(line.snapshot, (row) => row.rate)) : "–";
}
