/** Services: instances with their rates, methods with their schemas, and calls by a form. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { MethodInfo, Schema, ServiceInfo } from "tidewire";
import { serviceSubject } from "tidewire/subjects";
import { count, micros, percent, pretty, rate, reasonOf } from "../format.js";
import { useHub } from "../hooks.js";
import { Detail, Failure, facts, lacks, stated, submits, TableView, useOwn } from "../parts.js";
import { fieldsOf, SchemaForm, valuesOf } from "../schema_form.js";
import { type NodeRow, num, p99, type Row, rowsOf, sum, text } from "../snapshots.js";
import { type Column, number, Table } from "../table.js";

/** A service with the counts of its instances on nodes that allow inspection. */
interface ServiceRow {
	readonly info: ServiceInfo;
	readonly rows: readonly Row[];
	/** Estimates of callers with the policy "lowest_latency". */
	readonly routes: readonly NodeRow[];
}

const most = (line: ServiceRow, of: (row: Row) => number): number => Math.max(0, ...line.rows.map(of));
const share = (row: Row): number | undefined =>
	num(row, "calls") > 0 ? num(row, "errors") / num(row, "calls") : undefined;

const versions = (info: ServiceInfo): string =>
	[...new Set(info.details.map((one) => one.version).filter(Boolean))].join(", ");

const COLUMNS: readonly Column<ServiceRow>[] = [
	{ title: "Service", value: (line) => line.info.name },
	{ title: "Instances", value: (line) => line.info.instances.length, isNumber: true },
	{ title: "Version", value: (line) => versions(line.info), isWide: true },
	{ title: "In flight", value: (line) => sum(line.rows, (row) => num(row, "in_flight")), isNumber: true },
	{ title: "Waiting", value: (line) => sum(line.rows, (row) => num(row, "waiting")), isNumber: true },
	number("Calls/s", (line) => (line.rows.length > 0 ? sum(line.rows, (row) => row.rate) : undefined), rate),
	number("Errors", (line) => sum(line.rows, (row) => num(row, "errors")), count),
	number("Median", (line) => most(line, (row) => num(row, "p50_us")) || undefined, micros),
	number("p99", (line) => most(line, p99) || undefined, micros),
	{ title: "Visibility", value: (line) => line.info.visibility, isWide: true },
];

export function Services(): JSX.Element {
	const hub = useHub();
	const snapshots = [...hub.snapshots.values()];
	const known = rowsOf(snapshots, "services").map((line) => line.row);
	const routes = rowsOf(snapshots, "routes");
	const isOf = (info: ServiceInfo, row: Row): boolean => text(row, "service") === info.name;
	const [listed, own] = useOwn(hub.services, (info) => info.name);
	return (
		<TableView
			label="Services"
			columns={COLUMNS}
			rows={listed?.map((info) => ({
				info,
				rows: known.filter((row) => isOf(info, row)),
				routes: routes.filter((line) => isOf(info, line.row)),
			}))}
			rowKey={(line) => line.info.name}
			empty="No node serves anything: node.serve(...) adds a service."
			tools={own}
			detail={(line) => <ServiceDetail of={line} />}
		/>
	);
}

function ServiceDetail(props: { of: ServiceRow }): JSX.Element {
	const { info, rows, routes } = props.of;
	const instances = info.details.map((detail) => ({
		...detail,
		row: rows.find((row) => text(row, "instance") === detail.id),
	}));
	type Instance = (typeof instances)[number];
	const columns: readonly Column<Instance>[] = [
		{ title: "Instance", value: (one) => one.id },
		{ title: "Node", value: (one) => one.node },
		{ title: "Version", value: (one) => one.version || "–" },
		number("In flight", (one) => one.row && num(one.row, "in_flight"), count),
		number("Waiting", (one) => one.row && num(one.row, "waiting"), count),
		number("Calls/s", (one) => one.row?.rate, rate),
		number("Failed", (one) => one.row && share(one.row), percent),
		number("Median", (one) => one.row && num(one.row, "p50_us"), micros),
		number("p99", (one) => one.row && p99(one.row), micros),
	];
	return (
		<Detail title={info.name}>
			{facts({ Description: info.description, Visibility: info.visibility, Version: versions(info) })}
			<Table
				label="Instances"
				columns={columns}
				rows={instances}
				rowKey={(one) => one.id}
				empty="No instance is left."
			/>
			{routes.length > 0 && (
				<Table
					label="Routes of callers"
					columns={ROUTES}
					rows={routes}
					rowKey={({ snapshot, row }) => `${snapshot.key} ${text(row, "name")} ${text(row, "instance")}`}
					empty=""
				/>
			)}
			<h3>Methods</h3>
			{info.methods.map((method) => (
				<Method key={method.name} service={info} method={method} rows={rows} />
			))}
		</Detail>
	);
}

const ROUTES: readonly Column<NodeRow>[] = [
	{ title: "Caller", value: (line) => line.snapshot.node },
	{ title: "Method", value: (line) => text(line.row, "method") },
	{ title: "Instance", value: (line) => text(line.row, "instance") },
	stated(
		(line) => text(line.row, "state"),
		(state) => (state === "ejected" ? "bad" : state === "starting" ? "warn" : "good"),
	),
	number("Expected", (line) => num(line.row, "expected_us") || undefined, micros),
	number("Error", (line) => (line.row.error === null ? undefined : num(line.row, "error")), percent),
	number("Samples", (line) => num(line.row, "handled"), count),
	number("In flight", (line) => num(line.row, "outstanding"), count),
	number("Failed", (line) => num(line.row, "failures"), percent),
	{ title: "Last choice", value: (line) => text(line.row, "reason"), isWide: true },
];

function Method(props: { service: ServiceInfo; method: MethodInfo; rows: readonly Row[] }): JSX.Element {
	const { service, method, rows } = props;
	const of = (row: Row): Readonly<Record<string, Row>> => (row.methods ?? {}) as Readonly<Record<string, Row>>;
	const figures = rows.map((row) => of(row)[method.name] as Row).filter(Boolean);
	const calls = sum(figures, (row) => num(row, "calls"));
	const worst = (of: (row: Row) => number): string => micros(Math.max(...figures.map(of)));
	const names = fieldsOf(method.parameters).map((field) => field.name);
	const isPublic = (method.visibility || service.visibility) === "public";
	return (
		<details class="method">
			<summary>
				<code>{`${method.name}(${names.join(", ")})`}</code>
				{method.stream && <span class="dim"> stream</span>}
				{calls > 0 && (
					<span class="dim">
						{` ${count(calls)} calls, median ${worst((row) => num(row, "p50_us"))}, p99 ${worst(p99)}`}
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
	const mayCall = hub.may(service, method.name);
	const fields = fieldsOf(method.parameters as Schema);
	const [texts, setTexts] = useState<Readonly<Record<string, string>>>({});
	const [answer, setAnswer] = useState<{ text?: string; error?: string; isBusy?: boolean }>({});
	const call = async (): Promise<void> => {
		setAnswer({ isBusy: true });
		try {
			const began = performance.now();
			const result = await hub.call(service, method.name, [valuesOf(fields, texts)]);
			const took = micros((performance.now() - began) * 1_000);
			setAnswer({ text: `${pretty(result)}\n\n${took}` });
		} catch (error) {
			setAnswer({ error: reasonOf(error) });
		}
	};
	return (
		<form class="call" onSubmit={submits(call)}>
			<SchemaForm fields={fields} texts={texts} onChange={setTexts} />
			<button type="submit" class="primary" disabled={!mayCall || answer.isBusy}>
				Call {method.name}
			</button>
			{!mayCall && (
				<p class="dim">{lacks(hub, "may not call it", `call = ["${serviceSubject(service, method.name)}"]`)}</p>
			)}
			<div aria-live="polite">
				<Failure of={answer.error ?? ""} />
				{answer.text && <pre class="answer">{answer.text}</pre>}
			</div>
		</form>
	);
}
