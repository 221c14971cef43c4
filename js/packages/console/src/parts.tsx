/** Parts of views: tables with details, actions that ask first, bars, states and notices. */
import { type ComponentChildren, Fragment, type JSX } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { INSPECTION } from "tidewire/subjects";
import { isOwn } from "./attention.js";
import { count, reasonOf } from "./format.js";
import { select, useHub, useRoute } from "./hooks.js";
import { type Hub, STREAMS } from "./hub.js";
import { depth, type Kind, type NodeRow, num, type Row, rowsOf, text } from "./snapshots.js";
import { type Column, Table, type TableProps } from "./table.js";

export interface ViewProps<T> extends Omit<TableProps<T>, "rows" | "onOpen" | "opened"> {
	/** The rows; undefined before the first answer. */
	readonly rows: readonly T[] | undefined;
	/** The details of a row. */
	readonly detail: (row: T) => JSX.Element;
	/** Another name of a row, by which other views refer to it. */
	readonly alias?: (row: T) => string;
	/** The reason why the newest rows are missing. */
	readonly error?: string;
	/** A sentence above the table. */
	readonly note?: ComponentChildren;
	/** True if the details need more space than the table. */
	readonly isEven?: boolean;
}

/** A view: its heading, one table, and the details of the row that the address names. */
export function TableView<T>(props: ViewProps<T>): JSX.Element {
	const { rows, rowKey, alias, detail, error = "", note, isEven } = props;
	const { view, selected } = useRoute();
	const find = (keyOf: (row: T) => string): T | undefined => rows?.find((one) => keyOf(one) === selected);
	const row = selected === "" ? undefined : (find(rowKey) ?? (alias && find(alias)));
	const opened = row && rowKey(row);
	return (
		<>
			<h1>{props.label}</h1>
			<Failure of={error} />
			{note && <p class="dim">{note}</p>}
			<div class={isEven ? "split even" : "split"}>
				{rows && <Table {...props} rows={rows} onOpen={(one) => select(view, rowKey(one))} opened={opened} />}
				{row && <Fragment key={opened}>{detail(row)}</Fragment>}
			</div>
		</>
	);
}

type NodeViewProps = Omit<ViewProps<NodeRow>, "rows" | "rowKey" | "alias"> & { readonly kind: Kind };

/** A view of rows that nodes report, which other views refer to by their names. */
export function NodeView(props: NodeViewProps): JSX.Element {
	return (
		<TableView
			{...props}
			rows={rowsOf([...useHub().snapshots.values()], props.kind)}
			rowKey={({ snapshot, row }) => `${snapshot.key}:${text(row, "name")}`}
			alias={({ row }) => text(row, "name")}
		/>
	);
}

/** Details of a selected row, beside the table or over it. Escape closes them. */
export function Detail(props: { title: string; children: ComponentChildren }): JSX.Element {
	const { view } = useRoute();
	const panel = useRef<HTMLElement>(null);
	const title = useId();
	useEffect(() => {
		const before = document.activeElement as HTMLElement | null;
		panel.current?.focus();
		return () => before?.isConnected && before.focus();
	}, [props.title]);
	const close = (event: KeyboardEvent): void => {
		event.key === "Escape" && !(event.target as Element).closest("dialog") && select(view);
	};
	return (
		<aside class="detail" ref={panel} tabIndex={-1} aria-labelledby={title} onKeyDown={close}>
			<header>
				<h2 id={title}>{props.title}</h2>
				<button type="button" class="plain" aria-label="Close the details" onClick={() => select(view)}>
					✕
				</button>
			</header>
			{props.children}
		</aside>
	);
}

export interface InnerTableProps<T> extends Omit<TableProps<T>, "onOpen" | "opened"> {
	/** The name of one row, such as "Event". */
	readonly noun: string;
	readonly detail: (row: T) => ComponentChildren;
}

/** A table within the details. The details of the chosen row stand below it. */
export function InnerTable<T>(props: InnerTableProps<T>): JSX.Element {
	const { rows, rowKey, noun, detail } = props;
	const [opened, setOpened] = useState("");
	const section = useRef<HTMLElement>(null);
	const row = rows.find((one) => rowKey(one) === opened);
	useEffect(() => section.current?.scrollIntoView({ block: "nearest" }), [opened]);
	return (
		<>
			<Table {...props} onOpen={(one) => setOpened(rowKey(one))} opened={opened} />
			{row && (
				<section key={opened} class="inner" ref={section} aria-label={`${noun} ${opened}`}>
					{detail(row)}
				</section>
			)}
		</>
	);
}

/** Names and values. Values that are undefined or empty are left out. */
export function facts(of: Readonly<Record<string, ComponentChildren>>): JSX.Element {
	const entries = Object.entries(of).filter(([, value]) => value !== undefined && value !== "");
	return (
		<dl class="facts">
			{entries.map(([name, value]) => (
				<div key={name}>
					<dt>{name}</dt>
					<dd>{value}</dd>
				</div>
			))}
		</dl>
	);
}

/** Service and method that act on pools and campaigns of a node. */
export const ACT = [INSPECTION, "act"] as const;

export interface ActionProps {
	/** Verb and object, such as "Requeue 3 dead letters". */
	readonly label: string;
	/** Consequence of the action, in words. Without it the action does not ask. */
	readonly ask?: string;
	/** Name to type before the action, for what cannot be undone. */
	readonly type?: string;
	readonly isDanger?: boolean;
	readonly disabled?: boolean;
	/** Service and method that acts, if it is not the storage backend. */
	readonly by?: readonly [service: string, method: string];
	/** Acts with the fields of the dialog, and returns the text of the notice. */
	readonly run: (fields: FormData) => Promise<string>;
	/** Further fields of the dialog, each with a name. */
	readonly children?: ComponentChildren;
}

/** Why the page may not do something: `fix` changes that at a hub with tokens. */
export function lacks(hub: Hub, what: string, fix: string): string {
	return hub.isOpen
		? `This console ${what}: start the hub with --console-admin.`
		: `This token ${what}: give it ${fix} at the hub.`;
}

/** A button that acts, after a confirmation. A page that may only look shows it disabled. */
export function Action(props: ActionProps): JSX.Element {
	const hub = useHub();
	const dialog = useRef<HTMLDialogElement>(null);
	const [typed, setTyped] = useState("");
	const [isBusy, setBusy] = useState(false);
	// An open dialog keeps the properties that it was opened with.
	const [openProps, setOpenProps] = useState<ActionProps>();
	const { label, ask, type, children, run: act, isDanger } = openProps ?? props;
	const mayAct = hub.may(...(props.by ?? [STREAMS, "act"]));
	const why = mayAct ? "" : lacks(hub, "may only look", "admin = true");
	const run = async (fields = new FormData()): Promise<void> => {
		setBusy(true);
		try {
			notify(await act(fields));
		} catch (error) {
			notify(`${label}: ${reasonOf(error)}`, true);
		}
		setBusy(false);
		dialog.current?.close();
	};
	const asks = ask !== undefined || children !== undefined;
	const open = (): void => {
		setOpenProps(props);
		dialog.current?.showModal();
	};
	const closed = (event: { currentTarget: HTMLDialogElement }): void => {
		setOpenProps(undefined);
		setTyped("");
		event.currentTarget.querySelector("form")?.reset();
	};
	return (
		<>
			<button
				type="button"
				class={props.isDanger ? "danger" : ""}
				disabled={!mayAct || props.disabled || isBusy || hub.link.state !== "ready"}
				title={why}
				onClick={() => (asks ? open() : void run())}
			>
				{props.label}
			</button>
			{asks && (
				<dialog ref={dialog} aria-label={label} onClose={closed}>
					<form onSubmit={submits(run)}>
						<h2>{label}</h2>
						{ask && <p>{ask}</p>}
						{children}
						{type && (
							<label>
								Type <code>{type}</code> to confirm
								<input value={typed} onInput={(event) => setTyped(event.currentTarget.value)} autocomplete="off" />
							</label>
						)}
						<div class="buttons">
							<button type="button" onClick={() => dialog.current?.close()}>
								Back
							</button>
							<button type="submit" class={isDanger ? "danger" : "primary"} disabled={isBusy || typed !== (type ?? "")}>
								{label}
							</button>
						</div>
					</form>
				</dialog>
			)}
		</>
	);
}

/** The listener of a form: the form does not leave the page. */
export function submits(run: (fields: FormData) => unknown): (event: Event) => void {
	return (event) => {
		event.preventDefault();
		void run(new FormData(event.currentTarget as HTMLFormElement));
	};
}

type Notice = readonly [text: string, isError: boolean];
let shown: ((notice: Notice) => void) | undefined;

/** Shows a notice at the end of the page; screen readers read it out. */
function notify(text: string, isError = false): void {
	shown?.([text, isError]);
}

/** The place of notices. The page has one. */
export function Notices(): JSX.Element {
	const [notice, setNotice] = useState<Notice>();
	const [text, isError] = notice ?? [];
	shown = setNotice;
	useEffect(() => {
		const timer = setTimeout(() => setNotice(undefined), isError ? 20_000 : 6_000);
		return () => clearTimeout(timer);
	}, [notice]);
	return (
		<div class={isError ? "notice bad" : "notice"} role="status" hidden={text === undefined}>
			{text}
			<button type="button" class="plain" aria-label="Dismiss" onClick={() => setNotice(undefined)}>
				✕
			</button>
		</div>
	);
}

/** Fill of a queue or pool: yellow from half, red from nine tenths. Progress has one colour. */
export function Fill(props: { value: number; of: number; isProgress?: boolean }): JSX.Element {
	const share = props.of > 0 ? Math.min(1, props.value / props.of) : 0;
	const level = props.isProgress ? "" : share >= 0.9 ? "bad" : share >= 0.5 ? "warn" : "";
	const label = `${Math.round(share * 100)} % ${props.isProgress ? "done" : "full"}`;
	return <meter class={`fill ${level}`} min={0} max={1} value={share} aria-label={label} />;
}

/** The box to choose with if what Tidewire itself has is listed, and its state. */
export function useOwnBox(): [boolean, JSX.Element] {
	const [isShown, setShown] = useState(false);
	const box = (
		<label class="inline">
			<input type="checkbox" checked={isShown} onChange={(event) => setShown(event.currentTarget.checked)} />
			Tidewire’s own
		</label>
	);
	return [isShown, box];
}

/** Rows that are not of Tidewire itself, or all, and the box to choose with. */
export function useOwn<T>(rows: readonly T[] | undefined, nameOf: (row: T) => string): [T[] | undefined, JSX.Element] {
	const [isShown, box] = useOwnBox();
	const { selected } = useRoute();
	const listed = rows?.filter((row) => isShown || !isOwn(nameOf(row)) || nameOf(row) === selected);
	return [listed, box];
}

/** A column of amounts, with the share of the limit where there is one. */
export function filled<T>(
	title: string,
	of: (row: T) => readonly [amount: number, limit: number | undefined],
	show: (amount: number) => string,
): Column<T> {
	const cell = (row: T): ComponentChildren => {
		const [amount, limit] = of(row);
		return [limit ? <Fill key="fill" value={amount} of={limit} /> : "", show(amount)];
	};
	return { title, value: (row) => of(row)[0], cell, isNumber: true };
}

/** The column of a queue: how much waits, and how full it is. */
export function queue<T>(of: (line: T) => Row): Column<T> {
	return filled("Queue", (line) => [depth(of(line)), num(of(line), "capacity")], count);
}

/** The same as a fact. */
export function queueOf(row: Row): string {
	const capacity = num(row, "capacity");
	return `${count(depth(row))}${capacity > 0 ? ` of ${count(capacity)}` : ""}`;
}

type Level = "good" | "warn" | "bad" | "";

/** A state as text with a mark, so that colour is not the only sign. */
export function State(props: { is: string; level: Level }): JSX.Element {
	return <span class={`state ${props.level}`}>{props.is}</span>;
}

/** The column of a state. */
export function stated<T>(value: (row: T) => string, level: (state: string, row: T) => Level): Column<T> {
	return { title: "State", value, cell: (row) => <State is={value(row)} level={level(value(row), row)} /> };
}

/** An error of a program, with its traceback. */
export function Fault(props: { error: string; traceback: string }): JSX.Element {
	return (
		<>
			{props.error && <p class="failure">{props.error}</p>}
			{props.traceback && (
				<details>
					<summary>Traceback</summary>
					<pre>{props.traceback}</pre>
				</details>
			)}
		</>
	);
}

/** The reason of a failed query, or nothing. */
export function Failure(props: { of: string }): JSX.Element | null {
	return props.of === "" ? null : (
		<p class="failure" role="alert">
			{props.of}
		</p>
	);
}
