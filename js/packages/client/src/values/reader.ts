/**
 * Reads values as `spec/values.md` says, and believes no length before that many bytes are there.
 */
import { TidewireError } from "../error.js";
import { InvalidArgument, WireError } from "../generated/errors.js";
import { VALUE_DEPTH } from "../generated/limits.js";
import { decode } from "../text.js";
import { BLOB, BLOB_HEAD, BLOB_VERSION, Ext } from "./extensions.js";
import { buildError } from "./failures.js";
import { ByteArray, FrozenSet, record, Tuple } from "./kinds.js";

/** Makes a proxy of a reference to a function or an object. */
export type Take = (reference: unknown) => unknown;

/** Reads what lies in an extension of a rare kind, `length` bytes. */
export type RareKind = (reader: Reader, length: number) => unknown;

/** The rare kinds; undefined until their code is loaded. */
let rare: ReadonlyMap<number, RareKind> | undefined;

/** Adds the rare kinds to those that are read. */
export function addRareKinds(kinds: ReadonlyMap<number, RareKind>): void {
	rare = kinds;
}

/** Error for a value whose code is not loaded yet. */
export class Unloaded extends TidewireError {}

/**
 * Reads a value; where its code is not loaded, `load` loads that first.
 */
export function readLoaded(
	blob: Uint8Array,
	take: Take,
	load: () => Promise<unknown>,
): { readonly value: unknown } | Promise<{ readonly value: unknown }> {
	const whole = (): { readonly value: unknown } => ({ value: readValue(blob, take) });
	try {
		return whole();
	} catch (error) {
		if (error instanceof Unloaded) {
			return load().then(whole);
		}
		throw error;
	}
}

/** Reads a value. Long bytes and arrays are not copied: they lie in the given buffer. */
export function readValue(blob: Uint8Array, take?: Take): unknown {
	try {
		return new Reader(blob, take).whole();
	} catch (error) {
		// Every other error, InvalidArgument included, becomes a WireError: the caller did not make
		// the bytes.
		if (error instanceof TidewireError && !(error instanceof InvalidArgument)) {
			throw error;
		}
		throw new WireError(`data: ${error instanceof Error ? error.message : String(error)}`);
	}
}

export class Reader {
	readonly view: DataView;
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
				return this.f64();
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
		const entries: Record<string, unknown> = {};
		let at = 0;
		for (; at < count; at++) {
			const key = this.value();
			if (typeof key !== "string") {
				return this.mixed(entries, key, count - at);
			}
			set(entries, key, this.value());
		}
		this.depth--;
		return entries;
	}

	/** A map whose keys are not all text. */
	private mixed(sofar: Record<string, unknown>, first: unknown, count: number): Map<unknown, unknown> {
		const entries = new Map<unknown, unknown>(Object.entries(sofar));
		let key = first;
		for (let left = count; left > 0; left--) {
			this.hashable(key, "a key");
			entries.set(key, this.value());
			key = left > 1 ? this.value() : undefined;
		}
		this.depth--;
		return entries;
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

	list(what: string, into: unknown[] = []): unknown[] {
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
			case Ext.RECORD: {
				const [name, fields] = this.named("a record");
				// Maps of Python with a type, such as a Counter, may have keys that are no text.
				if (fields instanceof Map) {
					return record(name, fields);
				}
				if (typeof fields !== "object" || fields === null || Object.getPrototypeOf(fields) !== Object.prototype) {
					throw this.wrong("a record without a map");
				}
				return record(name, fields);
			}
			case Ext.ENUM:
				return this.named("an enum")[1];
			case Ext.ERROR:
				return this.nested(() => buildError(this.value()));
			case Ext.REFERENCE: {
				const reference = this.nested(() => this.value());
				if (this.take === undefined) {
					throw this.wrong("a reference to a function or an object, where none is expected");
				}
				return this.take(reference);
			}
			default:
				return this.rare(kind, length);
		}
	}

	private rare(kind: number, length: number): unknown {
		if (rare === undefined) {
			throw new Unloaded();
		}
		const read = rare.get(kind);
		if (read === undefined) {
			throw this.wrong(`extension ${kind}, which is not known`);
		}
		return read(this, length);
	}

	private named(what: string): [name: string, value: unknown] {
		const parts = this.list(what);
		if (parts.length !== 2 || typeof parts[0] !== "string") {
			throw this.wrong(`${what} without a type name and a value`);
		}
		return [parts[0], parts[1]];
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

	text(length: number): string {
		const at = this.skip(length);
		const text = decode(this.bytes, at, at + length);
		if (text === undefined) {
			throw this.wrong("text that is not UTF-8");
		}
		return text;
	}

	copied(length: number): Uint8Array {
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

	u32(): number {
		return this.view.getUint32(this.skip(4));
	}

	i32(): number {
		return this.view.getInt32(this.skip(4));
	}

	i64(): bigint {
		return this.view.getBigInt64(this.skip(8));
	}

	f64(): number {
		return this.view.getFloat64(this.skip(8));
	}

	skip(bytes: number): number {
		const at = this.at;
		if (at + bytes > this.end) {
			throw this.wrong("a value that is cut off");
		}
		this.at = at + bytes;
		return at;
	}

	wrong(what: string): WireError {
		return new WireError(`data: at byte ${this.at}: ${what}`);
	}
}

/** Sets a property, also one of a name that means something else to objects. */
function set(entries: Record<string, unknown>, key: string, value: unknown): void {
	if (key === "__proto__") {
		Object.defineProperty(entries, key, {
			value,
			writable: true,
			enumerable: true,
			configurable: true,
		});
	} else {
		entries[key] = value;
	}
}

function byteArray(bytes: Uint8Array): ByteArray {
	return new ByteArray(bytes.buffer, bytes.byteOffset, bytes.length);
}

/** An integer: a number where that has room for it. */
export function integer(value: bigint): number | bigint {
	return value >= BigInt(Number.MIN_SAFE_INTEGER) && value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value;
}
