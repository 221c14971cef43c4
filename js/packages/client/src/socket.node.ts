/**
 * Sockets of Node: WebSocket (RFC 6455) as a client over its own connections, as Node 20 has no
 * WebSocket of its own.
 */
import { createHash, randomBytes } from "node:crypto";
import { type IncomingMessage, request as requestPlain } from "node:http";
import { request as requestTls } from "node:https";
import type { Duplex } from "node:stream";
import { LINK_FRAME_BYTES } from "./generated/limits.js";
import type { Parts } from "./outbox.js";
import type { Socket, SocketEvents } from "./shell.js";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/** A side takes messages of the longest frame, and 64 KiB. */
const MESSAGE_BYTES = LINK_FRAME_BYTES + 65_536;
const MASKS = 4096;
/** Shorter messages are masked byte by byte. */
const WORDS = 64;
const CONTINUATION = 0;
const BINARY = 2;
const CLOSE = 8;
const PING = 9;
const PONG = 10;
/** A socket that is closed gets so long to say so. */
const CLOSING_MS = 2000;

export function open(url: string, protocol: string, events: SocketEvents): Socket {
	return new NodeSocket(new URL(url), protocol, events);
}

class NodeSocket implements Socket {
	private stream: Duplex | undefined;
	private isOver = false;
	private received: Buffer | undefined;
	private fragments: Buffer[] = [];
	private fragmentBytes = 0;
	private readonly masks = new Masks();

	constructor(
		private readonly url: URL,
		protocol: string,
		private readonly events: SocketEvents,
	) {
		const key = randomBytes(16).toString("base64");
		const request = url.protocol === "wss:" ? requestTls : requestPlain;
		const headers = {
			Connection: "Upgrade",
			Upgrade: "websocket",
			"Sec-WebSocket-Version": "13",
			"Sec-WebSocket-Key": key,
			"Sec-WebSocket-Protocol": protocol,
		};
		const handshake = request({
			host: url.hostname.replace(/^\[|\]$/g, ""),
			port: url.port || (url.protocol === "wss:" ? 443 : 80),
			path: `${url.pathname}${url.search}`,
			headers,
		});
		handshake.on("upgrade", (response, stream: Duplex, head: Buffer) =>
			this.upgraded(response, stream, head, key, protocol),
		);
		handshake.on("response", (response) => {
			response.destroy();
			this.closed(`'${url.href}' answered ${response.statusCode}, and is no hub that listens with WebSocket`);
		});
		handshake.on("error", (error) =>
			this.closed(`'${url.href}' could not be reached: ${error.message || String(error)}`),
		);
		handshake.end();
		this.abort = () => handshake.destroy();
	}

	private abort: () => void;

	get buffered(): number {
		return this.stream?.writableLength ?? 0;
	}

	send(parts: Parts): void {
		this.frame(BINARY, parts);
	}

	close(code: number, reason: string): void {
		if (this.isOver) {
			return;
		}
		this.isOver = true;
		const { stream } = this;
		if (stream === undefined) {
			this.abort();
			return;
		}
		const text = Buffer.from(reason);
		const payload = Buffer.concat([Buffer.from([code >> 8, code & 0xff]), text]);
		this.frame(CLOSE, [payload]);
		stream.end();
		const timer = setTimeout(() => stream.destroy(), CLOSING_MS);
		stream.once("close", () => clearTimeout(timer));
		stream.resume();
	}

	private upgraded(response: IncomingMessage, stream: Duplex, head: Buffer, key: string, protocol: string): void {
		const accept = createHash("sha1").update(`${key}${GUID}`).digest("base64");
		if (
			response.headers["sec-websocket-accept"] !== accept ||
			response.headers["sec-websocket-protocol"] !== protocol
		) {
			stream.destroy();
			this.closed(`'${this.url.href}' speaks WebSocket, and is no hub`);
			return;
		}
		if (this.isOver) {
			stream.destroy();
			return;
		}
		this.stream = stream;
		(stream as { setNoDelay?: (on: boolean) => void }).setNoDelay?.(true);
		stream.on("data", (bytes: Buffer) => this.read(bytes));
		stream.on("drain", () => this.events.drained());
		stream.on("error", (error) => this.closed(error.message));
		stream.on("close", () => this.closed("the connection was closed"));
		stream.on("end", () => stream.end());
		this.events.opened();
		if (head.length > 0) {
			this.read(head);
		}
	}

	private closed(reason: string): void {
		if (!this.isOver) {
			this.isOver = true;
			this.stream?.destroy();
			this.events.closed(reason);
		}
	}

	/** Writes one frame, masked as a client must. */
	private frame(opcode: number, parts: Parts): void {
		const { stream } = this;
		if (stream === undefined || stream.destroyed) {
			return;
		}
		let length = 0;
		for (const part of parts) {
			length += part.length;
		}
		const begin = length < 126 ? 6 : length <= 0xffff ? 8 : 14;
		const frame = Buffer.allocUnsafe(begin + length);
		frame[0] = 0x80 | opcode;
		if (begin === 6) {
			frame[1] = 0x80 | length;
		} else if (begin === 8) {
			frame[1] = 0x80 | 126;
			frame.writeUInt16BE(length, 2);
		} else {
			frame[1] = 0x80 | 127;
			frame.writeBigUInt64BE(BigInt(length), 2);
		}
		let at = begin;
		for (const part of parts) {
			frame.set(part, at);
			at += part.length;
		}
		this.masks.apply(frame, begin);
		stream.write(frame);
	}

	/** Reads what came; a message that is cut waits for its rest. */
	private read(bytes: Buffer): void {
		let rest = this.received === undefined ? bytes : Buffer.concat([this.received, bytes]);
		this.received = undefined;
		while (!this.isOver) {
			const used = this.readFrame(rest);
			if (used === 0) {
				break;
			}
			rest = rest.subarray(used);
			if (rest.length === 0) {
				return;
			}
		}
		this.received = this.isOver ? undefined : rest;
	}

	/** Reads one frame, and gives its length; 0 if it is not all there. */
	private readFrame(bytes: Buffer): number {
		if (bytes.length < 2) {
			return 0;
		}
		const [first, second] = [bytes[0] as number, bytes[1] as number];
		let length = second & 0x7f;
		let begin = 2;
		if (length === 126) {
			if (bytes.length < 4) {
				return 0;
			}
			length = bytes.readUInt16BE(2);
			begin = 4;
		} else if (length === 127) {
			if (bytes.length < 10) {
				return 0;
			}
			length = Number(bytes.readBigUInt64BE(2));
			begin = 10;
		}
		const opcode = first & 15;
		if (first & 0x70 || second & 0x80 || (opcode >= CLOSE && (length > 125 || !(first & 0x80)))) {
			return this.wrong(1002, "the hub breaks the rules of WebSocket");
		}
		if (length + this.fragmentBytes > MESSAGE_BYTES) {
			return this.wrong(1009, "a message of the hub is too long");
		}
		if (bytes.length < begin + length) {
			return 0;
		}
		this.take(opcode, (first & 0x80) !== 0, bytes.subarray(begin, begin + length));
		return begin + length;
	}

	private take(opcode: number, isLast: boolean, payload: Buffer): void {
		if (opcode === PING) {
			this.frame(PONG, [payload]);
		} else if (opcode === CLOSE) {
			const code = payload.length >= 2 ? payload.readUInt16BE(0) : 1005;
			const reason = payload.subarray(2).toString();
			this.closed(`the hub closed the connection (${code}${reason === "" ? "" : `, ${reason}`})`);
		} else if (opcode === BINARY || (opcode === CONTINUATION && this.fragments.length > 0)) {
			if (isLast && this.fragments.length === 0) {
				this.events.message(plain(payload));
				return;
			}
			this.fragments.push(Buffer.from(payload));
			this.fragmentBytes += payload.length;
			if (isLast) {
				const whole = Buffer.concat(this.fragments);
				this.fragments = [];
				this.fragmentBytes = 0;
				this.events.message(plain(whole));
			}
		} else if (opcode !== PONG) {
			this.wrong(1003, "a message of the hub is not binary");
		}
	}

	private wrong(code: number, reason: string): number {
		this.frame(CLOSE, [Buffer.from([code >> 8, code & 0xff])]);
		this.closed(reason);
		return 0;
	}
}

/** The bytes of a buffer without the methods of one, some of which mean something else. */
function plain(buffer: Buffer): Uint8Array {
	return new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.length);
}

/** Unpredictable masks, drawn many at a time. */
class Masks {
	private drawn = Buffer.alloc(0);
	private at = 0;

	/** Writes a mask before what it masks, and masks that. */
	apply(frame: Buffer, begin: number): void {
		if (this.at === this.drawn.length) {
			this.drawn = randomBytes(MASKS);
			this.at = 0;
		}
		const mask = this.drawn.readInt32LE(this.at);
		this.at += 4;
		frame.writeInt32LE(mask, begin - 4);
		let at = begin;
		if (frame.length - begin >= WORDS) {
			// Words of the memory's own alignment go eight times as fast as bytes.
			while ((frame.byteOffset + at) % 4 !== 0) {
				at = xor(frame, at, begin, mask);
			}
			const turns = ((at - begin) & 3) * 8;
			const word = (mask >>> turns) | (turns === 0 ? 0 : mask << (32 - turns));
			const words = new Int32Array(frame.buffer, frame.byteOffset + at, (frame.length - at) >> 2);
			for (let index = 0; index < words.length; index++) {
				words[index] = (words[index] as number) ^ word;
			}
			at += words.length * 4;
		}
		while (at < frame.length) {
			at = xor(frame, at, begin, mask);
		}
	}
}

/** Masks one byte, and gives the place of the next one. */
function xor(frame: Buffer, at: number, begin: number, mask: number): number {
	frame[at] = (frame[at] as number) ^ (mask >>> (((at - begin) & 3) * 8));
	return at + 1;
}
