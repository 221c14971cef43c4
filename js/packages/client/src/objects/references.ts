/** Functions, objects and streams that travel by reference: given to others, or held of them. */
import type { CallSite } from "../calls/calls.js";
import { InvalidArgument, RemoteGone } from "../generated/errors.js";
import type { Runtime } from "../link/runtime.js";
import type { Give, Stood } from "../values/writer.js";
import { type Entry, ExportTable } from "./export_table.js";
import { held, type ImportEntry, ImportTable } from "./import_table.js";
import { checked } from "./remote.js";

/** Exports of one call. */
export class ExportScope {
	/** The name of the node whose own comes back to it, if anything does. */
	owner: string | undefined;
	/** True if the call gives something that can't be given a second time. */
	isOnce = false;
	private entries: Entry[] | undefined;

	constructor(
		private readonly given: ExportTable,
		private readonly peer: number | undefined,
	) {}

	readonly give: Give = (value) => {
		const holding = held(value);
		if (holding !== undefined) {
			const { name, node } = holding.stands;
			if ((this.peer !== undefined && node !== this.peer) || (this.owner !== undefined && this.owner !== name)) {
				throw notIts(holding);
			}
			this.owner = name;
			this.isOnce = true;
			return back(holding);
		}
		const entry = this.given.entry(value, this.peer, true);
		if (entry === undefined) {
			return undefined;
		}
		this.isOnce ||= entry.kind === "items";
		this.given.busy(entry);
		this.entries ??= [];
		this.entries.push(entry);
		return this.given.stands(entry);
	};

	/** True if something was given by reference. */
	get owns(): boolean {
		return !!(this.entries || this.owner);
	}

	/** The call has ended; `lost`: before its callee had it. */
	ended(lost: boolean): void {
		const { entries } = this;
		this.entries = undefined;
		for (const entry of entries ?? []) {
			this.given.idle(entry);
			if (entry.kind === "items" || (lost && entry.origin === undefined)) {
				this.given.remove(entry);
			}
		}
	}
}

export class References {
	readonly given: ExportTable;
	private readonly held: ImportTable;

	constructor(runtime: Runtime, site: CallSite, name: string) {
		this.given = new ExportTable(runtime, name);
		this.held = new ImportTable(runtime, site);
	}

	statistics(): { readonly given: number; readonly held: number } {
		return { given: this.given.size, held: this.held.size };
	}

	joined(number: number): void {
		this.given.number = number;
	}

	/** The link was lost: with it, all that was given and held. */
	lost(): void {
		this.given.lost();
		this.held.lost();
	}

	/** A node has gone: it holds nothing any more, and its exports can't be called. */
	left(origin: number): void {
		this.given.left(origin);
		this.held.left(origin);
	}

	/** For one call; to a node whose number is known, if it is. */
	giving(peer: number | undefined): ExportScope {
		return new ExportScope(this.given, peer);
	}

	/** For the results of calls of one node. */
	givingTo(peer: number): Give {
		return (value): Stood | undefined => {
			const holding = held(value);
			if (holding !== undefined) {
				if (holding.stands.node !== peer) {
					throw notIts(holding);
				}
				return back(holding);
			}
			const entry = this.given.entry(value, peer, false);
			return entry && this.given.stands(entry);
		};
	}

	/** Makes something of what stands for a function or an object. */
	readonly take = (value: unknown): unknown => {
		if (typeof value === "object" && value !== null && (value as { kind?: unknown }).kind === "back") {
			const entry = this.given.get(String((value as { key?: unknown }).key));
			if (entry === undefined) {
				throw new RemoteGone("something came back to its owner, who has let it go");
			}
			return entry.target;
		}
		return this.held.take(checked(value));
	};
}

/** Wire form of a reference that returns to its owner. */
function back({ stands }: ImportEntry): Stood {
	return { kind: "back", key: stands.key };
}

function notIts({ stands }: ImportEntry): InvalidArgument {
	return new InvalidArgument(`${stands.title}: node '${stands.name}' owns it: it can only be given back to it`);
}
