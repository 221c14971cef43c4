/** Arrays of NumPy over typed arrays, and the texts of their dtypes. */
import { InvalidArgument } from "../generated/errors.js";
import { dtypeOf, type ValueWriter, WRITE } from "./extensions.js";

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
 * An array of NumPy. A bare typed array (but `Uint8Array`, which is bytes) travels as one of one
 * dimension.
 *
 * `data` is a typed array of the elements where JavaScript has one: complex numbers are pairs in
 * it, booleans bytes, moments and durations of NumPy `BigInt64Array`s. Of other dtypes (half
 * floats, text) it has the bytes. Elements of the other byte order are swapped when they come.
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

	/** @internal */
	[WRITE](out: ValueWriter): void {
		out.array(this.dtype, this.shape, this.order, this.data);
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

/**
 * Makes the typed array of elements where they lie, or of a copy where they don't lie as it needs
 * them.
 */
export function elements(bytes: Uint8Array, dtype: string): { data: TypedArray; dtype: string } {
	const maker = MAKERS[dtype.slice(1).replace(/\[.*/, "")];
	if (maker === undefined) {
		return { data: bytes, dtype };
	}
	const size = maker.BYTES_PER_ELEMENT;
	const swapped = dtype.startsWith(">") && size > 1;
	const aligned = !swapped && bytes.byteOffset % size === 0 ? bytes : bytes.slice();
	if (swapped) {
		for (let at = 0; at < aligned.length; at += size) {
			aligned.subarray(at, at + size).reverse();
		}
	}
	const data = new maker(aligned.buffer, aligned.byteOffset, aligned.length / size);
	return { data, dtype: swapped ? `<${dtype.slice(1)}` : dtype };
}
