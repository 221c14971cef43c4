/** Numbers, times and sizes as an operator reads them. */

const COUNT_UNITS = ["", "k", "M", "G"];
const BYTE_UNITS = [" B", " KiB", " MiB", " GiB", " TiB"];

/** A whole number with separators. */
export function count(value: number): string {
	return Math.round(value).toLocaleString("en");
}

/** Three digits and a unit: 999, 12.3k, 4.56M. */
export function short(value: number | undefined, units: readonly string[] = COUNT_UNITS, step = 1_000): string {
	if (value === undefined || Number.isNaN(value)) {
		return "–";
	}
	let [at, left] = [0, value];
	while (Math.abs(left) >= step * 0.9995 && at < units.length - 1) {
		left /= step;
		at++;
	}
	return `${Math.abs(left) < 100 ? String(Number(left.toPrecision(3))) : left.toFixed(0)}${units[at]}`;
}

export function bytes(value: number | undefined): string {
	return short(value, BYTE_UNITS, 1_024);
}

/** Microseconds as µs, ms or s. */
export function micros(value: number | undefined): string {
	return short(value, [" µs", " ms", " s"]);
}

/** A rate per second. */
export function rate(value: number | undefined): string {
	return value === undefined ? "–" : short(value < 0.05 ? 0 : value);
}

/** Seconds as 41 s, 3 min, 2 h 5 min, 4 d 3 h. */
export function age(seconds: number): string {
	const whole = Math.max(0, Math.floor(seconds));
	const parts = (large: number, unit: string, small: number, rest: string): string => {
		const second = Math.floor((whole % large) / small);
		return `${Math.floor(whole / large)} ${unit}${second > 0 ? ` ${second} ${rest}` : ""}`;
	};
	if (whole < 120) {
		return `${whole} s`;
	}
	if (whole < 7_200) {
		return `${Math.floor(whole / 60)} min`;
	}
	return whole < 172_800 ? parts(3_600, "h", 60, "min") : parts(86_400, "d", 3_600, "h");
}

/** A number with its noun: 1 node, 3 nodes. */
export function counted(value: number, noun: string, plural = `${noun}s`): string {
	return `${count(value)} ${value === 1 ? noun : plural}`;
}

/** The share of a whole as a percentage. */
export function percent(share: number | undefined): string {
	return share === undefined || Number.isNaN(share) ? "–" : `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}

/** A value that came over the link as JSON for people. */
export function pretty(value: unknown): string {
	const plain = (_: string, one: unknown): unknown => {
		if (typeof one === "bigint") {
			return Number(one);
		}
		if (one instanceof Map) {
			return Object.fromEntries(one);
		}
		return one instanceof Uint8Array ? `${one.length} bytes` : one;
	};
	return typeof value === "string" ? value : (JSON.stringify(value, plain, 2) ?? String(value));
}

/** The text of an error. */
export function reasonOf(error: unknown): string {
	return error instanceof Error ? error.message : String(error);
}
