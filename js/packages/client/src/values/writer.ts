/** Writes values as `spec/values.md` says. */
import { TidewireError } from "../error.js";
import { InvalidArgument, PayloadTooLarge } from "../generated/errors.js";
import { PAYLOAD_BYTES, VALUE_DEPTH, VALUE_INLINE_BYTES } from "../generated/limits.js";
import { encodeInto, isBroken } from "../text.js";
import { BLOB, BLOB_HEAD, BLOB_VERSION, dtypeOf, Ext, type ValueWriter, WRITE, type Writable } from "./extensions.js";
import { describeError } from "./failures.js";
import { ByteArray, FrozenSet, Tuple, typeOf } from "./kinds.js";

/** Makes a reference to a function or an object; undefined if it may not be sent. */
export type Give = (value: unknown) => Stood | undefined;
/** Wire form of a function or an object. */
export type Stood = Readonly<Record<string, unknown>>;

/** Writes a value. `title` is what errors call it. */
export function writeValue(value: unknown, give?: Give, title = "value", bytesMax = PAYLOAD_BYTES): Uint8Array {
	const writer = new Writer(give, bytesMax, scratch);
	// A value, or a getter of the program, may write another value meanwhile.
	scratch = undefined;
	try {
		writer.value(value, 0);
		return writer.blob();
	} catch (error) {
		if (error instanceof Unsendable) {
			throw new InvalidArgument(`${title}${error.path()}: ${error.message}`);
		}
		throw error instanceof RangeError ? new PayloadTooLarge(`${title}: it is longer than memory has room for`) : error;
	} finally {
		scratch = writer.scratch();
	}
}

/** Where values are written, one after another. */
let scratch: DataView<ArrayBuffer> | undefined;
const SCRATCH_MAX = 65_536;

/** Why a value can't be sent, and where it is. */
class Unsendable extends TidewireError {
	private readonly places: string[] = [];

	inside(place: string): this {
		this.places.push(place);
		return this;
	}

	path(): string {
		return this.places.reverse().join("");
	}
}

class Writer implements ValueWriter {
	private bytes: Uint8Array<ArrayBuffer>;
	private at = 0;
	private readonly buffers: Uint8Array[] = [];
	private buffered = 0;

	constructor(
		private readonly give: Give | undefined,
		private readonly bytesMax: number,
		private view = new DataView(new ArrayBuffer(1024)),
	) {
		this.bytes = new Uint8Array(view.buffer);
	}

	/** Where the next value may be written. */
	scratch(): DataView<ArrayBuffer> | undefined {
		return this.view.byteLength <= SCRATCH_MAX ? this.view : undefined;
	}

	/** All that was written. */
	blob(): Uint8Array {
		if (this.buffers.length === 0) {
			return this.view.byteLength <= SCRATCH_MAX ? this.bytes.slice(0, this.at) : this.bytes.subarray(0, this.at);
		}
		const head = this.bytes.subarray(0, this.at);
		const begin = BLOB_HEAD + 8 * this.buffers.length;
		let total = begin + head.length;
		for (const buffer of this.buffers) {
			total = Math.ceil(total / 8) * 8 + buffer.length;
		}
		const blob = new Uint8Array(total);
		const view = new DataView(blob.buffer);
		view.setUint8(0, BLOB);
		view.setUint8(1, BLOB_VERSION);
		view.setUint32(4, this.buffers.length);
		view.setBigUint64(8, BigInt(head.length));
		blob.set(head, begin);
		let at = begin + head.length;
		for (const [number, buffer] of this.buffers.entries()) {
			view.setBigUint64(BLOB_HEAD + 8 * number, BigInt(buffer.length));
			at = Math.ceil(at / 8) * 8;
			blob.set(buffer, at);
			at += buffer.length;
		}
		return blob;
	}

	value(value: unknown, depth: number): void {
		switch (typeof value) {
			case "string":
				this.text(value);
				break;
			case "number":
				this.number(value);
				break;
			case "boolean":
				this.u8(value ? 0xc3 : 0xc2);
				break;
			case "undefined":
				this.u8(0xc0);
				break;
			case "bigint":
				this.bigint(value);
				break;
			case "object":
				if (value === null) {
					this.u8(0xc0);
				} else {
					this.object(value, depth);
				}
				break;
			default:
				this.reference(value, depth, `a ${typeof value}`);
		}
	}

	private object(value: object, depth: number): void {
		if (depth >= VALUE_DEPTH) {
			throw new Unsendable(`it lies in more than ${VALUE_DEPTH} containers, or contains itself: send it in parts`);
		}
		if (Array.isArray(value)) {
			if (value instanceof Tuple) {
				this.extended(Ext.TUPLE, () => this.items(value, depth));
			} else {
				this.items(value, depth);
			}
		} else if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) {
			this.binary(value);
		} else if (value instanceof Map) {
			const type = typeOf(value);
			if (type === undefined) {
				this.map(value.size, value, depth);
			} else {
				this.extended(Ext.RECORD, () => {
					this.length(2, 0x90, 0xdc);
					this.text(type);
					this.map(value.size, value, depth);
				});
			}
		} else if (value instanceof Set) {
			this.extended(value instanceof FrozenSet ? Ext.FROZENSET : Ext.SET, () => this.items([...value], depth, "{}"));
		} else if (value instanceof Error) {
			this.extended(Ext.ERROR, () =>
				this.entries(
					describeError(value, (part) => this.isSendable(part)),
					depth,
				),
			);
		} else if (isWritable(value)) {
			value[WRITE](this);
		} else if (value instanceof Date) {
			this.timestamp(value, 0);
		} else {
			this.plain(value, depth);
		}
	}

	/** An object of which only its own properties count. */
	private plain(value: object, depth: number): void {
		const type = typeOf(value);
		if (type !== undefined) {
			this.extended(Ext.RECORD, () => {
				this.length(2, 0x90, 0xdc);
				this.text(type);
				this.entries(Object.entries(value), depth);
			});
			return;
		}
		const prototype: unknown = Object.getPrototypeOf(value);
		// An object of another realm, such as that of a test runner or a frame of a page, is plain,
		// too.
		const isPlain =
			prototype === null ||
			(Object.getPrototypeOf(prototype) === null && Object.hasOwn(prototype as object, "hasOwnProperty"));
		if (isPlain && !(Symbol.asyncIterator in value)) {
			this.entries(Object.entries(value), depth);
			return;
		}
		const name = (value as { constructor?: { name?: string } }).constructor?.name;
		this.reference(value, depth, `an instance of ${name || "a class without a name"}`);
	}

	private reference(value: unknown, depth: number, what: string): void {
		const reference = this.give?.(value);
		if (reference === undefined) {
			const fix = this.give
				? "send plain data, a function, an async generator, or `remote(object)`"
				: "here only data can be sent";
			throw new Unsendable(`${what} can't be sent: ${fix}`);
		}
		this.extended(Ext.REFERENCE, () => this.value(reference, depth + 1));
	}

	private isSendable(value: unknown): boolean {
		try {
			new Writer(undefined, this.bytesMax).value(value, 2);
			return true;
		} catch {
			return false;
		}
	}

	timestamp(date: Date, micros: number): void {
		const ms = this.milliseconds(date);
		const seconds = Math.floor(ms / 1000);
		const nanos = (ms - seconds * 1000) * 1_000_000 + micros * 1000;
		this.short(Ext.TIMESTAMP, () => {
			if (seconds < 0 || seconds >= 2 ** 34) {
				this.u32(nanos);
				this.i64(BigInt(seconds));
			} else if (nanos === 0 && seconds < 2 ** 32) {
				this.u32(seconds);
			} else {
				this.u32(nanos * 4 + Math.floor(seconds / 2 ** 32));
				this.u32(seconds % 2 ** 32);
			}
		});
	}

	milliseconds(date: Date): number {
		const ms = date.getTime();
		if (Number.isNaN(ms)) {
			throw new Unsendable("an invalid Date can't be sent: check what it was made of");
		}
		return ms;
	}

	private binary(value: ArrayBuffer | ArrayBufferView): void {
		const bytes =
			value instanceof ArrayBuffer
				? new Uint8Array(value)
				: new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
		if (!(value instanceof ArrayBuffer || value instanceof Uint8Array || value instanceof DataView)) {
			const dtype = dtypeOf(value);
			this.array(dtype, [value.byteLength / Number(dtype.slice(2))], "C", value);
		} else if (bytes.length > VALUE_INLINE_BYTES) {
			this.buffer(bytes, value instanceof ByteArray ? Ext.BYTEARRAY_BUFFER : Ext.BUFFER);
		} else if (value instanceof ByteArray) {
			this.short(Ext.BYTEARRAY, () => this.copy(bytes));
		} else {
			this.bin(bytes);
		}
	}

	private bin(bytes: Uint8Array): void {
		if (bytes.length <= 0xff) {
			this.u8(0xc4);
			this.u8(bytes.length);
		} else {
			this.sized(bytes.length, 0xc5);
		}
		this.copy(bytes);
	}

	private buffer(bytes: Uint8Array, kind: number): void {
		this.buffered += bytes.length;
		this.check(this.buffered + this.at);
		const number = this.buffers.push(bytes) - 1;
		this.short(kind, () => this.u32(number));
	}

	array(dtype: string, shape: readonly number[], order: string, data: ArrayBufferView): void {
		const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
		this.extended(Ext.ARRAY, () => {
			this.length(4, 0x90, 0xdc);
			this.text(dtype);
			this.items(shape, 0);
			this.text(order);
			if (bytes.length > VALUE_INLINE_BYTES) {
				this.buffer(bytes, Ext.BUFFER);
			} else {
				this.bin(bytes);
			}
		});
	}

	private items(items: readonly unknown[], depth: number, brackets = "[]"): void {
		this.length(items.length, 0x90, 0xdc);
		for (let at = 0; at < items.length; at++) {
			const item = items[at];
			try {
				this.value(item, depth + 1);
			} catch (error) {
				throw error instanceof Unsendable ? error.inside(brackets === "[]" ? `[${at}]` : "{...}") : error;
			}
		}
	}

	private entries(entries: readonly (readonly [string, unknown])[], depth: number): void {
		this.map(entries.length, entries, depth);
	}

	private map(size: number, entries: Iterable<readonly [unknown, unknown]>, depth: number): void {
		this.length(size, 0x80, 0xde);
		for (const [key, value] of entries) {
			try {
				if (typeof key === "object" && key !== null && !(key instanceof Tuple) && isContainer(key)) {
					throw new Unsendable("a container can't be a key: use text or a number");
				}
				this.value(key, depth + 1);
				this.value(value, depth + 1);
			} catch (error) {
				throw error instanceof Unsendable ? error.inside(place(key)) : error;
			}
		}
	}

	/** An extension that holds values. */
	private extended(kind: number, write: () => void): void {
		const begin = this.reserve(6);
		write();
		this.view.setUint8(begin, 0xc9);
		this.view.setUint32(begin + 1, this.at - begin - 6);
		this.view.setInt8(begin + 5, kind);
	}

	short(kind: number, write: () => void): void {
		const begin = this.reserve(6);
		write();
		const content = this.bytes.slice(begin + 6, this.at);
		const fixed = [1, 2, 4, 8, 16].indexOf(content.length);
		this.at = begin;
		if (fixed >= 0) {
			this.u8(0xd4 + fixed);
		} else if (content.length <= 0xff) {
			this.u8(0xc7);
			this.u8(content.length);
		} else {
			this.sized(content.length, 0xc8);
		}
		this.u8(kind & 0xff);
		this.copy(content);
	}

	private number(value: number): void {
		if (!Number.isSafeInteger(value) || Object.is(value, -0)) {
			this.u8(0xcb);
			this.f64(value);
		} else if (value >= 0) {
			this.positive(value);
		} else {
			this.negative(value);
		}
	}

	private positive(value: number): void {
		if (value < 0x80) {
			this.u8(value);
		} else if (value <= 0xff) {
			this.u8(0xcc);
			this.u8(value);
		} else if (value <= 0xffff_ffff) {
			this.sized(value, 0xcd);
		} else {
			this.u8(0xcf);
			this.u32(Math.floor(value / 2 ** 32));
			this.u32(value % 2 ** 32);
		}
	}

	private negative(value: number): void {
		if (value >= -32) {
			this.u8(value & 0xff);
		} else if (value >= -0x80) {
			this.u8(0xd0);
			this.u8(value & 0xff);
		} else if (value >= -0x8000) {
			this.u8(0xd1);
			this.u16(value & 0xffff);
		} else if (value >= -0x8000_0000) {
			this.u8(0xd2);
			this.i32(value);
		} else {
			this.u8(0xd3);
			this.i64(BigInt(value));
		}
	}

	private bigint(value: bigint): void {
		if (value >= BigInt(Number.MIN_SAFE_INTEGER) && value <= BigInt(Number.MAX_SAFE_INTEGER)) {
			this.number(Number(value));
		} else if (value > 0n && value < 1n << 64n) {
			this.u8(0xcf);
			this.u64(value);
		} else if (value < 0n && value >= -(1n << 63n)) {
			this.u8(0xd3);
			this.i64(value);
		} else {
			throw new Unsendable(`an integer of more than 64 bits can't be sent: send it as text`);
		}
	}

	private text(text: string): void {
		const begin = this.reserve(5 + text.length * 3);
		const guess = text.length < 32 ? 1 : text.length <= 0xff ? 2 : text.length <= 0xffff ? 3 : 5;
		const length = encodeInto(text, this.bytes, begin + guess);
		if (length > text.length && isBroken(text)) {
			throw new Unsendable("half a pair of surrogates can't be sent: UTF-8 has no such character");
		}
		const head = length < 32 ? 1 : length <= 0xff ? 2 : length <= 0xffff ? 3 : 5;
		if (head !== guess) {
			this.bytes.copyWithin(begin + head, begin + guess, begin + guess + length);
		}
		if (head === 1) {
			this.bytes[begin] = 0xa0 | length;
		} else if (head === 2) {
			this.bytes[begin] = 0xd9;
			this.bytes[begin + 1] = length;
		} else if (head === 3) {
			this.bytes[begin] = 0xda;
			this.view.setUint16(begin + 1, length);
		} else {
			this.bytes[begin] = 0xdb;
			this.view.setUint32(begin + 1, length);
		}
		this.at = begin + head + length;
		this.check(this.at + this.buffered);
	}

	/** The length of an array or a map: in the first byte, or behind it. */
	private length(length: number, short: number, long: number): void {
		if (length < 16) {
			this.u8(short | length);
		} else {
			this.sized(length, long);
		}
	}

	/** A number of 16 bits behind a first byte, or of 32 behind the next one. */
	private sized(value: number, first: number): void {
		if (value <= 0xffff) {
			this.u8(first);
			this.u16(value);
		} else {
			this.u8(first + 1);
			this.u32(value);
		}
	}

	copy(bytes: Uint8Array): void {
		const at = this.reserve(bytes.length);
		this.bytes.set(bytes, at);
	}

	private u8(value: number): void {
		const at = this.reserve(1);
		this.bytes[at] = value;
	}

	private u16(value: number): void {
		const at = this.reserve(2);
		this.view.setUint16(at, value);
	}

	private u32(value: number): void {
		const at = this.reserve(4);
		this.view.setUint32(at, value);
	}

	i32(value: number): void {
		const at = this.reserve(4);
		this.view.setInt32(at, value);
	}

	i64(value: bigint): void {
		const at = this.reserve(8);
		this.view.setBigInt64(at, value);
	}

	private u64(value: bigint): void {
		const at = this.reserve(8);
		this.view.setBigUint64(at, value);
	}

	f64(value: number): void {
		const at = this.reserve(8);
		this.view.setFloat64(at, value);
	}

	private reserve(bytes: number): number {
		const at = this.at;
		this.at += bytes;
		if (this.at > this.bytes.length) {
			// Text asks for three times its length.
			this.check(at + Math.floor(bytes / 3) + this.buffered);
			const larger = new Uint8Array(Math.max(this.at, this.bytes.length * 2));
			larger.set(this.bytes.subarray(0, at));
			this.bytes = larger;
			this.view = new DataView(larger.buffer);
		}
		return at;
	}

	private check(bytes: number): void {
		if (bytes > this.bytesMax) {
			throw new PayloadTooLarge(
				`the value has more than payload_bytes=${this.bytesMax}: send less at once, or use a stream`,
			);
		}
	}
}

function isWritable(value: object): value is Writable {
	return WRITE in value;
}

function isContainer(key: object): boolean {
	return Array.isArray(key) || key instanceof Map || (key instanceof Set && !(key instanceof FrozenSet));
}

function place(key: unknown): string {
	const text = typeof key === "string" ? `'${key.slice(0, 80)}'` : typeof key === "object" ? "..." : String(key);
	return `[${text}]`;
}
