/** References: the mark of an object, and its form on the wire. */
import { InvalidArgument, WireError } from "../generated/errors.js";
import { REMOTE_LEASE_MS } from "../generated/limits.js";
import { checkNames } from "../options.js";
import { asyncDispose } from "../symbols.js";

const KEY = /^[0-9a-f]{32}$/;

export type ReferenceKind = "function" | "object" | "items";

/** Wire form of a function or an object. */
export interface Reference {
	readonly node: number;
	readonly name: string;
	readonly key: string;
	readonly kind: ReferenceKind;
	readonly title: string;
	readonly methods: readonly (readonly [name: string, streams: boolean, timeout: number | null])[];
}

/** Marks an object, so that it is given by reference. */
export class Remote {
	/** @internal Tables that have given it; one of a closed node may be collected. */
	readonly tables = new Set<WeakRef<{ dispose(target: object): void }>>();

	/** @internal */
	constructor(
		readonly target: object,
		readonly leaseMs: number,
	) {}

	/** Releases it for all holders. A second call does nothing. */
	dispose(): void {
		for (const table of this.tables) {
			table.deref()?.dispose(this.target);
		}
		this.tables.clear();
	}

	/** The same, for `await using`. */
	async [asyncDispose](): Promise<void> {
		this.dispose();
	}
}

/**
 * Marks an object or a function, so that as an argument or a result it is given by reference: its
 * methods are called here. A function needs that only for a lease of its own, or to be released by
 * `dispose()`.
 *
 * @param options `lease`: how long it lives without being used, in milliseconds (600,000).
 */
export function remote(target: object, options: { readonly lease?: number | undefined } = {}): Remote {
	checkNames("remote", options, { lease: 0 });
	const lease = options.lease ?? REMOTE_LEASE_MS;
	if (!(lease > 0 && lease <= 604_800_000)) {
		throw new InvalidArgument(
			`remote: lease: ${lease} is not allowed: give milliseconds, more than 0 and at most 604,800,000`,
		);
	}
	if (typeof target !== "object" && typeof target !== "function") {
		throw new InvalidArgument(`remote: a ${typeof target} is not allowed: give an object or a function`);
	}
	return new Remote(target, lease);
}

/** Checks the wire form of a reference. */
export function checked(value: unknown): Reference {
	const reference = value as Partial<Reference> | null;
	const isReference =
		typeof reference === "object" &&
		reference !== null &&
		typeof reference.node === "number" &&
		typeof reference.name === "string" &&
		typeof reference.title === "string" &&
		typeof reference.key === "string" &&
		KEY.test(reference.key) &&
		(reference.kind === "function" || reference.kind === "object" || reference.kind === "items");
	const methods: unknown = reference?.methods ?? [];
	if (!isReference || !Array.isArray(methods) || !methods.every(isMethod)) {
		throw new WireError("a function or an object has an unknown form");
	}
	return { ...(reference as Reference), methods };
}

function isMethod(method: unknown): boolean {
	return (
		Array.isArray(method) && method.length === 3 && typeof method[0] === "string" && typeof method[1] === "boolean"
	);
}
