/** Events and counters of a node. */
import type { TidewireError } from "./error.js";

/** Events of a node. */
export interface NodeEvents {
	/**
	 * It has joined its hub, for the first time or again: services and subscriptions are on their
	 * way back.
	 */
	joined: (hub: string) => void;
	/** Its link was lost; it is looked for again. */
	lost: (reason: string) => void;
	/**
	 * There is no link, and none will come; with the error, if that is not because of `close()`.
	 */
	closed: (error: TidewireError | undefined) => void;
	/**
	 * A listener of messages or events failed, or a message is unreadable; nobody waits for either.
	 * Without a listener it goes to `console.error`.
	 */
	error: (error: unknown) => void;
}

/** Counts of a node. */
export interface NodeStatistics {
	readonly name: string;
	/** The name of the hub; null while there is no link. */
	readonly hub: string | null;
	/** How often a link was lost. */
	readonly lost: number;
	/**
	 * Messages of the link since it was joined, bytes that wait to be sent, and messages published
	 * that found no room.
	 */
	readonly link: {
		readonly sent: number;
		readonly received: number;
		readonly dropped: number;
		readonly waitingBytes: number;
	};
	/** Calls, streams and subscriptions of this node, and calls of others, that are open. */
	readonly open: { readonly mine: number; readonly theirs: number };
	readonly subscriptions: number;
	readonly services: number;
	/**
	 * Entries of the hub's lists of services that were skipped, as they were not of the form that
	 * they have to have.
	 */
	readonly skipped: number;
	/** Functions, objects and streams that were given to others, and that are held of them. */
	readonly remote: { readonly given: number; readonly held: number };
}
