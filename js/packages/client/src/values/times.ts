/**
 * Moments, dates, times of day and lengths of time of Python that JavaScript has no type of its own
 * for; each writes itself.
 */
import { InvalidArgument } from "../generated/errors.js";
import { Ext, type ValueWriter, WRITE } from "./extensions.js";

const DAY_MS = 86_400_000;
const pad = (value: number, digits = 2): string => String(value).padStart(digits, "0");

/**
 * A moment with the microseconds that a `Date` has no room for, and with the offset of its clock
 * from UTC if that travels, too. Moments of whole milliseconds in UTC come as a plain `Date`.
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

	/** @internal */
	[WRITE](out: ValueWriter): void {
		const { offsetMicros } = this;
		if (offsetMicros) {
			out.milliseconds(this);
			out.short(Ext.MOMENT, () => {
				out.i64(this.epochMicros);
				out.i64(BigInt(offsetMicros));
			});
		} else {
			out.timestamp(this, this.micros);
		}
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

	/** @internal */
	[WRITE](out: ValueWriter): void {
		out.short(Ext.LOCAL_TIME, () => out.i64(this.epochMicros));
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

	/** @internal */
	[WRITE](out: ValueWriter): void {
		out.short(Ext.DATE, () => out.i32(this.days));
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

	/** @internal */
	[WRITE](out: ValueWriter): void {
		out.short(Ext.TIME_OF_DAY, () => {
			out.i64(BigInt(this.micros));
			if (this.offsetMicros !== undefined) {
				out.i64(BigInt(this.offsetMicros));
			}
		});
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

	/** @internal */
	[WRITE](out: ValueWriter): void {
		out.short(Ext.DURATION, () => {
			for (const part of [this.days, this.seconds, this.micros]) {
				out.i32(part);
			}
		});
	}
}

/** The quotient rounded down, and what is left of it. */
export function divided(value: bigint, by: bigint): [quotient: bigint, rest: number] {
	const rest = ((value % by) + by) % by;
	return [(value - rest) / by, Number(rest)];
}
