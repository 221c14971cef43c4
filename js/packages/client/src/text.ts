/** Text as UTF-8: encoding, decoding, and its length. */
const encoder = new TextEncoder();
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const lenient = new TextDecoder("utf-8", { ignoreBOM: true });
/**
 * Text up to this length is read and written by hand: a call of the platform's coder takes longer
 * than that.
 */
const SHORT = 48;
const LONE = /[\ud800-\udfff]/u;

/** True if text has half a pair of surrogates, which UTF-8 can't encode. */
export function isBroken(text: string): boolean {
	return LONE.test(text);
}

/** Bytes of text in UTF-8. */
export function utf8Length(text: string): number {
	let bytes = text.length;
	for (let at = 0; at < text.length; at++) {
		const code = text.charCodeAt(at);
		if (code > 0x7f) {
			bytes += code > 0x7ff && (code < 0xd800 || code > 0xdfff) ? 2 : 1;
		}
	}
	return bytes;
}

export function encode(text: string): Uint8Array {
	return encoder.encode(text);
}

/** Writes text at a place with room for three bytes of each unit, and gives the number of bytes. */
export function encodeInto(text: string, into: Uint8Array, at: number): number {
	if (text.length <= SHORT) {
		let plain = 0;
		for (; plain < text.length; plain++) {
			const code = text.charCodeAt(plain);
			if (code > 0x7f) {
				break;
			}
			into[at + plain] = code;
		}
		if (plain === text.length) {
			return plain;
		}
	}
	return encoder.encodeInto(text, into.subarray(at)).written;
}

/** Reads text, or gives undefined where it is not UTF-8. */
export function decode(bytes: Uint8Array, from: number, to: number): string | undefined {
	if (to - from <= SHORT) {
		let text = "";
		let at = from;
		for (; at < to; at++) {
			const code = bytes[at] as number;
			if (code > 0x7f) {
				break;
			}
			text += String.fromCharCode(code);
		}
		if (at === to) {
			return text;
		}
	}
	try {
		return strict.decode(bytes.subarray(from, to));
	} catch {
		return undefined;
	}
}

/** Reads text; what is not UTF-8 becomes U+FFFD. */
export function decodeLenient(bytes: Uint8Array): string {
	return lenient.decode(bytes);
}
