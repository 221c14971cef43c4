/** Inflates payloads that are compressed as section 11 of `spec/wire.md` says. */
import { WireError } from "../generated/errors.js";
import { LINK_COMPRESSED_BYTES } from "../generated/limits.js";

const BLOCK = 65_536;

/**
 * Inflates a payload; nothing is allocated before the length that it states is known to be allowed.
 */
export function inflate(packed: Uint8Array, payloadBytesMax: number): Uint8Array {
	const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
	if (packed.length < 8) {
		throw broken("it ends within its length");
	}
	const total = view.getUint32(4, true) * 2 ** 32 + view.getUint32(0, true);
	if (total > Math.min(payloadBytesMax, LINK_COMPRESSED_BYTES)) {
		throw broken(`it states ${total} bytes, which are too many`);
	}
	// Each byte of a block inflates to 255 at most.
	if (total > (packed.length - 8) * 255) {
		throw broken(`it states ${total} bytes, and is too short for them`);
	}
	const out = new Uint8Array(total);
	let at = 8;
	for (let done = 0; done < total; done += BLOCK) {
		const share = Math.min(BLOCK, total - done);
		const length = at + 4 <= packed.length ? view.getUint32(at, true) : -1;
		at += 4;
		if (length < 0 || length > share + Math.floor(share / 255) + 16 || at + length > packed.length) {
			throw broken("a block is too long, or ends too soon");
		}
		inflateBlock(packed, at, at + length, out, done, done + share);
		at += length;
	}
	if (at !== packed.length) {
		throw broken("bytes follow its last block");
	}
	return out;
}

function inflateBlock(
	from: Uint8Array,
	begin: number,
	end: number,
	out: Uint8Array,
	first: number,
	last: number,
): void {
	let [at, to] = [begin, first];
	const long = (start: number): number => {
		let length = start;
		let byte = 255;
		while (byte === 255) {
			if (at >= end) {
				throw broken("a block ends within a length");
			}
			byte = from[at++] as number;
			length += byte;
		}
		return length;
	};
	while (at < end) {
		const token = from[at++] as number;
		const literals = token >> 4 === 15 ? long(15) : token >> 4;
		if (at + literals > end || to + literals > last) {
			throw broken("a block has literals beyond its end");
		}
		out.set(from.subarray(at, at + literals), to);
		at += literals;
		to += literals;
		if (at === end) {
			break;
		}
		if (at + 2 > end) {
			throw broken("a block ends within an offset");
		}
		const offset = (from[at] as number) | ((from[at + 1] as number) << 8);
		at += 2;
		const length = ((token & 15) === 15 ? long(15) : token & 15) + 4;
		if (offset === 0 || offset > to - first || to + length > last) {
			throw broken("a block refers to what is outside of it");
		}
		if (offset >= length) {
			out.copyWithin(to, to - offset, to - offset + length);
			to += length;
		} else {
			for (const stop = to + length; to < stop; to++) {
				out[to] = out[to - offset] as number;
			}
		}
	}
	if (to !== last) {
		throw broken("a block inflates to fewer bytes than its share");
	}
}

function broken(text: string): WireError {
	return new WireError(`a compressed payload can't be read: ${text}`);
}
