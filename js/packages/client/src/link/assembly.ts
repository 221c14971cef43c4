/** Puts payloads together that come in chunks, and asks for more as they come. */

import { LINK_WINDOW_BYTES } from "../generated/limits.js";
import { Flag, Frame, type Id, Kind } from "../wire/frames.js";

interface Coming {
	/** The frame that it began with. */
	readonly frame: Frame;
	readonly bytes: Uint8Array;
	at: number;
	/** Up to where the sender may send. */
	granted: number;
	/** Bytes received since the last request to the sender for more. */
	unasked: number;
}

/** Result of one received frame. */
export type Progress =
	| {
			readonly is: "whole";
			readonly frame: Frame;
			readonly payload: Uint8Array;
	  }
	| { readonly is: "more"; readonly ask: number }
	| { readonly is: "too_long" | "too_many"; readonly bytes: number }
	| { readonly is: "skipped" };

const SKIPPED: Progress = { is: "skipped" };

export class Assemblies {
	private readonly coming = new Map<string, Coming>();
	private bytes = 0;

	/** @param payloadMax The longest payload, and how much all that come may have together. */
	constructor(private readonly payloadMax: number) {}

	/** Takes a frame that has a payload, or states one. */
	take(frame: Frame): Progress {
		if (!frame.stated) {
			return { is: "whole", frame, payload: frame.payload };
		}
		const bytes = frame.total;
		if (bytes > this.payloadMax) {
			return { is: "too_long", bytes };
		}
		if (bytes + this.bytes > this.payloadMax) {
			return { is: "too_many", bytes };
		}
		this.bytes += bytes;
		// Its head is stored, and its buffer may be used again.
		const copy = frame.bytes.slice(frame.at, frame.end);
		const own = new Frame(new DataView(copy.buffer), copy, 0, frame.headEnd - frame.at, copy.length);
		this.coming.set(keyOf(frame, frame.answer), {
			frame: own,
			bytes: new Uint8Array(bytes),
			at: 0,
			granted: LINK_WINDOW_BYTES,
			unasked: 0,
		});
		return SKIPPED;
	}

	/** Takes a chunk. */
	chunk(frame: Frame): Progress {
		const key = keyOf(frame, frame.answer);
		const coming = this.coming.get(key);
		const part = frame.payload;
		if (coming === undefined) {
			return SKIPPED;
		}
		const isLast = (frame.flags & Flag.MORE) === 0;
		const end = coming.at + part.length;
		if (end > coming.granted || isLast !== (end === coming.bytes.length)) {
			this.forget(frame, frame.answer);
			return { is: "too_long", bytes: -1 };
		}
		coming.bytes.set(part, coming.at);
		coming.at = end;
		if (isLast) {
			this.forget(frame, frame.answer);
			return { is: "whole", frame: coming.frame, payload: coming.bytes };
		}
		coming.unasked += part.length;
		if (coming.unasked < LINK_WINDOW_BYTES / 2) {
			return SKIPPED;
		}
		// The hub collects what the receivers of a published payload ask for; of any other, what is
		// asked for beyond its end would count for the next one.
		const rest =
			coming.frame.kind === Kind.PUBLISH ? coming.unasked : Math.max(0, coming.bytes.length - coming.granted);
		const ask = Math.min(coming.unasked, rest);
		coming.unasked = 0;
		coming.granted += ask;
		return ask > 0 ? { is: "more", ask } : SKIPPED;
	}

	/** True if a payload of an exchange is arriving: then no other may begin. */
	has(id: Id, answer: boolean): boolean {
		return this.coming.size > 0 && this.coming.has(keyOf(id, answer));
	}

	forget(id: Id, answer: boolean): void {
		if (this.coming.size === 0) {
			return;
		}
		const key = keyOf(id, answer);
		const coming = this.coming.get(key);
		if (coming !== undefined) {
			this.bytes -= coming.bytes.length;
			this.coming.delete(key);
		}
	}
}

function keyOf(id: Id, answer: boolean): string {
	return `${id.slot}/${id.generation}/${answer}`;
}
