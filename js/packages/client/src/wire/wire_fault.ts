/** Faults of the wire protocol: the rule that a frame breaks. */
import { WireError } from "../generated/errors.js";

/** The rule of `spec/vectors/frames.json` that a frame breaks. */
export type Rule =
	| "frame_long"
	| "frame_short"
	| "kind"
	| "flags"
	| "link_head_bytes"
	| "link_fields"
	| "not_tidewire"
	| "short"
	| "long"
	| "utf8"
	| "subject"
	| "value";

/** A frame that breaks a rule of `spec/wire.md`: the link can't go on. */
export class WireFault extends WireError {
	constructor(
		readonly rule: Rule,
		message: string,
	) {
		super(message);
	}
}
