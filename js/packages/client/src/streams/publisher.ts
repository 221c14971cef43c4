/**
 * Publishing: what comes while a batch is stored is the next batch, and each message has its ack.
 */
import { InvalidArgument, LimitExceeded, PublishFailed } from "../generated/errors.js";
import type { Tuple } from "../values/kinds.js";
import { type Message, messageOf, type PublishOptions } from "./event.js";
import { type Home, refused } from "./home.js";

/** Messages that wait for their acks at most, and how many go in one call. */
const WAITING_MAX = 10_000;
const BATCH_MAX = 1_000;
const BATCH_BYTES = 4 << 20;

/** Acknowledgement of a stream that stores a message. */
export interface Ack {
	/** Its place in the stream, from 1; of a duplicate, that of the first. */
	readonly sequence: number;
	/**
	 * Failure that the message survives: "memory" the end of its publisher, "disk" a loss of
	 * power, "replicated" that of a machine.
	 */
	readonly durability: "memory" | "disk" | "replicated";
	/** True if the stream had a message with its id: it was not stored again. */
	readonly duplicate: boolean;
}

interface UnackedMessage {
	readonly message: Tuple;
	readonly resolve: (ack: Ack) => void;
	readonly reject: (error: unknown) => void;
}

/** Messages on their way into one stream, in their order: one batch is stored at a time. */
export class Publisher {
	private waiting: UnackedMessage[] = [];
	private underWay = 0;
	private isRunning = false;
	private capacityWaiters: (() => void)[] = [];

	constructor(
		private readonly home: Home,
		private readonly name: string,
	) {}

	async publish(subject: string, value: unknown, options: PublishOptions): Promise<Ack> {
		const message = messageOf(subject, value, options);
		if (this.waiting.length + this.underWay >= WAITING_MAX) {
			throw new LimitExceeded(
				`stream '${this.name}': ${WAITING_MAX} messages wait for their acks already: await some, or \`room()\`, before the next`,
			);
		}
		return new Promise((resolve, reject) => {
			this.waiting.push({ message, resolve, reject });
			if (!this.isRunning) {
				this.isRunning = true;
				// Publications of the same turn of the event loop go together.
				queueMicrotask(() => void this.run());
			}
		});
	}

	/** Ends when there is room for a message. */
	async room(): Promise<void> {
		while (this.waiting.length + this.underWay >= WAITING_MAX) {
			await new Promise<void>((resolve) => this.capacityWaiters.push(resolve));
		}
	}

	async batch(messages: readonly Message[]): Promise<Ack[]> {
		if (messages.length > BATCH_MAX) {
			throw new InvalidArgument(
				`stream '${this.name}': a batch has at most ${BATCH_MAX} messages: store several batches, or use publish`,
			);
		}
		if (messages.length === 0) {
			return [];
		}
		const written = messages.map(({ subject, value, ...options }) => messageOf(subject, value, options));
		const results = (await this.home.call("publish", this.name, written, true)) as unknown[];
		const failures = results.flatMap((result, at) => {
			const error = refused(result);
			return error === undefined ? [] : [`message ${at}: ${error.name}: ${error.message}`];
		});
		if (failures.length > 0) {
			const failed = new PublishFailed(`stream '${this.name}': nothing of the batch was stored: ${failures[0]}`);
			failed.failures = failures;
			throw failed;
		}
		return results.map(ackOf);
	}

	private async run(): Promise<void> {
		while (this.waiting.length > 0) {
			const batch = this.waiting.splice(0, fitting(this.waiting));
			this.underWay = batch.length;
			try {
				const messages = batch.map(({ message }) => message);
				const results = (await this.home.call("publish", this.name, messages, false)) as unknown[];
				for (const [at, { resolve, reject }] of batch.entries()) {
					const error = refused(results[at]);
					if (error === undefined) {
						resolve(ackOf(results[at]));
					} else {
						reject(error);
					}
				}
			} catch (error) {
				for (const { reject } of batch) {
					reject(error);
				}
			}
			this.underWay = 0;
			for (const wake of this.capacityWaiters.splice(0)) {
				wake();
			}
		}
		this.isRunning = false;
	}
}

/** How many of the first messages go in one call. */
function fitting(waiting: readonly UnackedMessage[]): number {
	let bytes = 0;
	const over = waiting.findIndex(({ message }) => {
		bytes += (message[1] as Uint8Array).length;
		return bytes > BATCH_BYTES;
	});
	return Math.max(1, Math.min(BATCH_MAX, over < 0 ? waiting.length : over));
}

function ackOf(result: unknown): Ack {
	const [sequence, durability, duplicate] = result as [number, Ack["durability"], boolean];
	return { sequence, durability, duplicate };
}
