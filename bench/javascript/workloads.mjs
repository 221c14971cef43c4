/** The caller's side of the workloads, in Node and in a page: the same payload sizes and orders as `bench/python/rpc_workloads.py`. */

const SIZE_BYTES = { small: 256, medium: 20 * 1024, large: 2 * 1024 * 1024 };
const ARRAYS_PERCENT = 14n;

/** Runs a workload on a link, and gives its figures. */
export async function run(link, workload, count) {
	const [size, order] = workload.split("-");
	const payloads = payloadsOf(size, count);
	const samples = [];
	const timed = async (payload) => {
		const began = performance.now();
		const reply = await link.echo(payload);
		samples.push(performance.now() - began);
		if (reply.length !== payload.length || reply[0] !== payload[0] || reply.at(-1) !== payload.at(-1)) {
			throw new Error(`other bytes came back: ${reply.length} for ${payload.length}`);
		}
		return reply;
	};
	const start = performance.now();
	const replies = [];
	if (order === "seq") {
		for (const payload of payloads) {
			replies.push(await timed(payload));
		}
	} else {
		replies.push(...(await Promise.all(payloads.map(timed))));
	}
	const seconds = (performance.now() - start) / 1e3;
	for (const [at, reply] of replies.entries()) {
		if (!payloads[at].every((byte, place) => byte === reply[place])) {
			throw new Error(`${workload}: a reply differs from its request`);
		}
	}
	const bytes = payloads.reduce((sum, payload) => sum + payload.length, 0);
	samples.sort((one, other) => one - other);
	const at = (share) => samples[Math.min(samples.length - 1, Math.floor(samples.length * share))];
	return {
		count,
		seconds,
		rate: count / seconds,
		mb_s: bytes / seconds / 1e6,
		p50_ms: at(0.5),
		p99_ms: at(0.99),
		max_ms: samples.at(-1),
	};
}

function payloadsOf(size, count) {
	const sizes = size === "mixed" ? mixedSizes(count) : Array.from({ length: count }, () => SIZE_BYTES[size]);
	const numbers = chances(7n);
	return sizes.map((bytes) => {
		const payload = new Uint8Array(bytes);
		const words = new Uint32Array(payload.buffer, 0, bytes >> 2);
		let state = Number(numbers.next().value & 0xffffffffn) | 1;
		for (let at = 0; at < words.length; at++) {
			state ^= state << 13;
			state ^= state >>> 17;
			state ^= state << 5;
			words[at] = state;
		}
		return payload;
	});
}

function mixedSizes(count) {
	const numbers = chances(1n);
	const next = () => numbers.next().value;
	return Array.from({ length: count }, () => {
		const [first, second] = [next(), next()];
		return Number(first % 100n < ARRAYS_PERCENT ? 1000n + (second % 9001n) : 50n + (second % 451n));
	});
}

/** Numbers by chance, drawn as the Python and the Rust programs draw them. */
function* chances(seed) {
	for (let state = seed; ; ) {
		state = (state * 6364136223846793005n + 1442695040888963407n) % 2n ** 64n;
		yield state >> 33n;
	}
}
