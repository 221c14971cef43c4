/** Containers, bytes and records of Python that JavaScript has no type of its own for. */

/** A tuple of Python: an array that goes back as a tuple. */
export class Tuple<T = unknown> extends Array<T> {
	/** Derived arrays (`map`, `slice`) are plain arrays. */
	static override get [Symbol.species](): ArrayConstructor {
		return Array;
	}
}

/** Makes a tuple of its items. */
export function tuple<T>(...items: T[]): Tuple<T>;
export function tuple<T extends unknown[]>(...items: T): Tuple<T[number]>; // of different types
export function tuple(...items: unknown[]): Tuple {
	const result = new Tuple();
	result.push(...items);
	return result;
}

/** A frozenset of Python. */
export class FrozenSet<T = unknown> extends Set<T> {}

/** A bytearray of Python; plain `bytes` are a `Uint8Array`. */
export class ByteArray extends Uint8Array<ArrayBufferLike> {
	static get [Symbol.species](): Uint8ArrayConstructor {
		return Uint8Array;
	}
}

const TYPE: unique symbol = Symbol.for("tidewire.type");

/** Makes an object travel as a record of a type, such as a data class of Python. */
export function record<T extends object>(type: string, fields: T): T {
	Object.defineProperty(fields, TYPE, { value: type, configurable: true });
	return fields;
}

/**
 * The name of the type that a record came with, as "module:qualified.Name"; undefined for other
 * values.
 */
export function typeOf(value: unknown): string | undefined {
	return typeof value === "object" && value !== null ? (value as { [TYPE]?: string })[TYPE] : undefined;
}
