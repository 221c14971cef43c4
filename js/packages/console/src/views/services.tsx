/** Services: instances with their rates, methods with their schemas, and calls by a form. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { MethodInfo, Schema, ServiceInfo } from "tidewire";
import { isOwn } from "../attention.js";
import { count, micros, percent, pretty, rate, reasonOf } from "../format.js";
import { select, useHub, useRoute } from "../hooks.js";
import { Detail, Facts, Failure } from "../parts.js";
import { fieldsOf, SchemaForm, valuesOf } from "../schema_form.js";
import { num, p99, type Row, type Snapshot, text } from "../snapshots.js";
import { type Column, Table } from "../table.js";

/** A service with the counts of its instances on nodes that allow inspection. */
interface Line {
	readonly info: ServiceInfo;
	readonly rows: readonly Row[];
}

const sum = (line: Line, of: (row: Row) => number | undefined): number =>
	line.rows.reduce((all, row) => all + (of(row) ?? 0), 0);
const most = (line: Line, of: (row: Row) => number): number => Math.max(0, ...line.rows.map(of));
const share = (row: Row): number | undefined =>
	num(row, "calls") > 0 ? num(row, "errors") / num(row, "calls") : undefined;

const COLUMNS: readonly Column<Line>[] = [
	{ title: "Service", value: (line) => line.info.name },
	{ title: "Instances", value: (line) => line.info.instances.length, isNumber: true },
	{ title: "Version", value: (line) => versions(line.info), isWide: true },
	{ title: "In flight", value: (line) => sum(line, (row) => num(row, "in_flight")), isNumber: true },
	{ title: "Waiting", value: (line) => sum(line, (row) => num(row, "waiting")), isNumber: true },
	number("Calls/s", (line) => (line.rows.length > 0 ? sum(line, (row) => row.rate) : undefined), rate),
	number(
		"Errors",
		(line) => sum(line, (row) => num(row, "errors")),
		(errors) => count(errors ?? 0),
	),
	number("Median", (line) => most(line, (row) => num(row, "p50_us")) || undefined, micros),
	number("p99", (line) => most(line, p99) || undefined, micros),
	{ title: "Visibility", value: (line) => line.info.visibility, isWide: true },
];

function number<T>(
	title: string,
	value: (row: T) => number | undefined,
	show: (value: number | undefined) => string,
): Column<T> {
	return { title, value, cell: (row) => show(value(row)), isNumber: true };
}

export function Services(): JSX.Element {
	const hub = useHub();
	const { selected } = useRoute();
	const [showsOwn, setShowsOwn] = useState(false);
	const snapshots = [...hub.snapshots.values()];
	const lines = hub.services
		.filter((info) => showsOwn || !isOwn(info.name) || info.name === selected)
		.map((info) => ({ info, rows: rowsOf(info.name, snapshots) }));
	const opened = lines.find((line) => line.info.name === selected);
	return (
		<>
			<h1>Services</h1>
			<div class="split">
				<Table
					label="Services"
					columns={COLUMNS}
					rows={lines}
					rowKey={(line) => line.info.name}
					onOpen={(line) => select("services", line.info.name)}
					opened={selected}
					empty="No node serves anything: node.serve(...) adds a service."
				>
					<label class="inline">
						<input type="checkbox" checked={showsOwn} onChange={(event) => setShowsOwn(event.currentTarget.checked)} />
						Tidewire’s own
					</label>
				</Table>
				{opened && <ServiceDetail of={opened} snapshots={snapshots} />}
			</div>
		</>
	);
}

function ServiceDetail(props: { of: Line; snapshots: readonly Snapshot[] }): JSX.Element {
	const { info, rows } = props.of;
	const instances = info.details.map((detail) => ({
		...detail,
		row: rows.find((row) => text(row, "instance") === detail.id),
	}));
	type Instance = (typeof instances)[number];
	const columns: readonly Column<Instance>[] = [
		{ title: "Instance", value: (one) => one.id },
		{ title: "Node", value: (one) => one.node },
		{ title: "Version", value: (one) => one.version || "–" },
		number(
			"In flight",
			(one) => one.row && num(one.row, "in_flight"),
			(value) => (value === undefined ? "–" : count(value)),
		),
		number(
			"Waiting",
			(one) => one.row && num(one.row, "waiting"),
			(value) => (value === undefined ? "–" : count(value)),
		),
		number("Calls/s", (one) => one.row?.rate, rate),
		number("Failed", (one) => one.row && share(one.row), percent),
		number("Median", (one) => one.row && num(one.row, "p50_us"), micros),
		number("p99", (one) => one.row && p99(one.row), micros),
	];
	return (
		<Detail title={info.name} onClose={() => select("services")}>
			<Facts of={{ Description: info.description, Visibility: info.visibility, Version: versions(info) }} />
			<Table
				label="Instances"
				columns={columns}
				rows={instances}
				rowKey={(one) => one.id}
				empty="No instance is left."
			/>
			<h3>Methods</h3>
			{info.methods.map((method) => (
				<Method key={method.name} service={info} method={method} rows={rows} />
			))}
		</Detail>
	);
}

function Method(props: { service: ServiceInfo; method: MethodInfo; rows: readonly Row[] }): JSX.Element {
	const { service, method, rows } = props;
	const figures = rows
		.map((row) => (row.methods as Readonly<Record<string, Row>> | undefined)?.[method.name])
		.filter((row): row is Row => row !== undefined);
	const calls = figures.reduce((all, row) => all + num(row, "calls"), 0);
	const isPublic = (method.visibility || service.visibility) === "public";
	return (
		<details class="method">
			<summary>
				<code>{`${method.name}(${fieldsOf(method.parameters)
					.map((field) => field.name)
					.join(", ")})`}</code>
				{method.stream && <span class="dim"> stream</span>}
				{calls > 0 && (
					<span class="dim">
						{` ${count(calls)} calls, median ${micros(Math.max(...figures.map((row) => num(row, "p50_us"))))}, p99 ${micros(Math.max(...figures.map(p99)))}`}
					</span>
				)}
			</summary>
			{method.description && <p>{method.description}</p>}
			{isPublic && !method.stream && <CallForm service={service.name} method={method} />}
			{!isPublic && <p class="dim">It is private: programs call it, and the console does not.</p>}
			<details>
				<summary>Schema</summary>
				<pre>{pretty({ parameters: method.parameters, result: method.result })}</pre>
			</details>
		</details>
	);
}

/** Calls a public method with values of a form, which follows from its schema. */
function CallForm(props: { service: string; method: MethodInfo }): JSX.Element {
	const hub = useHub();
	const { service, method } = props;
	const fields = fieldsOf(method.parameters as Schema);
	const [texts, setTexts] = useState<Readonly<Record<string, string>>>({});
	const [answer, setAnswer] = useState<{ text: string; error: string; isBusy: boolean }>();
	const call = async (event: Event): Promise<void> => {
		event.preventDefault();
		setAnswer({ text: "", error: "", isBusy: true });
		try {
			const began = performance.now();
			const result = await hub.call(service, method.name, [valuesOf(fields, texts)]);
			const took = micros((performance.now() - began) * 1_000);
			setAnswer({ text: `${pretty(result)}\n\n${took}`, error: "", isBusy: false });
		} catch (error) {
			setAnswer({ text: "", error: reasonOf(error), isBusy: false });
		}
	};
	return (
		<form class="call" onSubmit={(event) => void call(event)}>
			<SchemaForm fields={fields} texts={texts} onChange={setTexts} />
			<button type="submit" class="primary" disabled={!hub.mayAct || answer?.isBusy}>
				Call {method.name}
			</button>
			{!hub.mayAct && <p class="dim">This console may only look.</p>}
			<div aria-live="polite">
				<Failure of={answer?.error ?? ""} />
				{answer?.text && <pre class="answer">{answer.text}</pre>}
			</div>
		</form>
	);
}

function rowsOf(service: string, snapshots: readonly Snapshot[]): Row[] {
	return snapshots.flatMap((snapshot) => snapshot.rows.services.filter((row) => text(row, "service") === service));
}

function versions(info: ServiceInfo): string {
	return [...new Set(info.details.map((one) => one.version).filter(Boolean))].join(", ");
}
