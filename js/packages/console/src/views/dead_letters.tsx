/** Dead letters of all consumers, grouped by error: requeue or drop one, some, or a group. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { DeadEvent } from "tidewire";
import { ask, change, listDead } from "../durable.js";
import { clock, count, counted, since } from "../format.js";
import { hrefOf, SELDOM_MS, useHub, useQuery } from "../hooks.js";
import type { Hub } from "../hub.js";
import { Action, Detail, Failure, Fault, facts, InnerTable, TableView } from "../parts.js";
import { num, type Row, sum, text } from "../snapshots.js";
import { type Column, number } from "../table.js";
import { EventFacts, eventsOf } from "./streams.js";

/** Letters that are read at most, and how many at once. */
const LETTERS_MAX = 1_000;
const PAGE = 100;

type Letter = Omit<DeadEvent, "event"> & { readonly subject: string };

/** Letters of one consumer whose errors differ in numbers and quoted text alone. */
interface Group {
	readonly key: string;
	readonly stream: string;
	readonly consumer: string;
	readonly error: string;
	readonly letters: Letter[];
}

type RawLetter = [event: [subject: string] | null, number, number, timeUs: number, string, string, string];

function letterOf([event, sequence, deliveries, timeUs, reason, error, traceback]: RawLetter): Letter {
	const [time, subject] = [new Date(timeUs / 1_000), event?.[0] ?? "no longer in the stream"];
	return { sequence, deliveries, time, reason, error, traceback, subject };
}

async function groupsOf(hub: Hub, streams: readonly Row[]): Promise<readonly Group[]> {
	const groups = new Map<string, Group>();
	let left = LETTERS_MAX;
	for (const stream of streams.map((row) => text(row, "name"))) {
		const consumers = await ask<readonly Row[]>(hub, "list_consumers", stream);
		for (const consumer of consumers.filter((row) => num(row, "dead") > 0).map((row) => text(row, "name"))) {
			for (let [start, isMore] = [0, true]; isMore && left > 0; ) {
				const page = await ask<RawLetter[]>(hub, "list_dead", stream, consumer, start, Math.min(PAGE, left));
				for (const letter of page.map(letterOf)) {
					const error = (letter.error || letter.reason).replace(/'[^']*'|"[^"]*"|\d+/g, "…");
					const key = `${stream}/${consumer}/${digest(error)}`;
					groups.set(key, groups.get(key) ?? { key, stream, consumer, error, letters: [] });
					groups.get(key)?.letters.push(letter);
					start = letter.sequence + 1;
				}
				left -= page.length;
				isMore = page.length === PAGE;
			}
		}
	}
	return [...groups.values()];
}

/** Stands for an error in the address, which shows no text of it. */
function digest(error: string): string {
	return ([...error].reduce((sum, letter) => (Math.imul(sum, 31) + letter.charCodeAt(0)) | 0, 0) >>> 0).toString(36);
}

const newest = (group: Group): Date => new Date(Math.max(...group.letters.map((one) => one.time.getTime())));

const COLUMNS: readonly Column<Group>[] = [
	{ title: "Error", value: (group) => group.error },
	number("Letters", (group) => group.letters.length, count),
	{ title: "Stream", value: (group) => group.stream },
	{ title: "Consumer", value: (group) => group.consumer },
	{ title: "Newest", value: (group) => newest(group).getTime(), cell: (group) => since(newest(group)), isNumber: true },
];

export function DeadLetters(): JSX.Element {
	const listed = useQuery("dead", listDead);
	const version = JSON.stringify(listed.data?.map((row) => [row.name, row.dead]) ?? "");
	const read = (hub: Hub): Promise<readonly Group[]> => groupsOf(hub, listed.data ?? []);
	const { data, error, reload } = useQuery(`dead letters ${listed.data !== undefined}`, read, SELDOM_MS, version);
	const dead = sum(listed.data, (row) => num(row, "dead"));
	return (
		<TableView
			label="Dead letters"
			columns={COLUMNS}
			rows={listed.data && data}
			rowKey={(group) => group.key}
			alias={(group) => group.stream}
			error={error || listed.error}
			note={dead > LETTERS_MAX && `The first ${count(LETTERS_MAX)} of ${count(dead)} are listed.`}
			isEven
			sortBy={1}
			empty="No dead letters: no consumer has given up an event."
			detail={(group) => <GroupDetail of={group} acted={reload} />}
		/>
	);
}

const LETTERS: readonly Column<Letter>[] = [
	{ title: "Sequence", value: (letter) => letter.sequence, isNumber: true },
	{ title: "Subject", value: (letter) => letter.subject },
	{ title: "Deliveries", value: (letter) => letter.deliveries, isNumber: true },
	{ title: "Given up", value: (letter) => letter.time.getTime(), cell: (letter) => since(letter.time), isNumber: true },
	{ title: "Reason", value: (letter) => letter.reason, isWide: true },
];

function GroupDetail(props: { of: Group; acted: () => void }): JSX.Element {
	const hub = useHub();
	const { stream, consumer, error, letters } = props.of;
	const [marked, setMarked] = useState<ReadonlySet<string>>(new Set());
	const chosen = letters.map((one) => one.sequence).filter((one) => marked.size === 0 || marked.has(String(one)));
	const selection = counted(chosen.length, "dead letter");
	const act = async (call: "requeue" | "drop_dead", done: string): Promise<string> => {
		const ended = await change<number>(hub, call, stream, consumer, chosen);
		setMarked(new Set());
		props.acted();
		return `${counted(ended, "dead letter")} of ${consumer} ${done}`;
	};
	return (
		<Detail title={error}>
			{facts({ Stream: <a href={hrefOf("streams", stream)}>{stream}</a>, Consumer: consumer })}
			<div class="buttons">
				<Action
					label={`Requeue ${selection}`}
					ask="The consumer gets them again, as if for the first time."
					run={() => act("requeue", "requeued")}
				/>
				<Action
					label={`Drop ${selection}`}
					ask="The consumer never gets them again. Their events stay in the stream."
					isDanger
					run={() => act("drop_dead", "dropped")}
				/>
			</div>
			<InnerTable
				label="Letters"
				noun="Letter"
				columns={LETTERS}
				rows={letters}
				rowKey={(one) => String(one.sequence)}
				marked={marked}
				onMark={setMarked}
				empty="No letter is left."
				detail={(one) => <LetterDetail of={one} stream={stream} />}
			/>
		</Detail>
	);
}

function LetterDetail(props: { of: Letter; stream: string }): JSX.Element {
	const { sequence, reason, error: fault, traceback, deliveries, time } = props.of;
	const which = { start: sequence, stop: sequence };
	const { data, error } = useQuery(`event ${sequence}`, (hub) => eventsOf(hub, props.stream, which), SELDOM_MS);
	const event = data?.find((one) => one.sequence === sequence);
	return (
		<>
			<Fault error={fault || reason} traceback={traceback} />
			{facts({ Reason: reason, Deliveries: deliveries, "Given up": clock(time) })}
			<Failure of={error} />
			{event && <EventFacts of={event} />}
			{data && !event && <p class="dim">The stream no longer has the event.</p>}
		</>
	);
}
