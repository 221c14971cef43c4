/** A process with traffic for tests of the console. */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { connect, type Node } from "tidewire";
import { PYTHON, ROOT } from "../../client/test/python.js";

/** A program of `programs`; `traffic.py` takes commands. */
export class Traffic {
	private constructor(
		private readonly child: ChildProcess,
		private readonly lines: AsyncIterator<string>,
	) {}

	static async start(url: string, name = "traffic"): Promise<Traffic> {
		const program = `${ROOT}js/packages/console/test/programs/${name}.py`;
		const child = spawn(PYTHON, [program, url], { stdio: ["pipe", "pipe", "inherit"] });
		const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
		assert.equal((await lines.next()).done, false, "the program has started");
		return new Traffic(child, lines);
	}

	say(command: string): void {
		this.child.stdin?.write(`${command}\n`);
	}

	async ask<T>(command: string): Promise<T> {
		this.say(command);
		return JSON.parse((await this.lines.next()).value) as T;
	}

	stop(): void {
		this.child.kill("SIGKILL");
	}
}

/** Text that a page shows, and never reads as markup. */
export const HOSTILE = "<img src=x onerror=\"document.body.dataset.broken='1'\">";

/**
 * A stream of twelve orders at a hub, with a note in all fields. The consumer "billing" fails four
 * of them for good, after two deliveries each, and holds a fifth; "audit" is paused.
 */
export async function orders(url: string, note = HOSTILE, token?: string): Promise<Node> {
	const node = await connect(url, { name: "till", token });
	const limits = { maxAge: 86_400_000, maxMessages: 1_000, full: "drop_old" } as const;
	const stream = await node.stream("orders", { subjects: ["orders.>"], ...limits });
	const billing = await stream.consumer("billing", { start: "all", maxDeliver: 2, backoff: [0], ackWait: 600_000 });
	await (await stream.consumer("audit", { filter: "orders.paid" })).pause();
	await stream.batch(
		Array.from({ length: 12 }, (_, total) => ({
			subject: total % 3 === 0 ? "orders.paid" : "orders.created",
			value: { total, note },
			key: note,
			id: `${note}${total}`,
			headers: { note },
		})),
	);
	while ((await billing.info()).dead < 4) {
		const event = await billing.next();
		const why = event?.subject === "orders.paid" ? "no such card" : `${note}: no customer ${event?.sequence}`;
		await event?.nak({ error: new RangeError(why), wait: true });
	}
	await billing.next();
	return node;
}

/** Sells one thing within a trace, and waits until its event is a dead letter. Returns the id. */
export async function sell(url: string, symbol: string): Promise<string> {
	await using node = await connect(url, { name: "visitor" });
	const id = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
	const shop = node.client("shop").with({ headers: { traceparent: `00-${id}-00f067aa0ba902b7-01` } });
	await shop.sell?.(symbol);
	await (await node.commands()).find(`reprice-${symbol}`).result();
	const book = await (await node.stream("sales")).consumers();
	assert.ok(book.length > 0);
	for (let dead = 0; dead === 0; ) {
		({ dead } = await (await node.stream("sales")).info());
	}
	return id;
}
