/**
 * The link of a node: joins its hub, greets it, and joins it again once it is lost. Time and bytes
 * go in, actions come out.
 */
import { TidewireError } from "../error.js";
import { InvalidArgument, LinkLost, NameTaken, Unauthorized, VersionMismatch, WireError } from "../generated/errors.js";
import * as limits from "../generated/limits.js";
import type { Parts } from "../platform/shell.js";
import { decodeLenient, encode } from "../text.js";
import {
	type Fields,
	fieldBytes,
	fieldNumber,
	fieldText,
	Kind,
	readFrames,
	readHead,
	VERSION,
	writeFrame,
} from "../wire/frames.js";
import { type Agreed, errorOfNumber, type SessionEvents } from "./exchanges.js";
import { Session } from "./session.js";
import type { Timer, Timers } from "./timers.js";

/** Actions for the socket. */
export type Action =
	| { readonly do: "connect" }
	| { readonly do: "send"; readonly parts: Parts }
	| { readonly do: "disconnect"; readonly code: number };

/** Settings of a link. */
export interface LinkOptions {
	readonly name: string;
	readonly token: string | undefined;
	/** How long the first hub is looked for, in ms; 0: it is there, or not. */
	readonly joinTimeoutMs: number;
	readonly heartbeatMs: number;
	readonly backoffMs: number;
	readonly backoffMaxMs: number;
	readonly payloadBytes: number;
	/** A number from 0 to 1, other each time. */
	readonly random: () => number;
}

/** Hub that a node has joined. */
export interface Joined {
	readonly hub: string;
	readonly node: number;
}

export interface LinkEvents extends SessionEvents {
	joined(joined: Joined, session: Session, now: number): void;
	/** The link was lost, and is looked for again. */
	lost(reason: string, now: number): void;
	/** There is no link, and none will come. */
	closed(error: TidewireError | undefined): void;
}

type State = "idle" | "connecting" | "greeting" | "joined" | "waiting" | "closed";

const NO_ID = { slot: 0, generation: 0 };
const NORMAL_CLOSE = 1000;
const WRONG = 4000;
/** A hub that says one of these says it again. */
const FINAL = [Unauthorized, VersionMismatch, NameTaken, InvalidArgument];

export class Link {
	session: Session | undefined;
	state: State = "idle";
	private readonly actions: Action[] = [];
	private attempt = 0;
	private hasJoined = false;
	private resume: string | undefined;
	private giveUpAt = 0;
	private timer: Timer | undefined;
	private heart: Timer | undefined;
	private lastProblem = "";

	constructor(
		private readonly options: LinkOptions,
		private readonly timers: Timers,
		private readonly events: LinkEvents,
	) {}

	/**
	 * The next action; undefined if there is none. Messages of the session wait while `mayWrite`
	 * is false.
	 */
	action(now: number, mayWrite: boolean): Action | undefined {
		const action = this.actions.shift();
		if (action !== undefined || !mayWrite || this.state !== "joined") {
			return action;
		}
		const parts = this.session?.take(now);
		return parts && { do: "send", parts };
	}

	start(now: number): void {
		this.giveUpAt = now + this.options.joinTimeoutMs;
		this.connect(now);
	}

	/** The socket is open. */
	opened(): void {
		if (this.state !== "connecting") {
			return;
		}
		this.state = "greeting";
		const { name, token, heartbeatMs, payloadBytes } = this.options;
		const settings: [string, string][] = [
			["name", name],
			["in-flight", String(limits.LINK_IN_FLIGHT)],
			["frame-bytes", String(limits.LINK_FRAME_BYTES)],
			["payload-bytes", String(payloadBytes)],
			["heartbeat-ms", String(heartbeatMs)],
		];
		if (token !== undefined) {
			settings.push(["token", token]);
		}
		if (this.resume !== undefined) {
			settings.push(["resume", this.resume]);
		}
		const fields: Fields = settings.map(([key, value]) => [key, encode(value)]);
		this.send(writeFrame(Kind.HELLO, 0, NO_ID, { oldest: VERSION, newest: VERSION }, fieldBytes(fields)));
	}

	/** A message of the hub. */
	received(message: Uint8Array, now: number): void {
		try {
			if (this.state === "joined") {
				this.session?.received(message, now);
				this.beat();
			} else if (this.state === "greeting") {
				this.greeted(message, now);
			}
		} catch (error) {
			if (!(error instanceof TidewireError)) {
				throw error;
			}
			this.fault(error, now);
		}
	}

	/** The socket has closed, or could not be opened. */
	disconnected(reason: string, now: number): void {
		if (this.state === "connecting" || this.state === "greeting" || this.state === "joined") {
			this.rejoin(new LinkLost(reason), now);
		}
	}

	/** The system says that there is a network again. */
	retry(now: number): void {
		if (this.state === "waiting") {
			this.timers.cancel(this.timer);
			this.connect(now);
		}
	}

	/** Ends the link for good. */
	close(error?: TidewireError): void {
		if (this.state === "closed") {
			return;
		}
		const had = this.state;
		this.state = "closed";
		this.timers.cancel(this.timer);
		this.timers.cancel(this.heart);
		if (had !== "idle" && had !== "waiting") {
			this.actions.push({ do: "disconnect", code: NORMAL_CLOSE });
		}
		this.session?.lost("the node was closed");
		this.session = undefined;
		this.events.closed(error);
	}

	private connect(now: number): void {
		this.state = "connecting";
		this.attempt++;
		this.actions.push({ do: "connect" });
		this.timer = this.timers.add(now + limits.LINK_GREETING_MS, (at) => {
			this.actions.push({ do: "disconnect", code: WRONG });
			this.rejoin(new LinkLost(`the hub did not answer within ${limits.LINK_GREETING_MS} ms`), at);
		});
	}

	private greeted(message: Uint8Array, now: number): void {
		let rest = message;
		for (const frame of readFrames(message, limits.LINK_FRAME_BYTES)) {
			const head = readHead(frame);
			if (frame.kind === Kind.ERROR) {
				throw errorOfNumber(head.number as number, decodeLenient(frame.payload));
			}
			if (frame.kind !== Kind.WELCOME || head.version !== VERSION) {
				throw new WireError("the hub's first frame is no WELCOME of a version that was offered");
			}
			rest = message.subarray(frame.end);
			this.welcomed(head.fields as Fields, now);
			break;
		}
		if (rest.length > 0 && this.session !== undefined) {
			this.session.received(rest, now);
			this.beat();
		}
	}

	private welcomed(fields: Fields, now: number): void {
		this.timers.cancel(this.timer);
		const of = (name: string): string[] => (fieldText(fields, name) ?? "").split(" ").filter(Boolean);
		const agreed: Agreed = {
			inFlight: Math.min(fieldNumber(fields, "in-flight", limits.LINK_IN_FLIGHT), 2 ** 20),
			ownInFlight: limits.LINK_IN_FLIGHT,
			frameBytes: limits.LINK_FRAME_BYTES,
			theirFrameBytes: Math.max(fieldNumber(fields, "frame-bytes", limits.LINK_FRAME_BYTES), 131_072),
			payloadBytes: this.options.payloadBytes,
			theirPayloadBytes: fieldNumber(fields, "payload-bytes", limits.PAYLOAD_BYTES),
			heartbeatMs: this.options.heartbeatMs,
			theirHeartbeatMs: Math.max(fieldNumber(fields, "heartbeat-ms", limits.LINK_HEARTBEAT_MS), 50),
			publish: fieldText(fields, "publish") === undefined ? undefined : of("publish"),
			ofToken: of("of-token"),
		};
		this.resume = fieldText(fields, "resume");
		this.state = "joined";
		this.hasJoined = true;
		this.attempt = 0;
		this.session = new Session(agreed, this.timers, this.events, now);
		this.beat();
		const joined = {
			hub: fieldText(fields, "name") ?? "",
			node: fieldNumber(fields, "node", 0),
		};
		this.events.joined(joined, this.session, now);
	}

	/** Looks after the signs of life when they are due. */
	private beat(): void {
		const at = this.session?.nextAt ?? 0;
		if (this.heart !== undefined && this.heart.place >= 0 && this.heart.at <= at) {
			return;
		}
		this.timers.cancel(this.heart);
		this.heart = this.timers.add(at, (now) => {
			if (this.session === undefined || this.state !== "joined") {
				return;
			}
			if (this.session.tick(now)) {
				this.beat();
				return;
			}
			this.actions.push({ do: "disconnect", code: WRONG });
			this.rejoin(new LinkLost(`nothing was heard of the hub for ${2 * this.options.heartbeatMs} ms`), now);
		});
	}

	/** The hub breaks a rule, or says that it closes the link. */
	private fault(error: TidewireError, now: number): void {
		const number = error instanceof WireError ? 27 : 14;
		if (error.name === "WireError" || error.name === "LimitExceeded") {
			this.send(writeFrame(Kind.ERROR, 0, NO_ID, { number }, encode(error.message)));
		}
		this.actions.push({ do: "disconnect", code: WRONG });
		this.rejoin(error, now);
	}

	/** Ends the session, and joins again after a backoff unless the error is final. */
	private rejoin(error: TidewireError, now: number): void {
		const wasJoined = this.state === "joined";
		this.timers.cancel(this.timer);
		this.timers.cancel(this.heart);
		const session = this.session;
		this.session = undefined;
		this.state = "waiting";
		this.lastProblem = error.message;
		session?.lost(`the link to the hub was lost: ${error.message}`);
		if (wasJoined) {
			this.events.lost(error.message, now);
		}
		if ((this.state as State) === "closed") {
			return;
		}
		if (FINAL.some((kind) => error instanceof kind) && !(wasJoined && error instanceof NameTaken)) {
			this.close(error);
			return;
		}
		const wait = this.backoff();
		if (!this.hasJoined && now + wait > this.giveUpAt) {
			this.close(error);
			return;
		}
		this.timer = this.timers.add(now + wait, (at) => this.connect(at));
	}

	/** Doubles, less a random part of up to a half. */
	private backoff(): number {
		const { backoffMs, backoffMaxMs, random } = this.options;
		const whole = Math.min(backoffMaxMs, backoffMs * 2 ** Math.min(20, Math.max(0, this.attempt - 1)));
		return whole * (1 - random() / 2);
	}

	/** Why there is no link. */
	get problem(): string {
		return this.lastProblem === ""
			? "there is no link to a hub yet"
			: `the link to the hub is lost: ${this.lastProblem}`;
	}

	private send(bytes: Uint8Array): void {
		this.actions.push({ do: "send", parts: [bytes] });
	}
}
