/** One trace: its calls, messages and events over all nodes, as a waterfall. */
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { INSPECTION } from "tidewire/subjects";
import { clock, counted, micros, reasonOf } from "../format.js";
import { hrefOf, SELDOM_MS, select, useHub, useQuery, useRoute } from "../hooks.js";
import type { Hub } from "../hub.js";
import { Failure, facts, InnerTable, lacks, State, submits } from "../parts.js";
import { num } from "../snapshots.js";
import { type Column, number } from "../table.js";
import { type SpanRow, type TraceAnswer, traceIdOf, type Waterfall, waterfallOf } from "../waterfall.js";

const ASK_MS = 3_000;
/** Nodes that are asked at once. */
const ROUND_MAX = 100;
/** Steps to the right of a deep span at most. */
const STEPS_MAX = 12;

interface Gathered {
	readonly answers: readonly TraceAnswer[];
	/** Nodes that did not answer, with the reason. */
	readonly silent: readonly string[];
}

async function gather(hub: Hub, id: string): Promise<Gathered> {
	const keys = hub.services.find((one) => one.name === INSPECTION)?.instances ?? [];
	const [answers, silent]: [TraceAnswer[], string[]] = [[], []];
	const ask = async (instance: string): Promise<void> => {
		try {
			answers.push((await hub.call(INSPECTION, "trace", [id], { instance, timeout: ASK_MS })) as TraceAnswer);
		} catch (error) {
			silent.push(`${hub.snapshots.get(instance)?.node ?? instance}: ${reasonOf(error)}`);
		}
	};
	for (let from = 0; from < keys.length; from += ROUND_MAX) {
		await Promise.all(keys.slice(from, from + ROUND_MAX).map(ask));
	}
	return { answers, silent };
}

/** The place of a trace in the page, from the headers of an event; undefined without one. */
export function traceLink(id: string | undefined): JSX.Element | undefined {
	return id === undefined ? undefined : <a href={hrefOf("trace", id)}>{id}</a>;
}

export function Trace(): JSX.Element {
	const hub = useHub();
	const { selected } = useRoute();
	const id = traceIdOf(selected);
	const mayLook = hub.may(INSPECTION, "trace");
	return (
		<>
			<h1>Trace</h1>
			<IdForm key={selected} id={selected} />
			{!mayLook && <p class="dim">{lacks(hub, "may not look at traces", "inspect = true")}</p>}
			{id !== undefined && mayLook && <Gathering key={id} id={id} />}
			{selected === "" && (
				<p class="dim">
					The id of a trace is in the log of a node as trace_id, in the details of an event, a dead letter and a
					command, and in the header traceparent.
				</p>
			)}
		</>
	);
}

function IdForm(props: { id: string }): JSX.Element {
	const [error, setError] = useState(props.id === "" || traceIdOf(props.id) ? "" : wrong(props.id));
	const show = (fields: FormData): void => {
		const input = String(fields.get("id"));
		const id = traceIdOf(input);
		setError(id === undefined ? wrong(input) : "");
		id !== undefined && select("trace", id);
	};
	return (
		<>
			<form class="trace-id" onSubmit={submits(show)}>
				<label>
					Trace id
					<input name="id" type="search" defaultValue={props.id} required autocomplete="off" spellcheck={false} />
				</label>
				<button type="submit" class="primary">
					Show
				</button>
			</form>
			<Failure of={error} />
		</>
	);
}

const wrong = (input: string): string =>
	`trace id: “${input.slice(0, 64)}” is not allowed: give 32 hex digits, or a traceparent`;

function Gathering(props: { id: string }): JSX.Element {
	const { id } = props;
	const hub = useHub();
	const every = hub.snapshots.size > ROUND_MAX ? SELDOM_MS : 4_000;
	const version = String(hub.services.find((one) => one.name === INSPECTION)?.instances.length ?? "");
	const { data, error } = useQuery(`trace ${id}`, (source) => gather(source, id), every, version);
	const found = useMemo(() => data && waterfallOf(data.answers), [data]);
	return (
		<>
			<Failure of={error || (data?.silent.length ? `Without an answer: ${data.silent.slice(0, 5).join("; ")}` : "")} />
			{data && found ? <Spans of={found} from={data.answers} /> : <p class="dim">The nodes are asked …</p>}
		</>
	);
}

function Spans(props: { of: Waterfall; from: readonly TraceAnswer[] }): JSX.Element {
	const { lines, total, moves, orphans } = props.of;
	const storing = props.from.filter((one) => num(one, "stores") > 0).length;
	const cut = props.from.filter((one) => num(one, "spans_count") > one.spans.length);
	const nodes = new Set(lines.map((line) => line.node)).size;
	const columns: readonly Column<SpanRow>[] = [
		{ title: "Span", value: (line) => line.at, text: searched, cell: (line) => <Name of={line} /> },
		{ title: "Time line", value: (line) => line.start, cell: (line) => <Bar of={line} total={total} /> },
		number(
			"Took",
			(line) => line.duration,
			(took) => (took === undefined ? "runs" : micros(took)),
		),
		{ title: "Node", value: (line) => line.node },
		number("Start", (line) => line.start, micros),
	];
	const hosts = moves.map(({ host, by }) => `${host} by ${by > 0 ? "+" : "−"}${micros(Math.abs(by))}`);
	return (
		<>
			{lines.length > 0 && (
				<p class="dim">
					{`${counted(lines.length, "span")} on ${counted(nodes, "node")}, ${micros(total)}. `}
					{orphans > 0 && `The parents of ${counted(orphans, "span")} are not stored. `}
					Each host has its own clock: a call contains the call that it caused, and an event is handled after it was
					published. A host whose times say otherwise is moved by the least that makes them fit.{" "}
					{hosts.length > 0 ? `Moved: ${hosts.join(", ")}.` : "No host was moved."}
					{cut.length > 0 && ` Of ${counted(cut.length, "node")} only the first spans are listed.`}
				</p>
			)}
			<InnerTable
				label="Spans"
				noun="Span"
				columns={columns}
				rows={lines}
				rowKey={(line) => line.id}
				empty={
					storing > 0
						? `None of the ${counted(storing, "node")} that store spans has this trace: it is older than their newest spans, or has another id.`
						: "No node stores spans: start one with tw.Node(inspect=True, spans=2000), or with TIDEWIRE_SPANS=2000."
				}
				detail={(line) => <SpanDetail of={line} />}
			/>
		</>
	);
}

const searched = (line: SpanRow): string => `${line.kind} ${line.name} ${line.error}`;

function Name(props: { of: SpanRow }): JSX.Element {
	const { name, kind, depth, error } = props.of;
	return (
		<span class="span" style={{ paddingLeft: `${Math.min(depth, STEPS_MAX) * 0.9}rem` }}>
			{error === "" ? name : <State is={name} level="bad" />} <span class="dim">{kind}</span>
		</span>
	);
}

function Bar(props: { of: SpanRow; total: number }): JSX.Element {
	const { start, duration, error, kind } = props.of;
	const share = (micros: number): number => (props.total > 0 ? (micros / props.total) * 100 : 0);
	const width = duration === undefined ? 100 - share(start) : share(duration);
	const style = { marginLeft: `${share(start)}%`, width: `max(2px, ${width}%)` };
	const level = error ? " bad" : kind === "client" || kind === "producer" ? " sent" : "";
	return (
		<div class="bar" aria-hidden="true">
			<div class={`part${level}${duration === undefined ? " open" : ""}`} style={style} />
		</div>
	);
}

function SpanDetail(props: { of: SpanRow }): JSX.Element {
	const { id, parent, name, kind, service, method, node, host, instance, start, duration, error, clock: at } = props.of;
	return (
		<>
			{error && <p class="failure">{error}</p>}
			{facts({
				Span: name,
				Kind: kind,
				Service: service && <a href={hrefOf("services", service)}>{service}</a>,
				Method: method,
				Node: node,
				Instance: instance,
				Host: host,
				Began: `${clock(new Date(at / 1_000))} on the clock of ${host}`,
				Start: `${micros(start)} after the first span`,
				Took: duration === undefined ? "it still runs, or its process has ended" : micros(duration),
				Id: id,
				Parent: parent,
			})}
		</>
	);
}
