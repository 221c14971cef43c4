/** A queue whose first item is taken in constant time. */
export class Queue<T> {
	private items: (T | undefined)[] = [];
	private begin = 0;

	get size(): number {
		return this.items.length - this.begin;
	}

	get first(): T | undefined {
		return this.items[this.begin];
	}

	push(item: T): void {
		this.items.push(item);
	}

	shift(): T | undefined {
		const item = this.items[this.begin];
		if (this.begin < this.items.length) {
			this.items[this.begin] = undefined;
			this.begin++;
			if (this.begin === this.items.length) {
				this.items.length = 0;
				this.begin = 0;
			} else if (this.begin > 1024 && this.begin * 2 > this.items.length) {
				this.items = this.items.slice(this.begin);
				this.begin = 0;
			}
		}
		return item;
	}

	clear(): void {
		this.items.length = 0;
		this.begin = 0;
	}
}
