/** Streams: depth, rate and retention of each, its consumers, and its events with payloads. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { ReadOptions, StreamEvent } from "tidewire";
import { ask, change, take, timeOf, useStreams } from "../durable.js";
import { age, bytes, clock, count, counted, rate, since } from "../format.js";
import { hrefOf, SELDOM_MS, useHub, useQuery, useRoute } from "../hooks.js";
import { type Hub, STREAMS } from "../hub.js";
import { Action, Detail, Failure, facts, filled, InnerTable, stated, TableView, useOwnBox } from "../parts.js";
import { Payload } from "../payload.js";
import { num, type Row, text } from "../snapshots.js";
import { type Column, number, Search, useRowsQuery } from "../table.js";
import { traceIdOf } from "../waterfall.js";
import { traceLink } from "./trace.js";

const EVENTS_MAX = 50;

const counts = (title: string, key: string): Column<Row> => number(title, (row) => num(row, key), count);
const aged = (title: string, key: string): Column<Row> =>
	number(
		title,
		(row) => -num(row, key),
		(_, row) => since(timeOf(row, key)),
	);
const isPaused = (row: Row): boolean => row.paused_until_us !== null;

const COLUMNS: readonly Column<Row>[] = [
	{ title: "Stream", value: (row) => text(row, "name"), field: "name" },
	{ ...filled("Events", (row: Row) => [num(row, "messages"), num(row, "max_messages")], count), field: "messages" },
	{ ...filled("Bytes", (row: Row) => [num(row, "bytes"), num(row, "max_bytes")], bytes), field: "bytes" },
	number("Per second", (row) => row.rate, rate),
	{ title: "Retention", value: retention, isWide: true },
	{ ...counts("Consumers", "consumers"), field: "consumers" },
	{ ...counts("Dead letters", "dead"), field: "dead" },
	{ ...aged("Newest", "last_time_us"), field: "-last_time_us" },
];

function retention(row: Row): string {
	const limits = [
		num(row, "max_age_us") > 0 ? age(num(row, "max_age_us") / 1e6) : "",
		num(row, "max_messages") > 0 ? counted(num(row, "max_messages"), "event") : "",
		num(row, "max_bytes") > 0 ? bytes(num(row, "max_bytes")) : "",
	].filter(Boolean);
	const full = text(row, "full") === "drop_old" ? "drops the oldest" : "refuses";
	const compact = text(row, "compact") ? `newest of each ${text(row, "compact")}` : "";
	return [limits.length > 0 ? `${limits.join(", ")}; ${full}` : "", compact].filter(Boolean).join("; ") || "keeps all";
}

export function Streams(): JSX.Element {
	const { selected } = useRoute();
	const [query, change] = useRowsQuery("name", false);
	const [hasOwn, own] = useOwnBox();
	const { data, error, reload } = useStreams(query, hasOwn, selected);
	return (
		<TableView
			label="Streams"
			columns={COLUMNS}
			rows={data?.rows}
			rowKey={(row) => text(row, "name")}
			error={error}
			isEven
			total={data?.total}
			found={data?.found}
			query={query}
			onQuery={change}
			empty="No stream: node.stream(...) makes one, at a hub with a data folder (tidewire up --data DIR)."
			tools={own}
			detail={(row) => <StreamDetail of={row} reload={reload} />}
		/>
	);
}

function StreamDetail(props: { of: Row; reload: () => void }): JSX.Element {
	const hub = useHub();
	const { of: row, reload } = props;
	const [name, dead] = [text(row, "name"), num(row, "dead")];
	const purge = async (): Promise<string> => {
		const removed = await change<number>(hub, "purge", name, null, null, null);
		reload();
		return `${counted(removed, "event")} removed from ${name}`;
	};
	return (
		<Detail title={name}>
			{facts({
				Subjects: (row.subjects as readonly string[]).join(" "),
				Events: `${count(num(row, "messages"))}, sequences ${num(row, "first")} to ${num(row, "last")}`,
				Bytes: bytes(num(row, "bytes")),
				"Per second": rate(row.rate),
				Retention: retention(row),
				"Ids remembered": age(num(row, "dedupe_us") / 1e6),
				Delayed: count(num(row, "delayed")),
				"Dead letters": dead > 0 ? <a href={hrefOf("dead-letters", name)}>{count(dead)}</a> : "0",
				Oldest: clock(timeOf(row, "first_time_us")),
				Newest: clock(timeOf(row, "last_time_us")),
			})}
			<div class="buttons">
				<Action
					label={`Purge ${name}`}
					ask={`All ${counted(num(row, "messages"), "event")} are removed, for every consumer. Nothing brings them back.`}
					type={name}
					isDanger
					run={purge}
				/>
			</div>
			<Consumers stream={name} />
			<Events stream={row} />
		</Detail>
	);
}

const CONSUMERS: readonly Column<Row>[] = [
	{ title: "Consumer", value: (row) => text(row, "name") },
	stated(
		(row) => (isPaused(row) ? "paused" : "delivers"),
		(_, row) => (isPaused(row) ? "warn" : "good"),
	),
	counts("Lag", "lag"),
	counts("Pending", "in_flight"),
	counts("Waiting", "waiting"),
	counts("Redelivered", "redelivered"),
	counts("Dead", "dead"),
	aged("Oldest", "oldest_time_us"),
];

function Consumers(props: { stream: string }): JSX.Element {
	const hub = useHub();
	const { stream } = props;
	const { data, error, reload } = useQuery(`consumers ${stream}`, () =>
		ask<readonly Row[]>(hub, "list_consumers", stream),
	);
	const acted = async (row: Row, call: string, outcome: string, ...args: readonly unknown[]): Promise<string> => {
		await change(hub, call, stream, row.name, ...args);
		reload();
		return `${row.name} ${outcome}`;
	};
	const seek = (row: Row, start: number): Promise<string> =>
		acted(row, "seek", `goes on at ${start}`, ["sequence", start]);
	const detail = (row: Row): JSX.Element => (
		<>
			{facts({
				Filter: (row.filter as readonly string[]).join(" ") || "all subjects",
				Redelivered: count(num(row, "redelivered")),
				Oldest: clock(timeOf(row, "oldest_time_us")),
				"Acked to": count(num(row, "acked_to")),
				"Ack wait": age(num(row, "ack_wait_us") / 1e6),
				"Most deliveries": num(row, "max_deliver") || "no limit",
				Order: text(row, "order") === "key" ? "one event of a key at a time" : "none",
			})}
			<div class="buttons">
				{isPaused(row) ? (
					<Action label={`Resume ${row.name}`} run={() => acted(row, "resume", "delivers again")} />
				) : (
					<Action
						label={`Pause ${row.name}`}
						ask="It delivers nothing, to nobody, until it is resumed."
						run={() => acted(row, "pause", "is paused", null)}
					/>
				)}
				<Action
					label={`Replay to ${row.name}`}
					ask="It goes on at this sequence, and forgets pending deliveries: events may come again."
					run={(fields) => seek(row, Number(fields.get("sequence")))}
				>
					<label>
						Sequence <input name="sequence" type="number" min="0" required defaultValue="1" />
					</label>
				</Action>
			</div>
		</>
	);
	return (
		<>
			<h3>Consumers</h3>
			<Failure of={error} />
			{data && (
				<InnerTable
					label="Consumers"
					noun="Consumer"
					columns={CONSUMERS}
					rows={data}
					rowKey={(one) => text(one, "name")}
					sortBy={2}
					empty="Nobody consumes this stream."
					detail={detail}
				/>
			)}
		</>
	);
}

const EVENTS: readonly Column<StreamEvent>[] = [
	{ title: "Sequence", value: (event) => event.sequence, isNumber: true },
	{ title: "Age", value: (event) => -event.time.getTime(), cell: (event) => since(event.time), isNumber: true },
	{ title: "Subject", value: (event) => event.subject },
	number("Size", (event) => event.payload.length || undefined, bytes),
	{ title: "Key", value: (event) => event.key ?? "–", isWide: true },
];

/** The newest events, or those from a sequence or time on, of all subjects or of some. */
function Events(props: { stream: Row }): JSX.Element {
	const [name, first, last] = [text(props.stream, "name"), num(props.stream, "first"), num(props.stream, "last")];
	const [from, setFrom] = useState("");
	const [filter, setFilter] = useState("");
	const fetchEvents = async (hub: Hub): Promise<StreamEvent[]> => {
		const start = from !== "" ? placeOf(from) : filter !== "" ? "all" : Math.max(1, last - EVENTS_MAX + 1);
		return eventsOf(hub, name, { start, filter: filter || undefined });
	};
	const { data, error } = useQuery(`events ${name} ${from} ${filter}`, fetchEvents, SELDOM_MS, `${first} ${last}`);
	return (
		<>
			<h3>Events</h3>
			<Failure of={error} />
			<InnerTable
				label="Events"
				noun="Event"
				columns={EVENTS}
				rows={data ?? []}
				rowKey={(event) => String(event.sequence)}
				detail={(event) => <EventFacts of={event} />}
				empty={data ? "The stream has no such event." : "No answer yet."}
				tools={[
					<Search
						key="from"
						label="From sequence or time"
						placeholder="From 120, or 2026-05-30 12:00"
						onChange={setFrom}
					/>,
					<Search key="filter" label="Subjects" placeholder="Subjects, such as orders.*" onChange={setFilter} />,
				]}
			/>
		</>
	);
}

/** An event with its payload. */
export function EventFacts(props: { of: StreamEvent }): JSX.Element {
	const { subject, key, id, headers, time, sequence } = props.of;
	const list = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
	const of = { Sequence: sequence, Subject: subject, Key: key, Id: id, Stored: clock(time), Headers: list.join("; ") };
	return (
		<>
			{facts({ ...of, Trace: traceLink(traceIdOf(headers.traceparent ?? "")) })}
			<Payload label={`Payload of event ${sequence}`} of={() => props.of.value} />
		</>
	);
}

/** So many events of a stream at most. */
export async function eventsOf(hub: Hub, name: string, which: ReadOptions): Promise<StreamEvent[]> {
	return take((await hub.node?.stream(name))?.read({ ...which, payloads: hub.may(STREAMS, "read") }), EVENTS_MAX);
}

function placeOf(from: string): number | Date {
	const place = /^\d+$/.test(from) ? Number(from) : new Date(from);
	if (Number.isNaN(Number(place))) {
		throw new Error(`from: ${from} is neither a sequence nor a time: give 120, or 2026-05-30 12:00`);
	}
	return place;
}
