/**
 * Commands: long work that is started, followed, and found again by its id. The hub decides its
 * outcome.
 */
import type { TidewireError } from "../error.js";
import { CallCancelled, InvalidArgument, RemoteError, WorkerLost } from "../generated/errors.js";
import type { Runtime } from "../link/runtime.js";
import type { Node } from "../node.js";
import { checkNames, type Priority, shown, splitArguments } from "../options.js";
import { randomName } from "../platform/shell.js";
import { readValue } from "../values/reader.js";
import { writeValue } from "../values/writer.js";
import { Clock } from "./clock.js";
import { explained, WAIT_US } from "./home.js";

const SERVICE = "tidewire-commands";
/** How long to wait before a hub is asked again that could not be reached. */
const PAUSE_MS = 1_000;

export type Stage = "queued" | "running" | "succeeded" | "failed" | "cancelled";

/** State of a command. */
export interface CommandInfo {
	readonly id: string;
	/** The service that does it, and which of its commands it is. */
	readonly service: string;
	readonly command: string;
	readonly stage: Stage;
	/** True if the command has ended. */
	readonly isOver: boolean;
	/** The newest attempt, from 1; 0 if there was none. */
	readonly attempt: number;
	/** How often it is tried again. */
	readonly retries: number;
	/** True if its worker was asked to end it. */
	readonly isCancelling: boolean;
	readonly key: string | undefined;
	readonly priority: Priority;
	/** The node that has started it. */
	readonly caller: string;
	/** The node that has its newest attempt. */
	readonly worker: string | undefined;
	readonly created: Date;
	/** When its newest attempt began. */
	readonly began: Date | undefined;
	readonly ended: Date | undefined;
	/** How far its newest attempt is, from 0 to 1, and its last note. */
	readonly fraction: number;
	readonly note: string;
	/**
	 * The error of the newest failed attempt, in a line, and its traceback; empty if none has
	 * failed.
	 */
	readonly error: string;
	readonly traceback: string;
	/** The id of the trace that its start belongs to. */
	readonly trace: string | undefined;
}

/** How far a command is. */
export interface CommandProgress {
	/** From 0 to 1. */
	readonly fraction: number;
	readonly note: string;
	/** Which attempt it is of, from 1. */
	readonly attempt: number;
	/** When it was reported, by the clock of the worker. */
	readonly time: Date;
}

export interface StartOptions {
	/**
	 * Subject of the command, such as a shard or a customer; a command that is exclusive by key is
	 * done one of a key at a time.
	 */
	readonly key?: string | undefined;
	/**
	 * An idempotency key, which is the command's id: to start it again gives the command that is
	 * there.
	 */
	readonly id?: string | undefined;
	/** Which go first where some wait ("normal"). */
	readonly priority?: Priority | undefined;
}

interface CommandWaiter {
	/** Ends the wait. The command goes on. */
	readonly signal?: AbortSignal | undefined;
}

type RecordChange = readonly [revision: number, isOver: boolean, record: Ended];

interface Ended {
	readonly stage: Stage;
	readonly attempt: number;
	readonly worker: string | null;
	readonly result: Uint8Array | null;
	readonly error: Uint8Array | null;
}

/** The calls of the hub, by name. */
interface Service {
	start(...args: unknown[]): PromiseLike<string>;
	state(id: string, after: number, waitUs: number): PromiseLike<RecordChange | null>;
	progress(id: string): AsyncIterable<readonly [number, string, number, Date]>;
	info(id: string): PromiseLike<unknown>;
	commands(service: string | null, command: string | null, stage: string | null): AsyncIterable<unknown>;
	cancel(id: string): PromiseLike<boolean>;
	retry(id: string): PromiseLike<boolean>;
}

/** The commands of a hub; `await node.commands()` gives them. */
export class Commands {
	/** @internal */
	readonly clock: Clock;

	/** @internal */
	constructor(
		private readonly node: Pick<Node, "client">,
		private readonly runtime: Runtime,
	) {
		this.clock = new Clock(runtime);
	}

	/**
	 * Starts a command. When this returns it is stored, as durably as a message of a stream; an
	 * instance of the service runs it. It is started once, also if the link is lost meanwhile.
	 *
	 * @typeParam T Its result.
	 * @param args Its arguments, 512 KiB at most; those by name at the end, as `named(...)`. They
	 * are checked where it is done: what does not fit fails it.
	 * @throws InvalidArgument if a name or an option is not allowed, or an argument can't travel;
	 * SettingsDiffer if the id is that of another command; PayloadTooLarge; StreamFull if too many
	 * are kept; NoResponders if the hub has no place for commands.
	 */
	async start<T = unknown>(
		service: string,
		command: string,
		args: readonly unknown[] = [],
		options: StartOptions = {},
	): Promise<CommandRun<T>> {
		if (!Array.isArray(args)) {
			throw new InvalidArgument(`args: ${shown(args)} is not allowed: give an array of arguments`);
		}
		const [positional, byName = {}] = splitArguments(args);
		const data = writeValue([positional, byName], undefined, `${service}.${command}`);
		checkNames("start", options, { key: 0, id: 0, priority: 0 });
		const { key = null, id = randomName(this.runtime.shell, 12), priority = "normal" } = options;
		const started = this.service().start(service, command, data, key, id, priority);
		return new CommandRun<T>(this, await explained(started));
	}

	/**
	 * A command by its id, regardless of its starter, node and time. Nothing is asked for before
	 * it is used.
	 */
	find<T = unknown>(id: string): CommandRun<T> {
		return new CommandRun<T>(this, id);
	}

	/**
	 * Those there are, the oldest first: those that wait or run, and those that have ended and are
	 * kept.
	 */
	async list(
		filter: {
			readonly service?: string | undefined;
			readonly command?: string | undefined;
			readonly stage?: Stage | undefined;
		} = {},
	): Promise<CommandInfo[]> {
		checkNames("list", filter, { service: 0, command: 0, stage: 0 });
		const { service = null, command = null, stage = null } = filter;
		const found: CommandInfo[] = [];
		const all = this.service().commands(service, command, stage)[Symbol.asyncIterator]();
		for (let next = await explained(all.next()); !next.done; next = await all.next()) {
			found.push(infoOf(next.value));
		}
		return found;
	}

	/** @internal Calls that may be made again when the link was lost and is back. */
	service(signal?: AbortSignal): Service {
		const options = { idempotent: true, ...(signal && { signal }) };
		return this.node.client(SERVICE, options) as unknown as Service;
	}
}

/** A command that was started. */
export class CommandRun<T = unknown> {
	/** @internal */
	constructor(
		private readonly commands: Commands,
		readonly id: string,
	) {}

	/**
	 * Waits until it is over, and gives its result. While the hub is away, that waits on.
	 *
	 * @throws NotFound if there is no such command, or not any more; CallCancelled if it was
	 * cancelled; WorkerLost if the worker of its last attempt was lost; else what its last attempt
	 * has raised.
	 */
	async result(options: CommandWaiter = {}): Promise<T> {
		checkNames("result", options, { signal: 0 });
		const service = this.commands.service(options.signal);
		let [revision, isOver, record] = (await explained(service.state(this.id, 0, 0))) as RecordChange;
		while (!isOver) {
			try {
				[revision, isOver, record] = (await service.state(this.id, revision, WAIT_US)) ?? [revision, isOver, record];
			} catch (error) {
				await this.away(error, options.signal);
			}
		}
		return this.outcome(record) as T;
	}

	private outcome({ stage, attempt, worker, result, error }: Ended): unknown {
		if (stage === "cancelled") {
			throw new CallCancelled(`command ${this.id}: it was cancelled`);
		}
		if (stage === "succeeded") {
			return result && readValue(result);
		}
		if (error === null) {
			const lost = `its worker ${shown(worker)} was lost in attempt ${attempt}, the last one`;
			throw new WorkerLost(`command ${this.id}: ${lost}: find the cause, and retry it`);
		}
		const raised = readValue(error);
		throw raised instanceof Error ? raised : new RemoteError(shown(raised));
	}

	/**
	 * How far it is, now and then as it changes, until it is over. Of changes that come quickly the
	 * newest is seen. While the hub is away, that waits on.
	 */
	async *progress(options: CommandWaiter = {}): AsyncGenerator<CommandProgress, undefined, undefined> {
		checkNames("progress", options, { signal: 0 });
		const service = this.commands.service(options.signal);
		await explained(service.info(this.id));
		for (let latest = ""; ; ) {
			try {
				for await (const [fraction, note, attempt, time] of service.progress(this.id)) {
					const text = JSON.stringify([fraction, note, attempt, time]);
					if (text !== latest) {
						latest = text;
						yield { fraction, note, attempt, time };
					}
				}
				return;
			} catch (error) {
				await this.away(error, options.signal);
			}
		}
	}

	/** Waits for a hub that is away; any other error is thrown. */
	private async away(error: unknown, signal: AbortSignal | undefined): Promise<void> {
		signal?.throwIfAborted();
		if (!(error as Partial<TidewireError>).retryable) {
			throw error;
		}
		await this.commands.clock.pause(PAUSE_MS, signal);
	}

	/** State of the command. */
	async info(): Promise<CommandInfo> {
		return infoOf(await explained(this.commands.service().info(this.id)));
	}

	/**
	 * Has it end: at once if it waits; if it runs, when its handler does. Gives whether that
	 * changes anything.
	 */
	cancel(): Promise<boolean> {
		return explained(this.commands.service().cancel(this.id));
	}

	/**
	 * Has it begin anew, if it has failed or was cancelled, with all its attempts. Gives whether it
	 * does.
	 */
	retry(): Promise<boolean> {
		return explained(this.commands.service().retry(this.id));
	}
}

type Raw = Omit<CommandInfo, "isOver" | "isCancelling" | "key" | "worker" | "began" | "ended" | "trace"> &
	Record<"key" | "worker" | "trace", string | null> &
	Record<"began" | "ended", Date | null> & { readonly is_cancelling: boolean };

/** Converts the description of a command from a hub. */
function infoOf(raw: unknown): CommandInfo {
	const { is_cancelling: isCancelling, ...answer } = raw as Raw;
	const { key, worker, began, ended, trace } = answer;
	return {
		...answer,
		isOver: !["queued", "running"].includes(answer.stage),
		isCancelling,
		key: key ?? undefined,
		worker: worker ?? undefined,
		began: began ?? undefined,
		ended: ended ?? undefined,
		trace: trace ?? undefined,
	};
}
