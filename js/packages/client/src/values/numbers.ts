/** Decimal numbers, UUIDs and complex numbers of Python; each writes itself. */
import { InvalidArgument } from "../generated/errors.js";
import { encode } from "../text.js";
import { Ext, type ValueWriter, WRITE } from "./extensions.js";

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

	/** @internal */
	[WRITE](out: ValueWriter): void {
		out.short(Ext.DECIMAL, () => out.copy(encode(this.text)));
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

	/** @internal */
	[WRITE](out: ValueWriter): void {
		out.short(Ext.UUID, () => out.copy(this.bytes));
	}
}

/** A complex number. */
export class Complex {
	constructor(
		readonly real: number,
		readonly imaginary: number,
	) {}

	/** @internal */
	[WRITE](out: ValueWriter): void {
		out.short(Ext.COMPLEX, () => {
			out.f64(this.real);
			out.f64(this.imaginary);
		});
	}
}
