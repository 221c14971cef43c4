/**
 * Processes of Python for tests: a hub, one with a data folder and a gateway, a node that serves
 * and calls, and a server of NATS.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL(".", import.meta.url)).replace(/js\/packages\/.*$/, "");
export const PYTHON = process.env.PYTHON_OF_TESTS ?? `${ROOT}.venv/bin/python`;
const PROGRAMS = `${ROOT}js/packages/client/test/programs`;

/** A process that says in a line that it is ready. */
class Program {
	protected constructor(private readonly child: ChildProcess) {}

	protected static async launch(command: string, args: readonly string[]): Promise<[ChildProcess, string]> {
		const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
		const lines = createInterface({ input: child.stdout });
		const first = await new Promise<string>((resolve, reject) => {
			lines.once("line", resolve);
			child.once("exit", (code) => reject(new Error(`${command} ${args.join(" ")} ended with ${code}`)));
		});
		return [child, first];
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

/** `peer.py`, or another program of its folder. */
export class Peer extends Program {
	private constructor(
		child: ChildProcess,
		readonly url: string,
	) {
		super(child);
	}

	static start(...args: string[]): Promise<Peer> {
		return Peer.program("peer", ...args);
	}

	static async program(name: string, ...args: string[]): Promise<Peer> {
		const [child, said] = await Program.launch(PYTHON, [`${PROGRAMS}/${name}.py`, ...args]);
		return new Peer(child, (JSON.parse(said) as { url: string }).url);
	}
}

/** A server of NATS on loopback. */
export class Nats extends Program {
	private constructor(
		child: ChildProcess,
		/** Where it is, or undefined if this machine has none. */
		readonly url: string | undefined,
	) {
		super(child);
	}

	static async start(): Promise<Nats> {
		const [child, said] = await Program.launch(PYTHON, [`${ROOT}tools/servers.py`, "nats"]);
		return new Nats(child, (JSON.parse(said) as { TIDEWIRE_TEST_NATS?: string }).TIDEWIRE_TEST_NATS);
	}
}

/** `tidewire up` on loopback. */
export class Hub extends Program {
	private constructor(
		child: ChildProcess,
		readonly url: string,
		/** Where its gateway is, if it has one. */
		readonly http: string,
	) {
		super(child);
	}

	static async start(args: readonly string[], port = "0"): Promise<Hub> {
		const up = ["-m", "tidewire", "up", "--listen", `ws://127.0.0.1:${port}`];
		const [child, said] = await Program.launch(PYTHON, [...up, ...args]);
		return new Hub(child, /ws:\S+/.exec(said)?.[0] ?? "", /http:\S+/.exec(said)?.[0] ?? "");
	}
}
