/** Deadlines in their order: a heap that gets the time as an argument. */

/** Something that is to happen. */
export interface Timer {
	readonly at: number;
	/** Its place in the heap; -1 once it has fired or was cancelled. */
	place: number;
	readonly fire: (now: number) => void;
}

export class Timers {
	private readonly heap: Timer[] = [];

	/** When the next timer is due; infinity if there is none. */
	get next(): number {
		return this.heap[0]?.at ?? Number.POSITIVE_INFINITY;
	}

	get size(): number {
		return this.heap.length;
	}

	add(at: number, fire: (now: number) => void): Timer {
		const timer = { at, fire, place: this.heap.length };
		this.heap.push(timer);
		this.up(timer);
		return timer;
	}

	cancel(timer: Timer | undefined): void {
		if (timer === undefined || timer.place < 0) {
			return;
		}
		const last = this.heap.pop() as Timer;
		if (last !== timer) {
			this.put(last, timer.place);
			this.up(last);
			this.down(last);
		}
		timer.place = -1;
	}

	/** Fires the timers that are due. */
	fire(now: number): void {
		for (let first = this.heap[0]; first !== undefined && first.at <= now; first = this.heap[0]) {
			this.cancel(first);
			first.fire(now);
		}
	}

	private up(timer: Timer): void {
		while (timer.place > 0) {
			const parent = this.heap[(timer.place - 1) >> 1] as Timer;
			if (parent.at <= timer.at) {
				return;
			}
			this.swap(parent, timer);
		}
	}

	private down(timer: Timer): void {
		for (;;) {
			const left = this.heap[timer.place * 2 + 1];
			const right = this.heap[timer.place * 2 + 2];
			const child = left && right && right.at < left.at ? right : left;
			if (child === undefined || child.at >= timer.at) {
				return;
			}
			this.swap(timer, child);
		}
	}

	private swap(upper: Timer, lower: Timer): void {
		const place = upper.place;
		this.put(upper, lower.place);
		this.put(lower, place);
	}

	private put(timer: Timer, place: number): void {
		this.heap[place] = timer;
		timer.place = place;
	}
}
