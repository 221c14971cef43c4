/** Processor time and peak memory of each process that takes part in a workload, as /proc tells them. */
import { readFileSync } from "node:fs";

const TICKS_PER_S = 100;

export class Usage {
	#began = new Map();

	constructor(pids) {
		this.pids = Object.entries(pids);
	}

	start() {
		this.#began = new Map(this.pids.map(([name, pid]) => [name, ticksOf(pid)]));
	}

	figures(count) {
		const found = {};
		for (const [name, pid] of this.pids) {
			found[`cpu_us_${name}`] = ((ticksOf(pid) - this.#began.get(name)) / TICKS_PER_S / count) * 1e6;
			found[`peak_mb_${name}`] = Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]) / 1e3;
		}
		return found;
	}
}

function ticksOf(pid) {
	const parts = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
	return Number(parts[11]) + Number(parts[12]);
}
