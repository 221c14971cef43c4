/** Values of Python that JavaScript has no type of its own for. */
import { InvalidArgument } from "../generated/errors.js";

/** A tuple of Python: an array that goes back as a tuple. */
export class Tuple<T = unknown> extends Array<T> {
	/** What is made of it (`map`, `slice`) is a plain array. */
	static override get [Symbol.species](): ArrayConstructor {
		return Array;
	}
}

/** Makes a tuple of its items. */
export function tuple<T>(...items: T[]): Tuple<T> {
	const made = new Tuple<T>();
	made.push(...items);
	return made;
}

/** A frozenset of Python. */
export class FrozenSet<T = unknown> extends Set<T> {}

/** A bytearray of Python; plain `bytes` are a `Uint8Array`. */
export class ByteArray extends Uint8Array<ArrayBufferLike> {
	static get [Symbol.species](): Uint8ArrayConstructor {
		return Uint8Array;
	}
}

const DAY_MS = 86_400_000;
const pad = (value: number, digits = 2): string => String(value).padStart(digits, "0");

/**
 * A moment with the microseconds that a `Date` has no room for, and with the offset of its clock from UTC if that travels, too.
 * Moments of whole milliseconds in UTC come as a plain `Date`.
 */
export class DateTime extends Date {
	/**
	 * @param ms Milliseconds since 1970 in UTC.
	 * @param micros Further microseconds, 0 to 999.
	 * @param offsetMicros Offset from UTC in microseconds; undefined for a time in UTC.
	 */
	constructor(
		ms: number,
		readonly micros: number = 0,
		readonly offsetMicros: number | undefined = undefined,
	) {
		super(ms);
		if (!Number.isInteger(micros) || micros < 0 || micros > 999) {
			throw new InvalidArgument(`micros: ${micros} is not allowed: give a whole number from 0 to 999`);
		}
	}

	/** Microseconds since 1970 in UTC. */
	get epochMicros(): bigint {
		return BigInt(this.getTime()) * 1000n + BigInt(this.micros);
	}
}

/** A date and a time on a clock of no zone. */
export class LocalDateTime {
	/** @param epochMicros Microseconds since 1970-01-01 00:00 on the same clock. */
	constructor(readonly epochMicros: bigint) {}

	/** As in ISO 8601, without a zone. */
	toString(): string {
		const [ms, micros] = divided(this.epochMicros, 1000n);
		return `${new Date(Number(ms)).toISOString().slice(0, -1)}${pad(micros, 3)}`;
	}
}

/** A date of the calendar. */
export class LocalDate {
	/** @param days Days since 1970-01-01. */
	constructor(readonly days: number) {}

	static of(year: number, month: number, day: number): LocalDate {
		const date = new Date(0);
		date.setUTCFullYear(year, month - 1, day);
		return new LocalDate(date.getTime() / DAY_MS);
	}

	/** As in ISO 8601. */
	toString(): string {
		const date = new Date(this.days * DAY_MS);
		return `${pad(date.getUTCFullYear(), 4)}-${pad(date.getUTCMonth() + 1)}-${pad(date.getUTCDate())}`;
	}
}

/** A time of day. */
export class LocalTime {
	/**
	 * @param micros Microseconds since midnight.
	 * @param offsetMicros Offset from UTC in microseconds; undefined without a zone.
	 */
	constructor(
		readonly micros: number,
		readonly offsetMicros: number | undefined = undefined,
	) {}

	/** As in ISO 8601, without the offset. */
	toString(): string {
		const seconds = Math.floor(this.micros / 1_000_000);
		const clock = `${pad(Math.floor(seconds / 3600))}:${pad(Math.floor(seconds / 60) % 60)}:${pad(seconds % 60)}`;
		const micros = this.micros % 1_000_000;
		return micros === 0 ? clock : `${clock}.${pad(micros, 6)}`;
	}
}

/** A length of time, as a timedelta of Python has it. */
export class Duration {
	/**
	 * @param days Whole days, which may be negative.
	 * @param seconds 0 to 86,399.
	 * @param micros 0 to 999,999.
	 */
	constructor(
		readonly days: number,
		readonly seconds: number = 0,
		readonly micros: number = 0,
	) {}

	static ofMs(ms: number): Duration {
		const micros = Math.round(ms * 1000);
		const days = Math.floor(micros / (DAY_MS * 1000));
		const rest = micros - days * DAY_MS * 1000;
		return new Duration(days, Math.floor(rest / 1_000_000), rest % 1_000_000);
	}

	/** Milliseconds, with a fraction for microseconds. */
	get ms(): number {
		return this.days * DAY_MS + this.seconds * 1000 + this.micros / 1000;
	}
}

const DECIMAL = /^[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|s?nan\d*)$/i;

/** A decimal number as text, with all its digits. */
export class Decimal {
	/** @param text Its digits, such as "-1.50". */
	constructor(readonly text: string) {
		if (!DECIMAL.test(text)) {
			throw new InvalidArgument(
				`decimal: ${JSON.stringify(text.slice(0, 40))} is no number: write digits like "-1.50"`,
			);
		}
	}

	toString(): string {
		return this.text;
	}

	toJSON(): string {
		return this.text;
	}

	/** The nearest number of JavaScript. */
	toNumber(): number {
		return Number(this.text.replace(/^([+-]?)inf(inity)?$/i, "$1Infinity"));
	}
}

/** A UUID. */
export class UUID {
	/** Its 16 bytes. */
	readonly bytes: Uint8Array;

	/** @param of 32 hexadecimal digits, with hyphens or without, or 16 bytes. */
	constructor(of: string | Uint8Array) {
		if (typeof of !== "string") {
			if (of.length !== 16) {
				throw new InvalidArgument(`uuid: ${of.length} bytes are not allowed: give 16`);
			}
			this.bytes = of;
			return;
		}
		const digits = of.replaceAll("-", "");
		if (!/^[0-9a-f]{32}$/i.test(digits)) {
			throw new InvalidArgument(`uuid: ${JSON.stringify(of.slice(0, 60))} is not allowed: give 32 hexadecimal digits`);
		}
		this.bytes = Uint8Array.from({ length: 16 }, (_, at) => Number.parseInt(digits.slice(at * 2, at * 2 + 2), 16));
	}

	toString(): string {
		const digits = Array.from(this.bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
		return digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
	}

	toJSON(): string {
		return this.toString();
	}
}

/** A complex number. */
export class Complex {
	constructor(
		readonly real: number,
		readonly imaginary: number,
	) {}
}

const TYPE: unique symbol = Symbol.for("tidewire.type");

/** Makes an object travel as a record of a type, such as a data class of Python. */
export function record<T extends object>(type: string, fields: T): T {
	Object.defineProperty(fields, TYPE, { value: type, configurable: true });
	return fields;
}

/** The name of the type that a record came with, as "module:qualified.Name"; undefined for other values. */
export function typeOf(value: unknown): string | undefined {
	return typeof value === "object" && value !== null ? (value as { [TYPE]?: string })[TYPE] : undefined;
}

/** The typed arrays that travel. */
export type TypedArray =
	| Int8Array
	| Uint8Array
	| Int16Array
	| Uint16Array
	| Int32Array
	| Uint32Array
	| BigInt64Array
	| BigUint64Array
	| Float32Array
	| Float64Array;

/**
 * An array of NumPy. A bare typed array (but `Uint8Array`, which is bytes) travels as one of one dimension.
 *
 * `data` is a typed array of the elements where JavaScript has one: complex numbers are pairs in it, booleans bytes, moments and durations of
 * NumPy `BigInt64Array`s. Of other dtypes (half floats, text) it has the bytes. Elements of the other byte order are swapped when they come.
 */
export class NdArray<T extends TypedArray = TypedArray> {
	readonly shape: readonly number[];
	/** NumPy's text, such as "<f8" or "|b1". */
	readonly dtype: string;

	/**
	 * @param data The elements.
	 * @param shape The lengths of its dimensions; one dimension if nothing is said.
	 * @param dtype NumPy's text; that of `data` if nothing is said.
	 * @param order "C": the last index runs fastest; "F": the first.
	 */
	constructor(
		readonly data: T,
		shape?: readonly number[],
		dtype?: string,
		readonly order: "C" | "F" = "C",
	) {
		this.dtype = dtype ?? dtypeOf(data);
		const size = itemBytes(this.dtype);
		if (size === undefined) {
			throw new InvalidArgument(
				`dtype: ${JSON.stringify(this.dtype)} is not allowed: give one like "<f8", "|b1" or "<M8[us]"`,
			);
		}
		this.shape = shape ?? [data.byteLength / size];
		const count = this.shape.reduce((all, length) => all * length, 1);
		if (count * size !== data.byteLength || this.shape.some((length) => !Number.isSafeInteger(length) || length < 0)) {
			throw new InvalidArgument(
				`shape: [${this.shape.join(", ")}] of ${this.dtype} does not fit data of ${data.byteLength} bytes`,
			);
		}
	}
}

interface TypedArrayMaker {
	new (buffer: ArrayBufferLike, at: number, length: number): TypedArray;
	readonly BYTES_PER_ELEMENT: number;
}

const MAKERS: Readonly<Record<string, TypedArrayMaker>> = {
	b1: Uint8Array,
	i1: Int8Array,
	u1: Uint8Array,
	i2: Int16Array,
	u2: Uint16Array,
	i4: Int32Array,
	u4: Uint32Array,
	i8: BigInt64Array,
	u8: BigUint64Array,
	f4: Float32Array,
	f8: Float64Array,
	c8: Float32Array,
	c16: Float64Array,
	m8: BigInt64Array,
	M8: BigInt64Array,
};
const DTYPE = /^([<>|=])([biufcmMSU])(\d{1,9})(\[(\d+)?[a-zA-Z]{1,7}\])?$/;

/** Bytes of one element, or undefined for what is no dtype that travels. */
export function itemBytes(dtype: string): number | undefined {
	const parts = DTYPE.exec(dtype);
	if (parts === null) {
		return undefined;
	}
	const [, , kind, digits, unit] = parts as unknown as [string, string, string, string, string | undefined];
	const size = Number(digits);
	if (unit !== undefined && kind !== "m" && kind !== "M") {
		return undefined;
	}
	if (kind === "S") {
		return size;
	}
	if (kind === "U") {
		return size * 4;
	}
	return `${kind}${size}` in MAKERS || (kind === "f" && size === 2) ? size : undefined;
}

function dtypeOf(data: TypedArray): string {
	for (const [name, maker] of Object.entries(MAKERS)) {
		if (name !== "b1" && data instanceof (maker as unknown as { new (): TypedArray })) {
			return `${data.BYTES_PER_ELEMENT === 1 ? "|" : "<"}${name}`;
		}
	}
	throw new InvalidArgument("data: it is no typed array that travels: use one of 8, 16, 32 or 64 bits");
}

/** Makes the typed array of elements where they lie, or of a copy where they don't lie as it needs them. */
export function elements(bytes: Uint8Array, dtype: string): { data: TypedArray; dtype: string } {
	const maker = MAKERS[dtype.slice(1).replace(/\[.*/, "")];
	if (maker === undefined) {
		return { data: bytes, dtype };
	}
	const size = maker.BYTES_PER_ELEMENT;
	const swapped = dtype.startsWith(">") && size > 1;
	const lies = !swapped && bytes.byteOffset % size === 0 ? bytes : bytes.slice();
	if (swapped) {
		for (let at = 0; at < lies.length; at += size) {
			lies.subarray(at, at + size).reverse();
		}
	}
	const data = new maker(lies.buffer, lies.byteOffset, lies.length / size);
	return { data, dtype: swapped ? `<${dtype.slice(1)}` : dtype };
}

/** The quotient rounded down, and what is left of it. */
export function divided(value: bigint, by: bigint): [quotient: bigint, rest: number] {
	const rest = ((value % by) + by) % by;
	return [(value - rest) / by, Number(rest)];
}
