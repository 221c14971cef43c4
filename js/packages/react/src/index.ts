/**
 * React hooks for Tidewire. Each hook does its work while its component is mounted, and cancels it
 * when the component is unmounted or a dependency changes.
 *
 * @packageDocumentation
 */
import { type DependencyList, useEffect, useMemo, useReducer, useState } from "react";
import { type ConnectOptions, connect, type Envelope, type Node, type SubscribeOptions } from "tidewire";

/** State of a call. */
export type CallState<T> =
	| { readonly status: "loading"; readonly value: undefined; readonly error: undefined }
	| { readonly status: "done"; readonly value: T; readonly error: undefined }
	| { readonly status: "failed"; readonly value: undefined; readonly error: unknown };

/** State of a stream: "loading" until the first item, then "open" until it ends or fails. */
export interface StreamState<T> {
	readonly status: "loading" | "open" | "ended" | "failed";
	/** The last items, the newest last. */
	readonly items: readonly T[];
	/** The newest item. */
	readonly latest: T | undefined;
	/** The error of a stream that failed. */
	readonly error: unknown;
}

export interface StreamOptions {
	/** Number of last items to keep, 1 or more: 100. */
	readonly keep?: number | undefined;
}

const LOADING = { status: "loading", value: undefined, error: undefined } as const;
const NO_ITEMS: StreamState<never> = { status: "loading", items: [], latest: undefined, error: undefined };

/** A state that belongs to one run: the next run begins with the first state at once. */
function useRun<S>(
	first: S,
	start: (set: (change: (state: S) => S) => void, signal: AbortSignal) => (() => void) | undefined,
	dependencies: DependencyList,
): S {
	// biome-ignore lint/correctness/useExhaustiveDependencies: the caller lists them.
	const run = useMemo(() => ({ start, first }), dependencies);
	const [current, setCurrent] = useState({ run, state: first });
	useEffect(() => {
		const abort = new AbortController();
		setCurrent((now) => (now.run === run && now.state === run.first ? now : { run, state: run.first }));
		const end = run.start((change) => {
			if (!abort.signal.aborted) {
				setCurrent((now) => ({ run, state: change(now.run === run ? now.state : run.first) }));
			}
		}, abort.signal);
		return () => {
			abort.abort();
			end?.();
		};
	}, [run]);
	return current.run === run ? current.state : first;
}

/**
 * Makes a call, and makes it again when a dependency changes; the call before is cancelled.
 *
 * @param call Makes the call. Pass the signal to `client.with({ signal })`.
 * @param dependencies Values that the call uses, as for `useEffect`.
 * @returns The state, and a function that makes the call again.
 */
export function useCall<T>(
	call: (signal: AbortSignal) => PromiseLike<T>,
	dependencies: DependencyList,
): CallState<T> & { readonly reload: () => void } {
	const [count, reload] = useReducer((made: number) => made + 1, 0);
	const state = useRun<CallState<T>>(
		LOADING,
		(set, signal) => {
			// An error that `call` throws itself is an error of the call.
			(async () => call(signal))().then(
				(value) => set(() => ({ status: "done", value, error: undefined })),
				(error: unknown) => set(() => ({ status: "failed", value: undefined, error })),
			);
			return undefined;
		},
		[...dependencies, count],
	);
	return { ...state, reload };
}

/**
 * Reads a stream, and opens it again when a dependency changes; the stream before is closed.
 *
 * @param open Opens the stream. Pass the signal to `client.with({ signal })`.
 * @param dependencies Values that `open` uses, as for `useEffect`.
 */
export function useStream<T>(
	open: (signal: AbortSignal) => AsyncIterable<T> | undefined,
	dependencies: DependencyList,
	{ keep = 100 }: StreamOptions = {},
): StreamState<T> {
	return useRun<StreamState<T>>(
		NO_ITEMS,
		(set, signal) => {
			let reader: AsyncIterator<T> | undefined;
			const read = async (): Promise<void> => {
				reader = open(signal)?.[Symbol.asyncIterator]();
				for (let next = await reader?.next(); next !== undefined; next = await reader?.next()) {
					if (next.done === true) {
						return set((state) => ({ ...state, status: "ended" }));
					}
					const { value } = next;
					set(({ items }) => {
						const recent = [...items, value].slice(-keep);
						return { status: "open", items: recent, latest: value, error: undefined };
					});
				}
			};
			read().catch((error: unknown) => set((state) => ({ ...state, status: "failed", error })));
			// Its failure to close has no reader.
			return () => void Promise.resolve(reader?.return?.()).catch(() => undefined);
		},
		[...dependencies, keep],
	);
}

/**
 * Reads the messages that are published on subjects of a pattern. Without a node, such as before
 * `useNode` has joined, it waits.
 */
export function useSubject(
	node: Node | undefined,
	pattern: string,
	{ keep, ...options }: StreamOptions & SubscribeOptions = {},
): StreamState<Envelope> {
	return useStream(() => node?.subscription(pattern, options), [node, pattern, JSON.stringify(options)], { keep });
}

/**
 * Joins a hub, and closes the node when the component is unmounted or the URL, name or token
 * changes. The value is the node.
 */
export function useNode(url: string, options: Omit<ConnectOptions, "signal"> = {}): CallState<Node> {
	return useRun<CallState<Node>>(
		LOADING,
		(set, signal) => {
			const joining = connect(url, { ...options, signal });
			joining.then(
				(value) => set(() => ({ status: "done", value, error: undefined })),
				(error: unknown) => set(() => ({ status: "failed", value: undefined, error })),
			);
			return () => void joining.then((node) => node.close()).catch(() => undefined);
		},
		[url, options.name, options.token],
	);
}
