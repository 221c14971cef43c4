/**
 * Readers of the kinds that many pages never get: times, decimals, UUIDs, complex numbers and
 * arrays.
 */
import { VALUE_DEPTH } from "../generated/limits.js";
import { elements, itemBytes, NdArray } from "./arrays.js";
import { DAY_MICROS, DAYS_MAX, DAYS_MIN, Ext } from "./extensions.js";
import { Complex, Decimal, UUID } from "./numbers.js";
import { integer, type RareKind, type Reader } from "./reader.js";
import { DateTime, Duration, divided, LocalDate, LocalDateTime, LocalTime } from "./times.js";

const SECONDS_MIN = BigInt(DAYS_MIN) * 86_400n;
const SECONDS_END = BigInt(DAYS_MAX + 1) * 86_400n;

export const RARE_KINDS: ReadonlyMap<number, RareKind> = new Map<number, RareKind>([
	[Ext.TIMESTAMP, timestamp],
	[Ext.MOMENT, moment],
	[Ext.LOCAL_TIME, (reader) => new LocalDateTime(microsOf(reader))],
	[Ext.DATE, date],
	[Ext.TIME_OF_DAY, timeOfDay],
	[Ext.DURATION, duration],
	[Ext.DECIMAL, (reader, length) => new Decimal(reader.text(length))],
	[Ext.UUID, (reader, length) => new UUID(reader.copied(length))],
	[Ext.COMPLEX, (reader) => new Complex(reader.f64(), reader.f64())],
	[Ext.ARRAY, ndarray],
	[Ext.SCALAR, scalar],
]);

function timestamp(reader: Reader, length: number): Date {
	let [seconds, nanos] = [0n, 0];
	if (length === 4) {
		seconds = BigInt(reader.u32());
	} else if (length === 8) {
		const both = reader.view.getBigUint64(reader.skip(8));
		[seconds, nanos] = [both & ((1n << 34n) - 1n), Number(both >> 34n)];
	} else if (length === 12) {
		[nanos, seconds] = [reader.u32(), reader.i64()];
	} else {
		throw reader.wrong(`a timestamp of ${length} bytes`);
	}
	if (nanos > 999_999_999 || seconds < SECONDS_MIN || seconds >= SECONDS_END) {
		throw reader.wrong("a timestamp outside of the years 1 to 9999");
	}
	const micros = Math.floor(nanos / 1000);
	const ms = Number(seconds) * 1000 + Math.floor(micros / 1000);
	return micros % 1000 === 0 ? new Date(ms) : new DateTime(ms, micros % 1000);
}

function moment(reader: Reader): DateTime {
	const [ms, micros] = divided(microsOf(reader), 1000n);
	return new DateTime(Number(ms), micros, offsetOf(reader));
}

function date(reader: Reader): LocalDate {
	const days = reader.i32();
	if (days < DAYS_MIN || days > DAYS_MAX) {
		throw reader.wrong("a date outside of the years 1 to 9999");
	}
	return new LocalDate(days);
}

function timeOfDay(reader: Reader, length: number): LocalTime {
	const micros = Number(reader.i64());
	if (micros < 0 || micros >= DAY_MICROS) {
		throw reader.wrong("a time of day beyond 24 hours");
	}
	return new LocalTime(micros, length === 16 ? offsetOf(reader) : undefined);
}

function duration(reader: Reader): Duration {
	const [days, seconds, micros] = [reader.i32(), reader.i32(), reader.i32()];
	if (Math.abs(days) > 999_999_999 || seconds < 0 || seconds >= 86_400 || micros < 0 || micros >= 1_000_000) {
		throw reader.wrong("a duration whose parts are out of range");
	}
	return new Duration(days, seconds, micros);
}

function ndarray(reader: Reader): NdArray {
	const [dtype, shape, order, bytes, ...more] = reader.list("an array");
	const size = typeof dtype === "string" ? itemBytes(dtype) : undefined;
	const isShape =
		Array.isArray(shape) && shape.length <= VALUE_DEPTH && shape.every((n) => Number.isSafeInteger(n) && n >= 0);
	if (size === undefined || !isShape || !(bytes instanceof Uint8Array) || more.length > 0) {
		throw reader.wrong("an array without dtype, lengths, order and bytes");
	}
	if ((order !== "C" && order !== "F") || shape.reduce((all, length) => all * length, 1) * size !== bytes.length) {
		throw reader.wrong("an array whose lengths don't fit its bytes");
	}
	const array = elements(bytes, dtype as string);
	return new NdArray(array.data, shape as number[], array.dtype, order);
}

function scalar(reader: Reader): unknown {
	const [dtype, bytes, ...more] = reader.list("a scalar");
	if (
		more.length === 0 &&
		((dtype === "U" && typeof bytes === "string") || (dtype === "S" && bytes instanceof Uint8Array))
	) {
		return bytes;
	}
	const size = typeof dtype === "string" ? itemBytes(dtype) : undefined;
	if (size === undefined || !(bytes instanceof Uint8Array) || bytes.length !== size || more.length > 0) {
		throw reader.wrong("a scalar without dtype and bytes");
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

/** Microseconds since 1970, within the years that there are. */
function microsOf(reader: Reader): bigint {
	const micros = reader.i64();
	if (micros < SECONDS_MIN * 1_000_000n || micros >= SECONDS_END * 1_000_000n) {
		throw reader.wrong("a time outside of the years 1 to 9999");
	}
	return micros;
}

function offsetOf(reader: Reader): number {
	const offset = Number(reader.i64());
	if (Math.abs(offset) >= DAY_MICROS) {
		throw reader.wrong("an offset from UTC of a day or more");
	}
	return offset;
}
