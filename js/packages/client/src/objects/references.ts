/** Functions, objects and streams that travel by reference: exports and imports. */
import type { CallSite } from "../calls/calls.js";
import { InvalidArgument, RemoteGone } from "../generated/errors.js";
import type { Runtime } from "../link/runtime.js";
import type { Give, Stood } from "../values/writer.js";
import { type Entry, ExportTable } from "./export_table.js";
import { type ImportEntry, ImportTable, importOf } from "./import_table.js";
import { checked } from "./remote.js";

/** Exports of one call. */
export class ExportScope {
	/** The name of the node whose own comes back to it, if anything does. */
	owner: string | undefined;
	/** True if the call can be sent only once: a stream or a returned reference is in it. */
	isOnce = false;
	private entries: Entry[] | undefined;

	constructor(
		private readonly exports: ExportTable,
		private readonly peer: number | undefined,
	) {}

	readonly give: Give = (value) => {
		const importEntry = importOf(value);
		if (importEntry !== undefined) {
			const { name, node } = importEntry.reference;
			if ((this.peer !== undefined && node !== this.peer) || (this.owner !== undefined && this.owner !== name)) {
				throw wrongOwner(importEntry);
			}
			this.owner = name;
			this.isOnce = true;
			return back(importEntry);
		}
		const entry = this.exports.entry(value, this.peer, true);
		if (entry === undefined) {
			return undefined;
		}
		this.isOnce ||= entry.kind === "items";
		this.exports.busy(entry);
		this.entries ??= [];
		this.entries.push(entry);
		return this.exports.referenceTo(entry);
	};

	/** True if the call has exports, or returns a reference to its owner. */
	get owns(): boolean {
		return !!(this.entries || this.owner);
	}

	/** The call has ended; `lost`: before its callee had it. */
	ended(lost: boolean): void {
		const { entries } = this;
		this.entries = undefined;
		for (const entry of entries ?? []) {
			this.exports.idle(entry);
			if (entry.kind === "items" || (lost && entry.origin === undefined)) {
				this.exports.remove(entry);
			}
		}
	}
}

export class References {
	readonly exports: ExportTable;
	private readonly imports: ImportTable;

	constructor(runtime: Runtime, site: CallSite, name: string) {
		this.exports = new ExportTable(runtime, name);
		this.imports = new ImportTable(runtime, site);
	}

	statistics(): { readonly given: number; readonly held: number } {
		return { given: this.exports.size, held: this.imports.size };
	}

	joined(number: number): void {
		this.exports.number = number;
	}

	/** Drops all exports and imports: the link was lost. */
	lost(): void {
		this.exports.lost();
		this.imports.lost();
	}

	/** A node has gone: it holds nothing any more, and its exports can't be called. */
	left(origin: number): void {
		this.exports.left(origin);
		this.imports.left(origin);
	}

	/** Exports of one call; `peer` is the number of the called node, if it is known. */
	exportScope(peer: number | undefined): ExportScope {
		return new ExportScope(this.exports, peer);
	}

	/** Exports for the results of calls of one node. */
	resultExporter(peer: number): Give {
		return (value): Stood | undefined => {
			const importEntry = importOf(value);
			if (importEntry !== undefined) {
				if (importEntry.reference.node !== peer) {
					throw wrongOwner(importEntry);
				}
				return back(importEntry);
			}
			const entry = this.exports.entry(value, peer, false);
			return entry && this.exports.referenceTo(entry);
		};
	}

	/** Reads a reference: a proxy, or the own target if it comes back. */
	readonly take = (value: unknown): unknown => {
		if (typeof value === "object" && value !== null && (value as { kind?: unknown }).kind === "back") {
			const entry = this.exports.get(String((value as { key?: unknown }).key));
			if (entry === undefined) {
				throw new RemoteGone("something came back to its owner, who has let it go");
			}
			return entry.target;
		}
		return this.imports.take(checked(value));
	};
}

/** Wire form of a reference that returns to its owner. */
function back({ reference }: ImportEntry): Stood {
	return { kind: "back", key: reference.key };
}

function wrongOwner({ reference }: ImportEntry): InvalidArgument {
	return new InvalidArgument(`${reference.title}: node '${reference.name}' owns it: it can only be given back to it`);
}
