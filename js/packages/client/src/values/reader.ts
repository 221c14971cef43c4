/** Reads values as `spec/values.md` says, and believes no length before that many bytes are there. */
import { TidewireError } from "../error.js";
import { InvalidArgument, WireError } from "../generated/errors.js";
import { VALUE_DEPTH } from "../generated/limits.js";
import { decode } from "../text.js";
import { BLOB, BLOB_HEAD, BLOB_VERSION, DAY_MICROS, DAYS_MAX, DAYS_MIN, Ext } from "./extensions.js";
import { buildError } from "./failures.js";
import {
	ByteArray,
	Complex,
	DateTime,
	Decimal,
	Duration,
	divided,
	elements,
	FrozenSet,
	itemBytes,
	LocalDate,
	LocalDateTime,
	LocalTime,
	NdArray,
	record,
	Tuple,
	UUID,
} from "./kinds.js";

/** Makes something of what stands for a function or an object. */
export type Take = (stands: unknown) => unknown;

const SECONDS_MIN = BigInt(DAYS_MIN) * 86_400n;
const SECONDS_END = BigInt(DAYS_MAX + 1) * 86_400n;

/** Reads a value. Long bytes and arrays are not copied: they lie in what was read. */
export function readValue(blob: Uint8Array, take?: Take): unknown {
	try {
		return new Reader(blob, take).whole();
	} catch (error) {
		// What was read is not what the caller gave.
		if (error instanceof TidewireError && !(error instanceof InvalidArgument)) {
			throw error;
		}
		throw new WireError(`data: ${error instanceof Error ? error.message : String(error)}`);
	}
}

class Reader {
	private view: DataView;
	private at = 0;
	private end: number;
	private depth = 0;
	private buffers: Uint8Array[] = [];
	private nextBuffer = 0;

	constructor(
		private readonly bytes: Uint8Array,
		private readonly take: Take | undefined,
	) {
		this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
		this.end = bytes.length;
	}

	whole(): unknown {
		if (this.bytes[0] === BLOB) {
			this.header();
		}
		const value = this.value();
		if (this.at !== this.end) {
			throw this.wrong(`${this.end - this.at} bytes follow the value`);
		}
		if (this.nextBuffer !== this.buffers.length) {
			throw this.wrong("a buffer that nothing refers to");
		}
		return value;
	}

	private header(): void {
		const { bytes, view } = this;
		if (bytes.length < BLOB_HEAD) {
			throw this.wrong("a header that is cut off");
		}
		if (bytes[1] !== BLOB_VERSION || bytes[2] !== 0 || bytes[3] !== 0) {
			throw this.wrong(`version ${bytes[1]} of the form, which this reader does not know`);
		}
		const count = view.getUint32(4);
		if (count === 0 || count > (bytes.length - BLOB_HEAD) / 8) {
			throw this.wrong(`a header with ${count} buffers`);
		}
		const begin = BLOB_HEAD + 8 * count;
		let at = begin + Number(view.getBigUint64(8));
		this.end = at;
		for (let number = 0; number < count; number++) {
			const length = Number(view.getBigUint64(BLOB_HEAD + 8 * number));
			const start = Math.ceil(at / 8) * 8;
			if (start + length > bytes.length) {
				throw this.wrong("a buffer that is longer than what is there");
			}
			this.buffers.push(bytes.subarray(start, start + length));
			at = start + length;
		}
		if (at !== bytes.length) {
			throw this.wrong("bytes that follow the last buffer");
		}
		this.at = begin;
	}

	private value(): unknown {
		const first = this.u8();
		if (first < 0x80) {
			return first;
		}
		if (first < 0x90) {
			return this.map(first & 15);
		}
		if (first < 0xa0) {
			return this.array(first & 15, []);
		}
		if (first < 0xc0) {
			return this.text(first & 31);
		}
		if (first >= 0xe0) {
			return first - 256;
		}
		switch (first) {
			case 0xc0:
				return null;
			case 0xc2:
				return false;
			case 0xc3:
				return true;
			case 0xc4:
				return this.copied(this.u8());
			case 0xc5:
				return this.copied(this.u16());
			case 0xc6:
				return this.copied(this.u32());
			case 0xc7:
				return this.extension(this.u8());
			case 0xc8:
				return this.extension(this.u16());
			case 0xc9:
				return this.extension(this.u32());
			case 0xca:
				return this.view.getFloat32(this.skip(4));
			case 0xcb:
				return this.view.getFloat64(this.skip(8));
			case 0xcc:
				return this.u8();
			case 0xcd:
				return this.u16();
			case 0xce:
				return this.u32();
			case 0xcf:
				return integer(this.view.getBigUint64(this.skip(8)));
			case 0xd0:
				return this.view.getInt8(this.skip(1));
			case 0xd1:
				return this.view.getInt16(this.skip(2));
			case 0xd2:
				return this.view.getInt32(this.skip(4));
			case 0xd3:
				return integer(this.view.getBigInt64(this.skip(8)));
			case 0xd9:
				return this.text(this.u8());
			case 0xda:
				return this.text(this.u16());
			case 0xdb:
				return this.text(this.u32());
			case 0xdc:
				return this.array(this.u16(), []);
			case 0xdd:
				return this.array(this.u32(), []);
			case 0xde:
				return this.map(this.u16());
			case 0xdf:
				return this.map(this.u32());
			case 0xc1:
				throw this.wrong("the byte c1, which begins no value");
			default:
				return this.extension(1 << (first - 0xd4));
		}
	}

	private array(count: number, into: unknown[]): unknown[] {
		this.enter(count);
		for (let at = 0; at < count; at++) {
			into.push(this.value());
		}
		this.depth--;
		return into;
	}

	private map(count: number): unknown {
		this.enter(count * 2);
		const made: Record<string, unknown> = {};
		let at = 0;
		for (; at < count; at++) {
			const key = this.value();
			if (typeof key !== "string") {
				return this.mixed(made, key, count - at);
			}
			set(made, key, this.value());
		}
		this.depth--;
		return made;
	}

	/** A map whose keys are not all text. */
	private mixed(sofar: Record<string, unknown>, first: unknown, count: number): Map<unknown, unknown> {
		const made = new Map<unknown, unknown>(Object.entries(sofar));
		let key = first;
		for (let left = count; left > 0; left--) {
			this.hashable(key, "a key");
			made.set(key, this.value());
			key = left > 1 ? this.value() : undefined;
		}
		this.depth--;
		return made;
	}

	private set<T extends Set<unknown>>(into: T): T {
		for (const item of this.list("a set")) {
			this.hashable(item, "an item of a set");
			into.add(item);
		}
		return into;
	}

	private hashable(value: unknown, what: string): void {
		const isContainer =
			typeof value === "object" &&
			value !== null &&
			((Array.isArray(value) && !(value instanceof Tuple)) ||
				value instanceof Map ||
				(value instanceof Set && !(value instanceof FrozenSet)) ||
				Object.getPrototypeOf(value) === Object.prototype);
		if (isContainer) {
			throw this.wrong(`a container as ${what}`);
		}
	}

	private list(what: string, into: unknown[] = []): unknown[] {
		const first = this.u8();
		if (first >= 0x90 && first < 0xa0) {
			return this.array(first & 15, into);
		}
		if (first !== 0xdc && first !== 0xdd) {
			throw this.wrong(`${what} without its array`);
		}
		return this.array(first === 0xdc ? this.u16() : this.u32(), into);
	}

	private extension(length: number): unknown {
		const kind = this.view.getInt8(this.skip(1));
		const [outer, end] = [this.end, this.at + length];
		if (end > outer) {
			throw this.wrong("an extension that is cut off");
		}
		this.end = end;
		const value = this.content(kind, length);
		if (this.at !== end) {
			throw this.wrong(`extension ${kind} is longer than what belongs there`);
		}
		this.end = outer;
		return value;
	}

	private content(kind: number, length: number): unknown {
		switch (kind) {
			case Ext.TIMESTAMP:
				return this.timestamp(length);
			case Ext.TUPLE:
				return this.list("a tuple", new Tuple());
			case Ext.SET:
				return this.set(new Set());
			case Ext.FROZENSET:
				return this.set(new FrozenSet());
			case Ext.BYTEARRAY:
				return byteArray(this.copied(length));
			case Ext.BUFFER:
				return this.referred();
			case Ext.BYTEARRAY_BUFFER:
				return byteArray(this.referred());
			case Ext.MOMENT: {
				const [micros, offset] = [this.micros(), this.offset()];
				return new DateTime(...split(micros), offset);
			}
			case Ext.LOCAL_TIME:
				return new LocalDateTime(this.micros());
			case Ext.DATE: {
				const days = this.i32();
				if (days < DAYS_MIN || days > DAYS_MAX) {
					throw this.wrong("a date outside of the years 1 to 9999");
				}
				return new LocalDate(days);
			}
			case Ext.TIME_OF_DAY: {
				const micros = Number(this.i64());
				if (micros < 0 || micros >= DAY_MICROS) {
					throw this.wrong("a time of day beyond 24 hours");
				}
				return new LocalTime(micros, length === 16 ? this.offset() : undefined);
			}
			case Ext.DURATION:
				return this.duration();
			case Ext.DECIMAL:
				return new Decimal(this.text(length));
			case Ext.UUID:
				return new UUID(this.copied(length));
			case Ext.COMPLEX:
				return new Complex(this.view.getFloat64(this.skip(8)), this.view.getFloat64(this.skip(8)));
			case Ext.RECORD: {
				const [name, fields] = this.named("a record");
				if (typeof fields !== "object" || fields === null || Object.getPrototypeOf(fields) !== Object.prototype) {
					throw this.wrong("a record without a map of its fields");
				}
				return record(name, fields);
			}
			case Ext.ENUM:
				return this.named("an enum")[1];
			case Ext.ERROR:
				return this.nested(() => buildError(this.value()));
			case Ext.ARRAY:
				return this.ndarray();
			case Ext.SCALAR:
				return this.scalar();
			case Ext.REFERENCE: {
				const stands = this.nested(() => this.value());
				if (this.take === undefined) {
					throw this.wrong("a reference to a function or an object, where none is expected");
				}
				return this.take(stands);
			}
			default:
				throw this.wrong(`extension ${kind}, which is not known`);
		}
	}

	private timestamp(length: number): Date {
		let [seconds, nanos] = [0n, 0];
		if (length === 4) {
			seconds = BigInt(this.u32());
		} else if (length === 8) {
			const both = this.view.getBigUint64(this.skip(8));
			[seconds, nanos] = [both & ((1n << 34n) - 1n), Number(both >> 34n)];
		} else if (length === 12) {
			[nanos, seconds] = [this.u32(), this.i64()];
		} else {
			throw this.wrong(`a timestamp of ${length} bytes`);
		}
		if (nanos > 999_999_999 || seconds < SECONDS_MIN || seconds >= SECONDS_END) {
			throw this.wrong("a timestamp outside of the years 1 to 9999");
		}
		const micros = Math.floor(nanos / 1000);
		const ms = Number(seconds) * 1000 + Math.floor(micros / 1000);
		return micros % 1000 === 0 ? new Date(ms) : new DateTime(ms, micros % 1000);
	}

	/** Microseconds since 1970, within the years that there are. */
	private micros(): bigint {
		const micros = this.i64();
		if (micros < SECONDS_MIN * 1_000_000n || micros >= SECONDS_END * 1_000_000n) {
			throw this.wrong("a time outside of the years 1 to 9999");
		}
		return micros;
	}

	private offset(): number {
		const offset = Number(this.i64());
		if (Math.abs(offset) >= DAY_MICROS) {
			throw this.wrong("an offset from UTC of a day or more");
		}
		return offset;
	}

	private duration(): Duration {
		const [days, seconds, micros] = [this.i32(), this.i32(), this.i32()];
		if (Math.abs(days) > 999_999_999 || seconds < 0 || seconds >= 86_400 || micros < 0 || micros >= 1_000_000) {
			throw this.wrong("a duration whose parts are out of range");
		}
		return new Duration(days, seconds, micros);
	}

	private named(what: string): [name: string, value: unknown] {
		const parts = this.list(what);
		if (parts.length !== 2 || typeof parts[0] !== "string") {
			throw this.wrong(`${what} without a type name and a value`);
		}
		return [parts[0], parts[1]];
	}

	private ndarray(): NdArray {
		const [dtype, shape, order, bytes, ...more] = this.list("an array");
		const size = typeof dtype === "string" ? itemBytes(dtype) : undefined;
		const isShape =
			Array.isArray(shape) && shape.length <= VALUE_DEPTH && shape.every((n) => Number.isSafeInteger(n) && n >= 0);
		if (size === undefined || !isShape || !(bytes instanceof Uint8Array) || more.length > 0) {
			throw this.wrong("an array without dtype, lengths, order and bytes");
		}
		if ((order !== "C" && order !== "F") || shape.reduce((all, length) => all * length, 1) * size !== bytes.length) {
			throw this.wrong("an array whose lengths don't fit its bytes");
		}
		const made = elements(bytes, dtype as string);
		return new NdArray(made.data, shape as number[], made.dtype, order);
	}

	private scalar(): unknown {
		const [dtype, bytes, ...more] = this.list("a scalar");
		if (
			more.length === 0 &&
			((dtype === "U" && typeof bytes === "string") || (dtype === "S" && bytes instanceof Uint8Array))
		) {
			return bytes;
		}
		const size = typeof dtype === "string" ? itemBytes(dtype) : undefined;
		if (size === undefined || !(bytes instanceof Uint8Array) || bytes.length !== size || more.length > 0) {
			throw this.wrong("a scalar without dtype and bytes");
		}
		const { data } = elements(bytes, dtype as string);
		const kind = (dtype as string)[1];
		if (kind === "b") {
			return data[0] !== 0;
		}
		if (kind === "c") {
			return new Complex(Number(data[0]), Number(data[1]));
		}
		const value = data.length === 1 ? data[0] : bytes;
		return typeof value === "bigint" ? integer(value) : value;
	}

	private referred(): Uint8Array {
		const number = this.u32();
		const buffer = this.buffers[number];
		if (buffer === undefined || number !== this.nextBuffer) {
			throw this.wrong(`a reference to buffer ${number}, which is not the next one`);
		}
		this.nextBuffer++;
		return buffer;
	}

	private nested<T>(read: () => T): T {
		this.enter(1);
		const value = read();
		this.depth--;
		return value;
	}

	/** Goes into a container of so many values; each of them takes a byte at least. */
	private enter(count: number): void {
		if (count > this.end - this.at) {
			throw this.wrong(`${count} values are promised, and there are not as many bytes`);
		}
		if (++this.depth > VALUE_DEPTH) {
			throw this.wrong(`more than ${VALUE_DEPTH} containers within each other`);
		}
	}

	private text(length: number): string {
		const at = this.skip(length);
		const text = decode(this.bytes, at, at + length);
		if (text === undefined) {
			throw this.wrong("text that is not UTF-8");
		}
		return text;
	}

	private copied(length: number): Uint8Array {
		const at = this.skip(length);
		return this.bytes.slice(at, at + length);
	}

	private u8(): number {
		const at = this.skip(1);
		return this.bytes[at] as number;
	}

	private u16(): number {
		return this.view.getUint16(this.skip(2));
	}

	private u32(): number {
		return this.view.getUint32(this.skip(4));
	}

	private i32(): number {
		return this.view.getInt32(this.skip(4));
	}

	private i64(): bigint {
		return this.view.getBigInt64(this.skip(8));
	}

	private skip(bytes: number): number {
		const at = this.at;
		if (at + bytes > this.end) {
			throw this.wrong("a value that is cut off");
		}
		this.at = at + bytes;
		return at;
	}

	private wrong(what: string): WireError {
		return new WireError(`data: at byte ${this.at}: ${what}`);
	}
}

/** Sets a property, also one of a name that means something else to objects. */
function set(made: Record<string, unknown>, key: string, value: unknown): void {
	if (key === "__proto__") {
		Object.defineProperty(made, key, {
			value,
			writable: true,
			enumerable: true,
			configurable: true,
		});
	} else {
		made[key] = value;
	}
}

function byteArray(bytes: Uint8Array): ByteArray {
	return new ByteArray(bytes.buffer, bytes.byteOffset, bytes.length);
}

function integer(value: bigint): number | bigint {
	return value >= BigInt(Number.MIN_SAFE_INTEGER) && value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value;
}

function split(epochMicros: bigint): [ms: number, micros: number] {
	const [ms, micros] = divided(epochMicros, 1000n);
	return [Number(ms), micros];
}
