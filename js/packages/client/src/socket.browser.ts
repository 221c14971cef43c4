/** Sockets of browsers, workers, Deno and Bun: the WebSocket of the platform. */
import { InvalidArgument } from "./generated/errors.js";
import type { Parts } from "./outbox.js";
import type { Socket, SocketEvents } from "./shell.js";

/** A WebSocket has no event for sent bytes: its buffer is checked this often. */
const LOOK_MS = 4;
const LOOPBACK = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/;

export function open(url: string, protocol: string, events: SocketEvents): Socket {
	checkMixed(url);
	let socket: WebSocket;
	try {
		socket = new WebSocket(url, protocol);
	} catch (error) {
		throw new InvalidArgument(`connect: url: '${url}' can't be opened here: ${String(error)}`);
	}
	return new BrowserSocket(socket, url, events);
}

/** A page that came over TLS may not open sockets without, but for those of its own machine. */
function checkMixed(url: string): void {
	const page = (globalThis as { location?: { protocol?: string } }).location?.protocol;
	const { protocol, hostname } = new URL(url);
	if (page === "https:" && protocol === "ws:" && !LOOPBACK.test(hostname)) {
		throw new InvalidArgument(
			`connect: url: '${url}' is not allowed in a page of https (mixed content): let the hub listen with wss://`,
		);
	}
}

class BrowserSocket implements Socket {
	private looking: ReturnType<typeof setInterval> | undefined;
	private isOver = false;

	constructor(
		private readonly socket: WebSocket,
		url: string,
		private readonly events: SocketEvents,
	) {
		socket.binaryType = "arraybuffer";
		let wasOpen = false;
		socket.onopen = () => {
			wasOpen = true;
			events.opened();
		};
		socket.onmessage = ({ data }: MessageEvent<unknown>) => {
			if (data instanceof ArrayBuffer) {
				events.message(new Uint8Array(data));
			} else {
				socket.close(1003);
			}
		};
		socket.onclose = ({ code, reason }) => {
			if (!this.isOver) {
				this.over();
				const text = wasOpen
					? `the connection was closed (${code}${reason === "" ? "" : `, ${reason}`})`
					: `'${url}' could not be reached: is the hub there, and its certificate one that this browser trusts?`;
				events.closed(text);
			}
		};
	}

	get buffered(): number {
		return this.socket.bufferedAmount;
	}

	send(parts: Parts): void {
		this.socket.send(joined(parts));
		if (this.socket.bufferedAmount > 0 && this.looking === undefined) {
			this.looking = setInterval(() => {
				if (this.socket.bufferedAmount === 0) {
					clearInterval(this.looking);
					this.looking = undefined;
				}
				this.events.drained();
			}, LOOK_MS);
		}
	}

	close(code: number, reason: string): void {
		this.over();
		this.socket.close(code, reason);
	}

	private over(): void {
		this.isOver = true;
		clearInterval(this.looking);
	}
}

function joined(parts: Parts): Uint8Array<ArrayBuffer> {
	if (parts.length === 1) {
		return parts[0] as Uint8Array<ArrayBuffer>;
	}
	const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
	let at = 0;
	for (const part of parts) {
		all.set(part, at);
		at += part.length;
	}
	return all;
}
