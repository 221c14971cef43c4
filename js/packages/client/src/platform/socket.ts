/** Sockets over the `WebSocket` of the platform, or of the package `ws` under Node. */
import { WebSocket } from "#websocket";
import { InvalidArgument } from "../generated/errors.js";
import { LINK_FRAME_BYTES } from "../generated/limits.js";
import type { Parts, Socket, SocketEvents } from "./shell.js";

/** A WebSocket has no event for sent bytes: its buffer is checked this often. */
const LOOK_MS = 4;
/** Options of `ws`: a message has at most the longest frame and 64 KiB. */
const OPTIONS = { perMessageDeflate: false, maxPayload: LINK_FRAME_BYTES + 65_536, closeTimeout: 2000 };
const LOOPBACK = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/;

export function open(url: string, protocol: string, events: SocketEvents): Socket {
	checkMixed(url);
	let socket: WebSocket;
	try {
		socket = new WebSocket(url, protocol, OPTIONS);
	} catch (error) {
		throw new InvalidArgument(`connect: url: '${url}' can't be opened here: ${String(error)}`);
	}
	let wasOpen = false;
	let isOver = false;
	let cause: string | undefined;
	let looking: ReturnType<typeof setInterval> | undefined;
	const end = (): void => {
		isOver = true;
		clearInterval(looking);
	};
	socket.binaryType = "arraybuffer";
	socket.onopen = () => {
		wasOpen = true;
		events.opened();
	};
	socket.onmessage = ({ data }: MessageEvent<unknown>) => {
		if (isOver) {
			return;
		}
		if (data instanceof ArrayBuffer) {
			events.message(new Uint8Array(data));
		} else {
			cause = "a message of the hub is not binary";
			socket.close();
		}
	};
	socket.onerror = (event) => {
		cause = (event as Partial<ErrorEvent>).message;
	};
	socket.onclose = ({ code, reason }) => {
		if (!isOver) {
			end();
			cause = reason || cause;
			events.closed(
				wasOpen
					? `the connection to '${url}' was closed (${code}${cause ? `, ${cause}` : ""})`
					: `'${url}' could not be reached: ${cause || "is the hub there, and its certificate one that this browser trusts?"}`,
			);
		}
	};
	return {
		get buffered() {
			return socket.bufferedAmount;
		},
		send(parts) {
			socket.send(joined(parts));
			if (socket.bufferedAmount > 0 && looking === undefined) {
				looking = setInterval(() => {
					if (socket.bufferedAmount === 0) {
						clearInterval(looking);
						looking = undefined;
					}
					events.drained();
				}, LOOK_MS);
			}
		},
		close(code) {
			end();
			socket.close(code);
		},
	};
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
