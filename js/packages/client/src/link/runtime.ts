/** Runtime of a link: passes its actions to the platform, and time and bytes to the link. */
import { TidewireError } from "../error.js";
import { LinkLost, NodeStopped } from "../generated/errors.js";
import type { Shell, Socket } from "../platform/shell.js";
import type { CallContext } from "../services/context.js";
import type { QueuedCall } from "../services/service_instance.js";
import { Link, type LinkEvents, type LinkOptions } from "./link.js";
import type { Session } from "./session.js";
import { Timers } from "./timers.js";

/** While more than this waits at the socket, nothing is handed to it. */
const SOCKET_BYTES = 1_048_576;
const PROTOCOL = "tidewire.v1";

export class Runtime {
	readonly timers = new Timers();
	readonly link: Link;
	private socket: Socket | undefined;
	private isPlanned = false;
	private armed = Number.POSITIVE_INFINITY;
	private waiters: (() => boolean)[] = [];
	private readonly offline: () => void;
	/** Runs a handler within its span; undefined without spans. */
	declare around?: (call: CallContext, work: QueuedCall) => unknown;

	constructor(
		readonly shell: Shell,
		private readonly url: string,
		options: LinkOptions,
		events: LinkEvents,
	) {
		this.link = new Link(options, this.timers, events);
		this.offline = shell.online(() => {
			this.link.retry(this.shell.now());
			this.plan();
		});
	}

	get now(): number {
		return this.shell.now();
	}

	/** The link as it is now; throws if there is none. */
	get session(): Session {
		const session = this.link.session;
		if (session === undefined) {
			throw this.link.state === "closed"
				? new NodeStopped("the node was closed: connect again")
				: new LinkLost(this.link.problem);
		}
		return session;
	}

	start(): void {
		this.link.start(this.now);
		this.pump();
	}

	/** Ends the link for good. */
	close(): void {
		this.link.close();
		this.pump();
		this.offline();
	}

	/**
	 * Writes the queued frames once the program that runs now has returned: many calls go in one
	 * message.
	 */
	plan(): void {
		if (!this.isPlanned) {
			this.isPlanned = true;
			this.shell.soon(() => {
				this.isPlanned = false;
				this.pump();
			});
		}
	}

	/** Asks again whenever something was written, until the answer is true. */
	when(check: () => boolean): void {
		if (!check()) {
			this.waiters.push(check);
		}
	}

	private pump(): void {
		for (;;) {
			const mayWrite = this.socket !== undefined && this.socket.buffered < SOCKET_BYTES;
			const action = this.link.action(this.now, mayWrite);
			if (action === undefined) {
				break;
			}
			if (action.do === "connect") {
				this.open();
			} else if (action.do === "send") {
				this.socket?.send(action.parts);
			} else {
				const socket = this.socket;
				this.socket = undefined;
				socket?.close(action.code);
			}
		}
		if (this.waiters.length > 0) {
			const waiters = this.waiters;
			this.waiters = [];
			this.waiters.push(...waiters.filter((check) => !check()));
		}
		this.arm();
	}

	private arm(): void {
		const next = this.link.state === "closed" ? Number.POSITIVE_INFINITY : this.timers.next;
		// A timer that comes too soon finds nothing, and costs less than setting another one for
		// each call.
		if (next < this.armed || next === Number.POSITIVE_INFINITY) {
			this.armed = next;
			this.shell.wake(next, this.wake);
		}
	}

	private readonly wake = (): void => {
		this.armed = Number.POSITIVE_INFINITY;
		this.timers.fire(this.now);
		this.pump();
	};

	private open(): void {
		let own: Socket | undefined;
		const isOwn = (): boolean => own !== undefined && this.socket === own;
		const begin = (run: () => void): void => {
			if (isOwn()) {
				run();
				this.plan();
			}
		};
		try {
			own = this.shell.open(this.url, PROTOCOL, {
				opened: () => begin(() => this.link.opened()),
				message: (bytes) => begin(() => this.link.received(bytes, this.now)),
				drained: () => begin(() => {}),
				closed: (reason) =>
					begin(() => {
						this.socket = undefined;
						this.link.disconnected(reason, this.now);
					}),
			});
			this.socket = own;
		} catch (error) {
			if (error instanceof TidewireError) {
				this.link.close(error);
				return;
			}
			this.link.disconnected(error instanceof Error ? error.message : String(error), this.now);
		}
	}
}
