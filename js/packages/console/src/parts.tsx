/** Parts of views: details, actions that ask first, bars, states and notices. */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { reasonOf } from "./format.js";
import { useHub } from "./hooks.js";

/** Details of a selected row, beside the table or over it. Escape closes them. */
export function Detail(props: { title: string; onClose: () => void; children: ComponentChildren }): JSX.Element {
	const panel = useRef<HTMLElement>(null);
	const title = useId();
	useEffect(() => {
		const before = document.activeElement as HTMLElement | null;
		panel.current?.focus();
		return () => before?.isConnected && before.focus();
	}, [props.title]);
	const close = (event: KeyboardEvent): void => {
		if (event.key === "Escape" && !(event.target as Element).closest("dialog")) {
			props.onClose();
		}
	};
	return (
		<aside class="detail" ref={panel} tabIndex={-1} aria-labelledby={title} onKeyDown={close}>
			<header>
				<h2 id={title}>{props.title}</h2>
				<button type="button" class="plain" aria-label="Close the details" onClick={props.onClose}>
					✕
				</button>
			</header>
			{props.children}
		</aside>
	);
}

/** Names and values. Values that are undefined are left out. */
export function Facts(props: { of: Readonly<Record<string, ComponentChildren>> }): JSX.Element {
	return (
		<dl class="facts">
			{Object.entries(props.of)
				.filter(([, value]) => value !== undefined && value !== "")
				.map(([name, value]) => (
					<div key={name}>
						<dt>{name}</dt>
						<dd>{value}</dd>
					</div>
				))}
		</dl>
	);
}

export interface ActionProps {
	/** Verb and object, such as "Requeue 3 dead letters". */
	readonly label: string;
	/** Consequence of the action, in words. Without it the action does not ask. */
	readonly ask?: string;
	/** Name to type before the action, for what cannot be undone. */
	readonly type?: string;
	readonly isDanger?: boolean;
	readonly disabled?: boolean;
	/** Acts, and returns the text of the notice. */
	readonly run: () => Promise<string>;
	/** Further fields of the dialog. */
	readonly children?: ComponentChildren;
}

/** A button that acts, after a confirmation. A page that may only look shows it disabled. */
export function Action(props: ActionProps): JSX.Element {
	const hub = useHub();
	const dialog = useRef<HTMLDialogElement>(null);
	const [typed, setTyped] = useState("");
	const [isBusy, setBusy] = useState(false);
	const why = hub.mayAct ? "" : "This console may only look: start the hub with --console-admin, or with tokens.";
	const run = async (): Promise<void> => {
		setBusy(true);
		try {
			notify(await props.run());
		} catch (error) {
			notify(`${props.label}: ${reasonOf(error)}`, true);
		}
		setBusy(false);
		dialog.current?.close();
	};
	const asks = props.ask !== undefined || props.type !== undefined || props.children !== undefined;
	const press = (): void => {
		setTyped("");
		asks ? dialog.current?.showModal() : void run();
	};
	return (
		<>
			<button
				type="button"
				class={props.isDanger ? "danger" : ""}
				disabled={!hub.mayAct || props.disabled || isBusy || hub.link.state !== "ready"}
				title={why}
				onClick={press}
			>
				{props.label}
			</button>
			{asks && (
				<dialog ref={dialog} aria-label={props.label}>
					<form
						method="dialog"
						onSubmit={(event) => {
							event.preventDefault();
							void run();
						}}
					>
						<h2>{props.label}</h2>
						{props.ask && <p>{props.ask}</p>}
						{props.children}
						{props.type !== undefined && (
							<label>
								Type <code>{props.type}</code> to confirm
								<input value={typed} onInput={(event) => setTyped(event.currentTarget.value)} autocomplete="off" />
							</label>
						)}
						<div class="buttons">
							<button type="button" onClick={() => dialog.current?.close()}>
								Cancel
							</button>
							<button
								type="submit"
								class={props.isDanger ? "danger" : "primary"}
								disabled={isBusy || (props.type !== undefined && typed !== props.type)}
							>
								{props.label}
							</button>
						</div>
					</form>
				</dialog>
			)}
		</>
	);
}

interface Notice {
	readonly text: string;
	readonly isError: boolean;
}
let shown: ((notice: Notice) => void) | undefined;

/** Shows a notice at the end of the page; screen readers read it out. */
export function notify(text: string, isError = false): void {
	shown?.({ text, isError });
}

/** The place of notices. The page has one. */
export function Notices(): JSX.Element {
	const [notice, setNotice] = useState<Notice>();
	shown = setNotice;
	useEffect(() => {
		const timer = setTimeout(() => setNotice(undefined), notice?.isError ? 20_000 : 6_000);
		return () => clearTimeout(timer);
	}, [notice]);
	return (
		<div class={`notice${notice?.isError ? " bad" : ""}`} role="status" hidden={notice === undefined}>
			{notice?.text}
			<button type="button" class="plain" aria-label="Dismiss" onClick={() => setNotice(undefined)}>
				✕
			</button>
		</div>
	);
}

/** Fill of a queue or pool: yellow from half, red from nine tenths. */
export function Fill(props: { value: number; of: number }): JSX.Element {
	const share = props.of > 0 ? Math.min(1, props.value / props.of) : 0;
	const level = share >= 0.9 ? "bad" : share >= 0.5 ? "warn" : "";
	return (
		<meter class={`fill ${level}`} min={0} max={1} value={share} aria-label={`${Math.round(share * 100)} % full`} />
	);
}

/** A state as text with a mark, so that colour is not the only sign. */
export function State(props: { is: string; level?: "good" | "warn" | "bad" | "" }): JSX.Element {
	return <span class={`state ${props.level ?? ""}`}>{props.is}</span>;
}

/** The reason of a failed query, or nothing. */
export function Failure(props: { of: string }): JSX.Element | null {
	return props.of === "" ? null : (
		<p class="failure" role="alert">
			{props.of}
		</p>
	);
}
