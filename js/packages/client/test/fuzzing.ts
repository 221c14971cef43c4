/**
 * A fuzzer that follows coverage: it changes inputs by chance, and keeps those that take a way
 * through a function of the client which none took before.
 *
 * V8 counts the blocks. It is asked after many inputs at once, and again one by one where these did
 * something new.
 */
import { Session } from "node:inspector";

/** Something that takes any bytes; what it throws is what it found. */
export interface Target {
	readonly name: string;
	readonly seeds: readonly Uint8Array[];
	readonly run: (input: Uint8Array) => void;
}

export interface Found {
	readonly inputs: number;
	readonly corpus: number;
	readonly ways: number;
}

const BATCH = 256;
const CORPUS = 4096;
const BYTES = 4096;
/** Numbers that are at the edges of what lengths and counts may be. */
const EDGES = [0, 1, 15, 16, 31, 32, 64, 0x7f, 0x80, 0xc1, 0xc7, 0xc9, 0xd4, 0xff];

/** Numbers by chance, the same for the same seed. */
export class Dice {
	constructor(private state: number) {}

	/** A whole number from 0 to below `end`. */
	below(end: number): number {
		this.state = (this.state + 0x9e37_79b9) | 0;
		let mixed = Math.imul(this.state ^ (this.state >>> 16), 0x21f0_aaad);
		mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a_2d97);
		return ((mixed ^ (mixed >>> 15)) >>> 0) % end;
	}

	of<T>(items: readonly T[]): T {
		return items[this.below(items.length)] as T;
	}
}

/** Tries so many inputs. Throws what a target threw, with the input in the message. */
export function fuzz(target: Target, inputs: number, seed: number): Found {
	const dice = new Dice(seed);
	const corpus: Uint8Array[] = target.seeds.map((one) => one.slice(0, BYTES));
	const coverage = new Coverage();
	try {
		for (const input of corpus) {
			attempt(target, input);
			coverage.isFresh("one");
		}
		for (let done = 0; done < inputs; done += BATCH) {
			const batch = Array.from({ length: Math.min(BATCH, inputs - done) }, () => changed(corpus, dice));
			for (const input of batch) {
				attempt(target, input);
			}
			if (!coverage.isFresh("many")) {
				continue;
			}
			for (const input of batch) {
				attempt(target, input);
				if (coverage.isFresh("one") && corpus.length < CORPUS) {
					corpus.push(input);
				}
			}
		}
		return { inputs, corpus: corpus.length, ways: coverage.size };
	} finally {
		coverage.end();
	}
}

function attempt(target: Target, input: Uint8Array): void {
	try {
		target.run(input);
	} catch (error) {
		const hex = Buffer.from(input).toString("hex");
		throw new Error(`${target.name}: ${String(error)} with ${hex}`, { cause: error });
	}
}

/** One to eight changes of an input of the corpus. */
function changed(corpus: readonly Uint8Array[], dice: Dice): Uint8Array {
	let bytes = Array.from(dice.of(corpus));
	for (let left = 1 + dice.below(8); left > 0; left--) {
		const at = dice.below(bytes.length + 1);
		const change = dice.below(8);
		if (change === 0) {
			bytes[at] = dice.below(256);
		} else if (change === 1) {
			bytes[at] = ((bytes[at] ?? 0) ^ (1 << dice.below(8))) & 0xff;
		} else if (change === 2) {
			bytes[at] = dice.of(EDGES);
		} else if (change === 3) {
			bytes.splice(at, 1 + dice.below(8));
		} else if (change === 4) {
			bytes.splice(at, 0, ...Array.from({ length: 1 + dice.below(4) }, () => dice.below(256)));
		} else if (change === 5) {
			bytes.splice(at, 0, ...bytes.slice(at, at + 1 + dice.below(32)));
		} else if (change === 6) {
			const other = dice.of(corpus);
			const from = dice.below(other.length + 1);
			bytes.splice(at, dice.below(16), ...other.subarray(from, from + dice.below(64)));
		} else {
			bytes = bytes.slice(0, at);
		}
	}
	return Uint8Array.from(bytes.slice(0, BYTES), (byte) => byte ?? 0);
}

interface Range {
	readonly startOffset: number;
	readonly endOffset: number;
	readonly count: number;
}

interface Script {
	readonly url: string;
	readonly functions: readonly { readonly ranges: readonly Range[] }[];
}

/**
 * Which blocks of the client's code have run, as V8 counts them: function by function those that
 * have not.
 */
class Coverage {
	private readonly session = new Session();
	private readonly seen = new Set<string>();

	constructor() {
		this.session.connect();
		this.post("Profiler.enable");
		this.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
	}

	/** How many ways through functions were found. */
	get size(): number {
		return this.seen.size;
	}

	/**
	 * True if a function ran, since the last question, on a path that is new. `of` separates the
	 * paths of one input from those of many.
	 */
	isFresh(of: "one" | "many"): boolean {
		const { result } = this.post("Profiler.takePreciseCoverage") as { result: readonly Script[] };
		const before = this.seen.size;
		for (const { url, functions } of result) {
			for (const { ranges } of url.includes("/build/src/") ? functions : []) {
				if ((ranges[0]?.count ?? 0) > 0) {
					const idle = ranges.filter(({ count }) => count === 0);
					const places = idle.map(({ startOffset, endOffset }) => `${startOffset}-${endOffset}`);
					this.seen.add(`${of} ${url}:${ranges[0]?.startOffset} ${places.join(" ")}`);
				}
			}
		}
		return this.seen.size > before;
	}

	end(): void {
		this.post("Profiler.stopPreciseCoverage");
		this.session.disconnect();
	}

	private post(method: string, params: object = {}): unknown {
		let answer: unknown;
		// Within one process it answers before it returns.
		this.session.post(method, params, (error, result) => {
			if (error !== null) {
				throw error;
			}
			answer = result;
		});
		return answer;
	}
}
