/** A process with traffic for tests of the console. */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { PYTHON, ROOT } from "../../client/test/python.js";

/** The program `traffic.py`, which takes commands. */
export class Traffic {
	private constructor(
		private readonly child: ChildProcess,
		private readonly lines: AsyncIterator<string>,
	) {}

	static async start(url: string): Promise<Traffic> {
		const program = `${ROOT}js/packages/console/test/programs/traffic.py`;
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
