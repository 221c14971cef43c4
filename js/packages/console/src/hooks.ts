/** Data hooks of the views. */
import { createContext } from "preact";
import { useCallback, useContext, useEffect, useReducer, useRef, useState } from "preact/hooks";
import { reasonOf } from "./format.js";
import type { Hub } from "./hub.js";

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
 * Asks the hub when the view opens, when `key` changes, and every `everyMs` while the page is
 * visible. An answer for an earlier key is dropped.
 */
export function useQuery<T>(key: string, ask: (hub: Hub) => Promise<T>, everyMs = 2_000): Query<T> {
	const hub = useContext(HubContext) as Hub;
	const [answer, setAnswer] = useState<Answer<T>>({ key, error: "" });
	const latest = useRef(ask);
	latest.current = ask;
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
			try {
				const data = await latest.current(hub);
				isOver || setAnswer({ key, data, error: "" });
			} catch (error) {
				isOver || setAnswer((before) => ({ ...(before.key === key && before), key, error: reasonOf(error) }));
			}
			isBusy = false;
		};
		current.current = () => void run();
		void run();
		const timer = setInterval(run, everyMs);
		// A link that is back is asked at once.
		const end = hub.subscribe(() => {
			if (hub.link.state !== "ready") {
				wasReady = false;
			} else if (!wasReady) {
				void run();
			}
		});
		return () => {
			isOver = true;
			clearInterval(timer);
			end();
		};
	}, [key, everyMs, hub]);
	const isCurrent = answer.key === key;
	return { data: isCurrent ? answer.data : undefined, error: isCurrent ? answer.error : "", reload };
}

interface Answer<T> {
	readonly key: string;
	readonly data?: T;
	readonly error: string;
}

/** The place in the page: `#/view/selected`. */
export interface Route {
	readonly view: string;
	/** The id of the row whose details are shown; empty if there is none. */
	readonly selected: string;
}

export function routeOf(hash: string): Route {
	const [view = "", ...rest] = hash.replace(/^#\/?/, "").split("/");
	return { view, selected: rest.map(decodeURIComponent).join("/") };
}

export function hrefOf(view: string, selected = ""): string {
	return `#/${view}${selected === "" ? "" : `/${encodeURIComponent(selected)}`}`;
}

export function useRoute(): Route {
	const [hash, setHash] = useState(location.hash);
	useEffect(() => {
		const changed = (): void => setHash(location.hash);
		addEventListener("hashchange", changed);
		return () => removeEventListener("hashchange", changed);
	}, []);
	return routeOf(hash);
}

/** Opens the details of a row, or closes them with an empty id. */
export function select(view: string, selected = ""): void {
	location.hash = hrefOf(view, selected);
}
