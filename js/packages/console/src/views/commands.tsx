/** Commands: stage, progress and attempts of each, its result or error; cancel and retry. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { CommandRun } from "tidewire";
import { isOwn } from "../attention.js";
import { orNone, take } from "../durable.js";
import { clock, since } from "../format.js";
import { hrefOf, SELDOM_MS, useHub, useQuery } from "../hooks.js";
import type { Hub } from "../hub.js";
import { Action, Detail, Failure, Fault, Fill, facts, State, TableView } from "../parts.js";
import { Payload } from "../payload.js";
import { num, type Row, text } from "../snapshots.js";
import { type Column, number } from "../table.js";
import { traceIdOf } from "../waterfall.js";
import { traceLink } from "./trace.js";

const COMMANDS = "tidewire-commands";
/** Commands that are listed at most, the oldest first. */
const LISTED_MAX = 1_000;
const STAGES = { queued: "", running: "good", succeeded: "good", failed: "bad", cancelled: "warn" } as const;
type Stage = keyof typeof STAGES;

async function commandsOf(hub: Hub, stage: string): Promise<readonly Row[]> {
	const service = hub.node?.client<"commands">(COMMANDS, { idempotent: true });
	return take(service?.commands(null, null, stage || null) as unknown as AsyncIterable<Row>, LISTED_MAX);
}

const runOf = async (hub: Hub, row: Row): Promise<CommandRun | undefined> =>
	(await hub.node?.commands())?.find(text(row, "id"));

const of = (row: Row, key: string): Date | undefined => (row[key] as Date | null) ?? undefined;
const done = (row: Row): string => `${Math.round(num(row, "fraction") * 100)} %`;
const attempts = (row: Row): string => `${num(row, "attempt")} of ${num(row, "retries") + 1}`;

function StageOf(props: { of: Row }): JSX.Element {
	const stage = text(props.of, "stage") as Stage;
	const isEnding = stage === "running" && props.of.is_cancelling === true;
	return <State is={isEnding ? "cancelling" : stage} level={isEnding ? "warn" : STAGES[stage]} />;
}

const COLUMNS: readonly Column<Row>[] = [
	{ title: "Command", value: (row) => `${row.service}.${row.command}` },
	{ title: "Stage", value: (row) => text(row, "stage"), cell: (row) => <StageOf of={row} /> },
	number(
		"Progress",
		(row) => num(row, "fraction"),
		(part = 0, row) => [<Fill key="fill" value={part} of={1} isProgress />, done(row)],
	),
	{ title: "Attempts", value: (row) => num(row, "attempt"), cell: attempts, isNumber: true },
	number(
		"Started",
		(row) => Number(of(row, "created")),
		(_, row) => `${since(of(row, "created"))} ago`,
	),
	{ title: "Id", value: (row) => text(row, "id"), isWide: true },
	{ title: "Key", value: (row) => text(row, "key") || "–", isWide: true },
	{ title: "Note", value: (row) => text(row, "error") || text(row, "note"), isWide: true },
];

export function Commands(): JSX.Element {
	const [stage, setStage] = useState("");
	const { data, error, reload } = useQuery(`commands ${stage}`, (hub) => orNone(commandsOf(hub, stage)), 4_000);
	const stages = (
		<select aria-label="Stage" onChange={(event) => setStage(event.currentTarget.value)}>
			<option value="">all stages</option>
			{Object.keys(STAGES).map((one) => (
				<option key={one}>{one}</option>
			))}
		</select>
	);
	return (
		<TableView
			label="Commands"
			columns={COLUMNS}
			rows={data ?? []}
			rowKey={(row) => text(row, "id")}
			error={error}
			note={data?.length === LISTED_MAX && `The oldest ${LISTED_MAX} are listed. Choose a stage for others.`}
			sortBy={4}
			empty={data ? "No command: client.method.start(...) starts one, at a hub with data." : "No answer yet."}
			tools={stages}
			detail={(row) => <CommandDetail of={row} reload={reload} />}
		/>
	);
}

function CommandDetail(props: { of: Row; reload: () => void }): JSX.Element {
	const hub = useHub();
	const { of: row } = props;
	const [id, service, stage] = [text(row, "id"), text(row, "service"), text(row, "stage")];
	const isOver = stage !== "queued" && stage !== "running";
	const acted = async (call: "cancel" | "retry", outcome: string): Promise<string> => {
		const isDone = await (await runOf(hub, row))?.[call]();
		props.reload();
		return isDone ? `${id} ${outcome}` : `${id}: nothing to ${call}`;
	};
	return (
		<Detail title={`${service}.${row.command}`}>
			<Fault error={text(row, "error")} traceback={text(row, "traceback")} />
			{facts({
				Id: id,
				Service: isOwn(service) ? service : <a href={hrefOf("services", service)}>{service}</a>,
				Stage: <StageOf of={row} />,
				Progress: `${done(row)} ${text(row, "note")}`,
				Attempts: attempts(row),
				Key: text(row, "key"),
				Priority: text(row, "priority"),
				"Started by": text(row, "caller"),
				Worker: text(row, "worker"),
				Created: clock(of(row, "created")),
				Began: clock(of(row, "began")),
				Ended: clock(of(row, "ended")),
				Trace: traceLink(traceIdOf(text(row, "trace"))),
			})}
			<div class="buttons">
				<Action
					label={`${isOver ? "Retry" : "Cancel"} ${id}`}
					ask={
						isOver ? "It begins anew, with all its attempts." : "It ends at once if it waits, else with its handler."
					}
					isDanger={!isOver}
					disabled={stage === "succeeded"}
					by={[COMMANDS, isOver ? "retry" : "cancel"]}
					run={isOver ? () => acted("retry", "is queued") : () => acted("cancel", "is cancelled")}
				/>
			</div>
			{stage === "succeeded" && <Result of={row} />}
		</Detail>
	);
}

function Result(props: { of: Row }): JSX.Element {
	const { of: row } = props;
	const mayRead = useHub().may(COMMANDS, "state");
	const ask = async (hub: Hub): Promise<unknown[]> => [mayRead && (await (await runOf(hub, row))?.result())];
	const { data, error } = useQuery(`result ${row.id} ${row.ended}`, ask, SELDOM_MS);
	return (
		<>
			<h3>Result</h3>
			<Failure of={error} />
			{data && <Payload label="Result" of={() => data[0]} />}
		</>
	);
}
