/** Platform of the client: its clock, timers and sockets. */

/** Part of a message: bytes that are sent one after the other. */
export type Parts = readonly Uint8Array[];

/** An open WebSocket. */
export interface Socket {
	/** Sends one binary message. */
	send(parts: Parts): void;
	/** Bytes that were sent and have not left. */
	readonly buffered: number;
	close(code: number): void;
}

/** Events of a socket; none follow once this side has closed it. */
export interface SocketEvents {
	opened(): void;
	message(bytes: Uint8Array): void;
	/** It was closed, or could not be opened. */
	closed(reason: string): void;
	/** Less waits to leave than before. */
	drained(): void;
}

/** Clock, timers and sockets. */
export interface Shell {
	/** Milliseconds of a clock that never goes back. */
	now(): number;
	/** Has `wake` called at a time; replaces the one before. Infinity: not at all. */
	wake(at: number, wake: () => void): void;
	/** Has something done once what runs now has returned. */
	soon(run: () => void): void;
	open(url: string, protocol: string, events: SocketEvents): Socket;
	randomBytes(count: number): Uint8Array;
	/** Has `collected` called some time after nobody has an object any more. */
	watch(object: object, collected: () => void): void;
	/** Has `retry` called when there is a network again, and gives what ends that. */
	online(retry: () => void): () => void;
	/** Says what can't be thrown to anybody. */
	report(error: unknown): void;
}

/** A name that nobody else has. */
export function randomName(shell: Shell, bytes = 6): string {
	return Array.from(shell.randomBytes(bytes), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
