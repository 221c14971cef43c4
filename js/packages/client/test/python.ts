/** Processes of Python for tests: a hub, and a node that serves and calls. */
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../../../../../", import.meta.url));
export const PYTHON = process.env.PYTHON_OF_TESTS ?? `${ROOT}.venv/bin/python`;
const PEER = `${ROOT}js/packages/client/test/peer.py`;

export class Peer {
	private constructor(
		private readonly child: ChildProcess,
		readonly said: { readonly url: string },
	) {}

	static async start(...args: string[]): Promise<Peer> {
		const child = spawn(PYTHON, [PEER, ...args], {
			stdio: ["pipe", "pipe", "inherit"],
		});
		const lines = createInterface({ input: child.stdout });
		const first = await new Promise<string>((resolve, reject) => {
			lines.once("line", resolve);
			child.once("exit", (code) => reject(new Error(`peer.py ${args.join(" ")} ended with ${code}`)));
		});
		return new Peer(child, JSON.parse(first) as { url: string });
	}

	get url(): string {
		return this.said.url;
	}

	/** Ends it, and waits for that. */
	async stop(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
		if (this.child.exitCode === null && this.child.signalCode === null) {
			const ended = new Promise((resolve) => this.child.once("exit", resolve));
			this.child.kill(signal);
			await ended;
		}
	}
}
