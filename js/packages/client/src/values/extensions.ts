/** The numbers of `spec/values.md`'s extensions, and how values of rare kinds write themselves. */
import { InvalidArgument } from "../generated/errors.js";

/** The numbers of the extensions. */
export const enum Ext {
	TIMESTAMP = -1,
	TUPLE = 1,
	SET = 2,
	FROZENSET = 3,
	BYTEARRAY = 4,
	BUFFER = 5,
	BYTEARRAY_BUFFER = 6,
	MOMENT = 7,
	LOCAL_TIME = 8,
	DATE = 9,
	TIME_OF_DAY = 10,
	DURATION = 11,
	DECIMAL = 12,
	UUID = 13,
	COMPLEX = 15,
	RECORD = 16,
	ENUM = 17,
	ERROR = 18,
	ARRAY = 19,
	SCALAR = 20,
	REFERENCE = 21,
}

/** The first byte of a value with buffers; it begins no MessagePack value. */
export const BLOB = 0xc1;
export const BLOB_VERSION = 1;
export const BLOB_HEAD = 16;
export const DAYS_MIN = -719_162;
export const DAYS_MAX = 2_932_896;
export const DAY_MICROS = 86_400_000_000;

/**
 * The name of the method by which a value writes itself: whoever has such a value has the code of
 * its class.
 */
export const WRITE: unique symbol = Symbol("write");

/** A value that writes itself. */
export interface Writable {
	[WRITE](out: ValueWriter): void;
}

/** Writer for a value that writes itself. */
export interface ValueWriter {
	/** An extension that is told apart by its length. */
	short(kind: number, write: () => void): void;
	/** A moment of UTC. */
	timestamp(date: Date, micros: number): void;
	/** An array of NumPy. */
	array(dtype: string, shape: readonly number[], order: string, data: ArrayBufferView): void;
	/** The milliseconds of a date; refuses an invalid one. */
	milliseconds(date: Date): number;
	i32(value: number): void;
	i64(value: bigint): void;
	f64(value: number): void;
	copy(bytes: Uint8Array): void;
}

const TYPED = /^(?:Big)?(Int|Uint|Float(?!16))(\d+)(?:Clamped)?Array$/;

/** NumPy's text for the elements of a typed array. */
export function dtypeOf(data: ArrayBufferView): string {
	const [, kind, bits] = TYPED.exec(Object.prototype.toString.call(data).slice(8, -1)) ?? [];
	if (kind === undefined) {
		throw new InvalidArgument("data: it is no typed array that travels: use one of 8, 16, 32 or 64 bits");
	}
	return `${bits === "8" ? "|" : "<"}${kind.charAt(0).toLowerCase()}${Number(bits) / 8}`;
}
