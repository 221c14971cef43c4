/**
 * A hub of a few lines and a clock that stands still, for tests of the core: no socket, no timer.
 */

import type { ConnectOptions } from "../src/connect_options.js";
import { join, type Node } from "../src/node.js";
import type { Shell, Socket, SocketEvents } from "../src/platform/shell.js";
import {
	type Frame,
	fieldBytes,
	type Head,
	type Id,
	Kind,
	readFrames,
	readHead,
	writeFrame,
} from "../src/wire/frames.js";

const NONE: Id = { slot: 0, generation: 0 };
const encoder = new TextEncoder();

export interface Said {
	readonly kind: number;
	readonly head: Head;
	readonly frame: Frame;
}

/** One connection, as the hub sees it. */
export class Connection {
	readonly said: Said[] = [];
	isClosed = false;
	/** True if the hub answers by itself: greets, and sends OK and PONG. */
	isKind = true;

	constructor(
		private readonly events: SocketEvents,
		private readonly world: World,
	) {}

	take(message: Uint8Array): void {
		for (const frame of readFrames(message, 1_048_576)) {
			const said = { kind: frame.kind, head: readHead(frame), frame };
			this.said.push(said);
			this.world.answer(this, said);
		}
	}

	/** Has the client hear a frame, once what runs now has returned. */
	say(kind: Kind, flags: number, id: Id, head: Head, payload?: Uint8Array): void {
		this.raw(writeFrame(kind, flags, id, head, payload));
	}

	raw(bytes: Uint8Array): void {
		if (!this.isClosed) {
			this.events.message(bytes);
		}
	}

	welcome(fields: Record<string, string> = {}): void {
		const said = Object.entries({
			name: "hub",
			resume: "secret",
			node: "3",
			"heartbeat-ms": "5000",
			...fields,
		});
		const payload = fieldBytes(said.map(([name, value]) => [name, encoder.encode(value)]));
		this.say(Kind.WELCOME, 0, NONE, { version: 1 }, payload);
	}

	/** The network is gone. */
	cut(reason = "cut"): void {
		this.isClosed = true;
		this.events.closed(reason);
	}

	of(kind: Kind): Said[] {
		return this.said.filter((one) => one.kind === kind);
	}

	open(): void {
		this.events.opened();
	}
}

/** A clock, and all connections that were opened. */
export class World {
	at = 0;
	readonly connections: Connection[] = [];
	/** True if the hub can be reached. */
	isUp = true;
	welcome: Record<string, string> = {};
	reported: unknown[] = [];
	private wakeAt = Number.POSITIVE_INFINITY;
	private wake: () => void = () => {};
	private seed = 1;

	readonly shell: Shell = {
		now: () => this.at,
		wake: (at, wake) => {
			this.wakeAt = at;
			this.wake = wake;
		},
		soon: queueMicrotask,
		open: (_url, _protocol, events) => this.opens(events),
		randomBytes: (count) => Uint8Array.from({ length: count }, () => this.dice()),
		watch: () => {},
		online: () => () => {},
		report: (error) => this.reported.push(error),
	};

	get last(): Connection {
		return this.connections.at(-1) as Connection;
	}

	join(options: ConnectOptions = {}): Promise<Node> {
		return join(this.shell, "ws://hub", { name: "page", ...options });
	}

	/** Lets time pass, timer by timer. A throttled clock wakes no more often than `throttle`. */
	async pass(ms: number, throttle = 0): Promise<void> {
		const end = this.at + ms;
		await settled();
		for (let wakeAt = this.wakeAt; wakeAt <= end; wakeAt = this.wakeAt) {
			this.at = Math.max(this.at, throttle > 0 ? Math.ceil(wakeAt / throttle) * throttle : wakeAt);
			if (this.at > end) {
				break;
			}
			this.wakeAt = Number.POSITIVE_INFINITY;
			this.wake();
			await settled();
		}
		this.at = end;
	}

	answer(to: Connection, said: Said): void {
		if (!to.isKind) {
			return;
		}
		const { kind, frame } = said;
		const id = { slot: frame.slot, generation: frame.generation };
		queueMicrotask(() => {
			if (kind === Kind.HELLO) {
				to.welcome(this.welcome);
			} else if (kind === Kind.SUBSCRIBE) {
				to.say(Kind.OK, 8, id, {});
			} else if (kind === Kind.PING) {
				to.say(Kind.PONG, 0, id, {});
			}
		});
	}

	private opens(events: SocketEvents): Socket {
		const connection = new Connection(events, this);
		this.connections.push(connection);
		queueMicrotask(() => (this.isUp ? connection.open() : connection.cut("nobody there")));
		return {
			buffered: 0,
			send: (parts) => connection.take(Uint8Array.from(Buffer.concat(parts))),
			close: () => {
				connection.isClosed = true;
			},
		};
	}

	private dice(): number {
		this.seed = (Math.imul(this.seed, 1_103_515_245) + 12_345) >>> 0;
		return this.seed >>> 24;
	}
}

/** Everything that promises still do by themselves is done. */
export async function settled(): Promise<void> {
	for (let turn = 0; turn < 20; turn++) {
		await Promise.resolve();
	}
	await new Promise<void>((resolve) => setImmediate(resolve));
}
