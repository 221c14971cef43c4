/** Key-value: buckets with settings and sizes, their keys, and the value and history of each. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Bucket, type BucketInfo, type Entry, typeOf } from "tidewire";
import { ask, orNone } from "../durable.js";
import { age, bytes, clock, count, counted, since } from "../format.js";
import { SELDOM_MS, useHub, useQuery } from "../hooks.js";
import { type Hub, STREAMS } from "../hub.js";
import { Action, Detail, Failure, facts, filled, InnerTable, stated, TableView, useOwn } from "../parts.js";
import { Payload } from "../payload.js";
import { jsonOf } from "../schema_form.js";
import { type Column, number, Search } from "../table.js";

/** Keys of one page. */
const KEYS_MAX = 100;

const historyOf = (one: BucketInfo): string => `${counted(one.history, "entry", "entries")} of a key`;
const ttlOf = (one: BucketInfo): string => (one.ttl === undefined ? "never" : `after ${age(one.ttl / 1_000)}`);

const COLUMNS: readonly Column<BucketInfo>[] = [
	{ title: "Bucket", value: (one) => one.name },
	number("Keys", (one) => one.keys, count),
	filled("Bytes", (one) => [one.bytes, one.maxBytes], bytes),
	number("Revision", (one) => one.revision, count),
	{ title: "History", value: (one) => one.history, cell: historyOf, isWide: true },
	{ title: "Entries go", value: (one) => one.ttl ?? Number.POSITIVE_INFINITY, cell: ttlOf, isWide: true },
];

const bucketOf = async (hub: Hub, name: string): Promise<Bucket> => (await hub.node?.kv(name)) as Bucket;

const valueFrom = (fields: FormData): unknown => jsonOf("value", String(fields.get("value")));

export function Buckets(): JSX.Element {
	const { data, error, reload } = useQuery("buckets", (hub) => orNone(hub.node?.buckets() ?? Promise.resolve([])));
	const [listed, own] = useOwn(data, (one) => one.name);
	return (
		<TableView
			label="Key-value"
			columns={COLUMNS}
			rows={listed}
			tools={own}
			rowKey={(one) => one.name}
			error={error}
			isEven
			empty="No bucket: node.kv(...) makes one, at a hub with a data folder (tidewire up --data DIR)."
			detail={(one) => <BucketDetail of={one} reload={reload} />}
		/>
	);
}

/** One page of the keys that match a pattern, in their order. */
function BucketDetail(props: { of: BucketInfo; reload: () => void }): JSX.Element {
	const hub = useHub();
	const { of: info, reload } = props;
	const { name, revision } = info;
	const [filter, setFilter] = useState(">");
	const [after, setAfter] = useState("");
	const fetchKeys = (): Promise<readonly string[]> => ask(hub, "keys", name, filter, after || null, KEYS_MAX);
	const { data, error } = useQuery(`keys ${name} ${filter} ${after}`, fetchKeys, SELDOM_MS, String(revision));
	const create = async (fields: FormData): Promise<string> => {
		const key = String(fields.get("key"));
		await (await bucketOf(hub, name)).create(key, valueFrom(fields));
		reload();
		return `${key} put into ${name}`;
	};
	const matching = (text: string): void => {
		setFilter(text || ">");
		setAfter("");
	};
	const page = (title: string, start: string): JSX.Element => (
		<button key={title} type="button" onClick={() => setAfter(start)}>
			{title} {KEYS_MAX}
		</button>
	);
	return (
		<Detail title={name}>
			{facts({
				Keys: count(info.keys),
				Bytes: `${bytes(info.bytes)}${info.maxBytes ? ` of ${bytes(info.maxBytes)}` : ""}`,
				History: historyOf(info),
				"Entries go": ttlOf(info),
				Revision: count(revision),
			})}
			<div class="buttons">
				<Action label={`Put a key into ${name}`} ask="A key that has a value is refused." run={create}>
					<label>
						Key <input name="key" required autocomplete="off" />
					</label>
					<ValueField />
				</Action>
			</div>
			<h3>Keys</h3>
			<Failure of={error} />
			<InnerTable
				label="Keys"
				noun="Key"
				columns={[{ title: "Key", value: (key: string) => key }]}
				rows={data ?? []}
				rowKey={(key) => key}
				total={filter === ">" ? info.keys : 0}
				empty={data ? "No key matches." : "No answer yet."}
				tools={[
					<Search key="matching" label="Keys that match" placeholder="Such as limits.*" onChange={matching} />,
					after !== "" && page("First", ""),
					data?.length === KEYS_MAX && page("Next", data.at(-1) ?? ""),
				]}
				detail={(key) => <KeyDetail bucket={name} of={key} version={revision} reload={reload} />}
			/>
		</Detail>
	);
}

const ENTRIES: readonly Column<Entry>[] = [
	{ title: "Revision", value: (one) => one.revision, isNumber: true },
	stated(
		(one) => (one.isDeleted ? "deleted" : "value"),
		(state) => (state === "deleted" ? "warn" : ""),
	),
	{ title: "Age", value: (one) => -one.time.getTime(), cell: (one) => since(one.time), isNumber: true },
];

function KeyDetail(props: { bucket: string; of: string; version: number; reload: () => void }): JSX.Element {
	const hub = useHub();
	const { bucket, of: key, version, reload } = props;
	const mayRead = hub.may(STREAMS, "read");
	const fetchHistory = async (): Promise<Entry[]> => (mayRead ? (await bucketOf(hub, bucket)).history(key) : []);
	const { data, error } = useQuery(`key ${bucket} ${key}`, fetchHistory, SELDOM_MS, String(version));
	if (!mayRead) {
		return <Payload label={key} of={() => key} />;
	}
	const newest = data?.at(-1);
	const revision = newest?.revision ?? 0;
	const act = async (outcome: string, run: (of: Bucket) => Promise<number>): Promise<string> => {
		const newRevision = await run(await bucketOf(hub, bucket));
		reload();
		return `${key} ${outcome}, revision ${newRevision}`;
	};
	return (
		<>
			<Failure of={error} />
			{facts({ Key: key, Revision: count(revision), Written: clock(newest?.time) })}
			{newest && <Payload label={`Value of ${key}`} of={() => newest.value} />}
			<div class="buttons">
				<Action
					label={`Put ${key}`}
					ask={`The new value takes the place of revision ${revision}. It is refused if another came first.`}
					run={(fields) => act("put", (one) => one.update(key, valueFrom(fields), { revision }))}
				>
					<ValueField of={newest} />
				</Action>
				<Action
					label={`Delete ${key}`}
					ask="The key has no value then. Its history stays."
					isDanger
					run={() => act("deleted", (one) => one.delete(key, { revision }))}
				/>
			</div>
			<InnerTable
				label="History"
				noun="Revision"
				columns={ENTRIES}
				rows={data ?? []}
				rowKey={(one) => String(one.revision)}
				empty="No entry is left."
				detail={(one) => <Payload label={`Value of revision ${one.revision}`} of={() => one.value ?? "deleted"} />}
			/>
		</>
	);
}

function ValueField(props: { of?: Entry | undefined }): JSX.Element {
	const value = props.of?.value;
	return (
		<label>
			Value, as JSON{" "}
			<textarea
				name="value"
				rows={5}
				required
				defaultValue={isPlain(value) ? JSON.stringify(value, undefined, 2) : ""}
			/>
		</label>
	);
}

/** True if JSON has the same value: not for bytes, tuples and records. */
function isPlain(value: unknown): boolean {
	if (typeof value !== "object" || value === null || typeOf(value) !== undefined) {
		return value === null || typeof value === "string" || typeof value === "boolean" || Number.isFinite(value);
	}
	const isKnown = ([Object.prototype, Array.prototype] as unknown[]).includes(Object.getPrototypeOf(value));
	return isKnown && Object.values(value).every(isPlain);
}
