/** Nodes: the processes that have joined, and how they are. */
import type { JSX } from "preact";
import { INSPECTION } from "tidewire/subjects";
import { deadLettersOf } from "../attention.js";
import { age, bytes, count, micros, percent, rate } from "../format.js";
import { useHub } from "../hooks.js";
import type { Hub } from "../hub.js";
import { Detail, facts, stated, TableView } from "../parts.js";
import { depth, num, type Row, type Snapshot, sum, text, waiting } from "../snapshots.js";
import { type Column, number, Table } from "../table.js";

/** A node that allows inspection, or one that is known by its services alone. */
interface NodeLine {
	readonly key: string;
	readonly node: string;
	readonly snapshot: Snapshot | undefined;
	readonly silent: string | undefined;
	readonly services: readonly string[];
}

const of =
	(key: string) =>
	(line: NodeLine): number =>
		num(line.snapshot?.about, key);

const COLUMNS: readonly Column<NodeLine>[] = [
	{ title: "Node", value: (line) => line.node },
	stated(stateOf, (_, line) => (line.silent ? "bad" : line.snapshot ? "good" : "")),
	{ title: "Process", value: of("pid"), cell: (line) => text(line.snapshot?.about, "pid") || "–", isNumber: true },
	{ title: "Host", value: (line) => text(line.snapshot?.about, "host"), isWide: true },
	number("Up", of("uptime_s"), (up, line) => (line.snapshot ? age(up ?? 0) : "–")),
	number("CPU", (line) => line.snapshot?.cpu, percent),
	number("Memory", (line) => of("memory_bytes")(line) || undefined, bytes),
	number("Msg/s", (line) => line.snapshot && sum(line.snapshot.rows.dispatchers, (row) => row.rate), rate),
	number("Waiting", (line) => waiting(line.snapshot ? [line.snapshot] : []), count),
	number("Round trip", (line) => of("round_trip_us")(line) || undefined, micros),
	number("In/s", (line) => line.snapshot?.received, bytes),
	number("Out/s", (line) => line.snapshot?.sent, bytes),
	number("Credit", (line) => of("credit_bytes")(line) || undefined, bytes),
];

export function Nodes(): JSX.Element {
	const hub = useHub();
	return (
		<TableView
			label="Nodes"
			columns={COLUMNS}
			rows={nodesOf(hub)}
			rowKey={(line) => line.key}
			note={["Nodes without ", <code key="inspect">inspect=True</code>, " show their services alone."]}
			empty="No node allows inspection: start one with tw.Node(inspect=True), or TIDEWIRE_INSPECT=1."
			detail={(line) => <NodeDetail of={line} />}
		/>
	);
}

function NodeDetail(props: { of: NodeLine }): JSX.Element {
	const { snapshot, node, silent, services } = props.of;
	const about = snapshot?.about;
	const hub = about?.of_hub as Row | null | undefined;
	const counter = (key: string): string => `${count(num(hub ?? undefined, key))} ${key}`;
	return (
		<Detail title={node}>
			{silent && <p class="failure">{silent}</p>}
			{facts({
				Process: text(about, "pid"),
				Host: text(about, "host"),
				Version: versionOf(snapshot),
				"Joined by": text(about, "url"),
				Link: linkOf(about),
				Memory: snapshot && bytes(num(about, "memory_bytes") || undefined),
				CPU: snapshot && percent(snapshot.cpu),
				Agents: snapshot && count(snapshot.counts.agents),
				Pools: snapshot && count(snapshot.counts.pools),
				"Other actors": snapshot && count(snapshot.counts.actors),
				Timers: snapshot && count(num(about, "timers")),
				Subscriptions: snapshot && count(num(about, "subscriptions")),
				"Given up": deadLettersOf(about).text,
				"As a hub": hub
					? ["nodes", "forwarded", "calls", "published", "dropped", "refused"].map(counter).join(", ")
					: undefined,
				Services: services.join(", "),
			})}
			{snapshot && snapshot.rows.joins.length > 0 && (
				<Table
					label="Joined hubs"
					columns={JOINS}
					rows={snapshot.rows.joins}
					rowKey={(row) => text(row, "url")}
					empty=""
				/>
			)}
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

const names = (row: Row, key: string): string => ((row[key] ?? []) as readonly string[]).join(", ");

const JOINS: readonly Column<Row>[] = [
	{ title: "Hub", value: (row) => text(row, "name") },
	stated(
		(row) => text(row, "state"),
		(state) => (state === "lost" ? "bad" : "good"),
	),
	number("Per second", (row) => row.rate, rate),
	number("Calls in", (row) => num(row, "calls_in"), count),
	number("Calls out", (row) => num(row, "calls_out"), count),
	number("Refused", (row) => num(row, "refused"), count),
	number("Lost", (row) => num(row, "lost"), count),
	{ title: "There", value: (row) => names(row, "exported"), isWide: true },
	{ title: "Here", value: (row) => names(row, "imported"), isWide: true },
];

const DISPATCHERS: readonly Column<Row>[] = [
	{ title: "Dispatcher", value: (row) => text(row, "name") },
	number(
		"Busy",
		(row) => num(row, "threads") - num(row, "asleep"),
		(busy, row) => ("threads" in row ? `${busy} of ${num(row, "threads_max")}` : "–"),
	),
	number("Per second", (row) => row.rate, rate),
	{ title: "Waiting", value: depth, isNumber: true },
	{ title: "Failed", value: (row) => num(row, "failed"), isNumber: true },
];

function nodesOf({ services, snapshots, silent }: Hub): NodeLine[] {
	const served = services.flatMap(({ name, details }) => details.map((one) => ({ ...one, service: name })));
	return [...new Set(served.map((one) => one.node))].map((node) => {
		const here = served.filter((one) => one.node === node);
		const key = here.find((one) => one.service === INSPECTION)?.id ?? node;
		const names = [...new Set(here.map((one) => one.service).filter((name) => name !== INSPECTION))].sort();
		return { key, node, snapshot: snapshots.get(key), silent: silent.get(key), services: names };
	});
}

function linkOf(about: Snapshot["about"] | undefined): string {
	const size = (key: string): string => bytes(num(about, key));
	const all = `${size("received_bytes")} in, ${size("sent_bytes")} out, credit ${size("credit_bytes")}`;
	return about !== undefined && "credit_bytes" in about ? all : "";
}

function stateOf(line: NodeLine): string {
	const unseen = line.key === line.node ? "not inspected" : "asking";
	return line.silent ? "silent" : line.snapshot ? "running" : unseen;
}

function versionOf(snapshot: Snapshot | undefined): string {
	const versions = snapshot?.about.versions as Readonly<Record<string, string>> | undefined;
	const language = text(snapshot?.about, "language") || "python";
	const name = `${language[0]?.toUpperCase()}${language.slice(1)} ${versions?.[language] ?? ""}`.trim();
	return versions ? `${versions.tidewire}, ${name}` : "";
}
