/** Data hooks of the views. */
import { createContext } from "preact";
import { useCallback, useContext, useEffect, useReducer, useRef, useState } from "preact/hooks";
import { reasonOf } from "./format.js";
import type { Hub } from "./hub.js";

/** Milliseconds after which a question is asked again whose answer seldom changes. */
export const SELDOM_MS = 30_000;
export const HubContext = createContext<Hub | undefined>(undefined);

/** The hub. The component renders again after each snapshot, and each change of the link. */
export function useHub(): Hub {
	const hub = useContext(HubContext) as Hub;
	const [, again] = useReducer((turn: number) => turn + 1, 0);
	useEffect(() => hub.subscribe(() => again(undefined as never)), [hub]);
	return hub;
}

/** The result of a question to the hub. */
export interface Query<T> {
	/** The last answer; it stays while the next one is on its way. */
	readonly data: T | undefined;
	/** The reason of the last failure, as text. */
	readonly error: string;
	/** Asks again now. */
	readonly reload: () => void;
}

/**
 * Asks the hub when the view opens, when `key` or `version` changes, and every `everyMs` while the
 * page is visible. An answer for an earlier key is dropped; that for an earlier version stays until
 * the next one.
 */
export function useQuery<T>(key: string, ask: (hub: Hub) => Promise<T>, everyMs = 2_000, version = ""): Query<T> {
	const hub = useContext(HubContext) as Hub;
	const [answer, setAnswer] = useState<{ key: string; data?: T; error: string }>({ key, error: "" });
	const latest = useRef({ ask, version });
	latest.current = { ask, version };
	const current = useRef<() => void>(undefined);
	const reload = useCallback(() => current.current?.(), []);
	useEffect(() => {
		let [isBusy, isOver, wasReady] = [false, false, false];
		const run = async (): Promise<void> => {
			wasReady = hub.link.state === "ready";
			if (isBusy || document.hidden || !wasReady) {
				return;
			}
			isBusy = true;
			const request = latest.current;
			try {
				const data = await request.ask(hub);
				isOver || setAnswer({ key, data, error: "" });
			} catch (error) {
				isOver || setAnswer((before) => ({ ...(before.key === key && before), key, error: reasonOf(error) }));
			}
			isBusy = false;
			isOver || request.version === latest.current.version || void run();
		};
		current.current = () => void run();
		void run();
		const timer = setInterval(run, everyMs);
		// A link that is back is asked at once.
		const end = hub.subscribe(() => {
			wasReady &&= hub.link.state === "ready";
			wasReady || void run();
		});
		return () => {
			isOver = true;
			clearInterval(timer);
			end();
		};
	}, [key, everyMs, hub]);
	useEffect(reload, [reload, version]);
	const { data, error } = answer.key === key ? answer : { data: undefined, error: "" };
	return { data, error, reload };
}

export const hrefOf = (view: string, selected = ""): string =>
	`#/${view}${selected === "" ? "" : `/${encodeURIComponent(selected)}`}`;

/** The place in the page, `#/view/selected`. `selected` is the key of the row with details. */
export function useRoute(): { readonly view: string; readonly selected: string } {
	const [hash, setHash] = useState(location.hash);
	useEffect(() => {
		const changed = (): void => setHash(location.hash);
		addEventListener("hashchange", changed);
		return () => removeEventListener("hashchange", changed);
	}, []);
	const [view = "", ...rest] = hash.replace(/^#\/?/, "").split("/");
	return { view, selected: rest.map(decodeURIComponent).join("/") };
}

/** Opens the details of a row, or closes them with an empty id. */
export function select(view: string, selected = ""): void {
	location.hash = hrefOf(view, selected);
}
