/** Numbers, times and sizes as an operator reads them. */

const COUNT_UNITS = ["", "k", "M", "G"];
const BYTE_UNITS = [" B", " KiB", " MiB", " GiB", " TiB"];

/** A whole number with separators. */
export const count = (value: number | undefined): string =>
	value === undefined ? "–" : Math.round(value).toLocaleString("en");

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

export const bytes = (value: number | undefined): string => short(value, BYTE_UNITS, 1_024);

/** Microseconds as µs, ms or s. */
export const micros = (value: number | undefined): string => short(value, [" µs", " ms", " s"]);

/** A rate per second. */
export const rate = (value: number | undefined): string =>
	value === undefined ? "–" : short(value < 0.05 ? 0 : value);

/** Seconds as 41 s, 3 min, 2 h 5 min, 4 d 3 h. */
export function age(seconds: number): string {
	const whole = Math.max(0, Math.floor(seconds));
	if (whole < 7_200) {
		return whole < 120 ? `${whole} s` : `${Math.floor(whole / 60)} min`;
	}
	const [large, unit, small, rest] = whole < 172_800 ? [3_600, "h", 60, "min"] : [86_400, "d", 3_600, "h"];
	const second = Math.floor((whole % Number(large)) / Number(small));
	return `${Math.floor(whole / Number(large))} ${unit}${second > 0 ? ` ${second} ${rest}` : ""}`;
}

/** The age of a time, by the clock of this machine. */
export const since = (time: Date | undefined): string =>
	time === undefined ? "–" : age((Date.now() - time.getTime()) / 1_000);

/** A date and a time of this machine, to the second. */
export const clock = (time: Date | undefined): string => (time === undefined ? "–" : time.toLocaleString("sv"));

/** A number with its noun: 1 node, 3 nodes. */
export const counted = (value: number, noun: string, plural = `${noun}s`): string =>
	`${count(value)} ${value === 1 ? noun : plural}`;

/** The share of a whole as a percentage. */
export const percent = (share: number | undefined): string =>
	share === undefined || Number.isNaN(share) ? "–" : `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;

/** A value that came over the link as JSON for people. */
export function pretty(value: unknown): string {
	const plain = (_: string, one: unknown): unknown => {
		if (typeof one === "bigint") {
			return Number.isSafeInteger(Number(one)) ? Number(one) : String(one);
		}
		const listed = one instanceof Set ? [...one] : one instanceof Map ? Object.fromEntries(one) : one;
		return one instanceof Uint8Array ? `${one.length} bytes` : listed;
	};
	return typeof value === "string" ? value : (JSON.stringify(value, plain, 2) ?? String(value));
}

/** The text of an error. */
export const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
