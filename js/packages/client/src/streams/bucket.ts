/** Key-value buckets: the newest value of each key, with revisions and history. */
import { PageReader, type Reader } from "../iterators/page_reader.js";
import { checkNames } from "../options.js";
import { readValue } from "../values/reader.js";
import { writeValue } from "../values/writer.js";
import { type Home, microseconds, PAGE, timeOf, WAIT_US } from "./home.js";

/** Settings of a bucket. Times are in milliseconds. */
export interface BucketSettings {
	/** How many entries of a key are kept, 1 to 64 (1). */
	readonly history?: number | undefined;
	/** After which time entries go. */
	readonly ttl?: number | undefined;
	/** Largest size of keys and values (67,108,864). */
	readonly maxBytes?: number | undefined;
	/** On how many servers it is kept. */
	readonly replicas?: number | undefined;
}

/** State of a bucket. */
export interface BucketInfo {
	readonly name: string;
	readonly history: number;
	/** Milliseconds after which entries go. */
	readonly ttl: number | undefined;
	/** Bytes of all values at most. */
	readonly maxBytes: number | undefined;
	readonly keys: number;
	readonly bytes: number;
	readonly revision: number;
}

/** A value of a key, or that it was deleted. */
export class Entry<T = unknown> {
	readonly key: string;
	/** Grows with every change of the bucket. */
	readonly revision: number;
	/** When it was written. */
	readonly time: Date;
	private readonly data: Uint8Array | null;

	/** @internal */
	constructor(raw: unknown) {
		const [key, data, revision, time] = raw as [string, Uint8Array | null, number, number];
		this.key = key;
		this.data = data;
		this.revision = revision;
		this.time = timeOf(time);
	}

	/** True if the key has no value. */
	get isDeleted(): boolean {
		return this.data === null;
	}

	/** The value, decoded anew each time; undefined if it was deleted. */
	get value(): T | undefined {
		return this.data === null ? undefined : (readValue(this.data) as T);
	}
}

/**
 * A bucket; `await node.kv(...)` makes one, or finds it. Keys are subjects, such as `limits.eu`.
 */
export class Bucket<T = unknown> {
	/** @internal */
	constructor(
		private readonly home: Home,
		readonly name: string,
	) {}

	/**
	 * Writes a value, and gives its revision: it is on the disk then.
	 *
	 * @param options `ttl`: milliseconds after which it is gone.
	 * @throws StreamFull if the bucket would have more than its `maxBytes`; InvalidSubject if the
	 * key is not allowed.
	 */
	async put(key: string, value: T, options: { readonly ttl?: number | undefined } = {}): Promise<number> {
		checkNames("put", options, { ttl: 0 });
		return this.write(key, value, null, options.ttl);
	}

	/**
	 * Writes a value if the key has none.
	 *
	 * @throws RevisionConflict if it has one.
	 */
	async create(key: string, value: T, options: { readonly ttl?: number | undefined } = {}): Promise<number> {
		checkNames("create", options, { ttl: 0 });
		return this.write(key, value, 0, options.ttl);
	}

	/**
	 * Writes a value if the newest entry of the key has this revision: compare and set.
	 *
	 * @throws RevisionConflict if it has another.
	 */
	async update(
		key: string,
		value: T,
		options: { readonly revision: number; readonly ttl?: number | undefined },
	): Promise<number> {
		checkNames("update", options, { revision: 0, ttl: 0 });
		return this.write(key, value, options.revision, options.ttl);
	}

	private async write(key: string, value: T, expect: number | null, ttl: number | undefined): Promise<number> {
		const data = writeValue(value, undefined, `${this.name}: ${key}`);
		return (await this.home.call("put", this.name, key, data, expect, microseconds("ttl", ttl))) as number;
	}

	/** The newest entry of a key, or that of a revision; undefined if it has no value. */
	async get(key: string, options: { readonly revision?: number | undefined } = {}): Promise<Entry<T> | undefined> {
		checkNames("get", options, { revision: 0 });
		const raw = await this.home.ask("get", [this.name, key, options.revision ?? null]);
		return raw === null ? undefined : new Entry<T>(raw);
	}

	/**
	 * Deletes the value of a key, and with `purge` its history, too; gives the revision.
	 *
	 * @throws RevisionConflict if its newest entry has another revision than the one that was
	 * given.
	 */
	async delete(
		key: string,
		options: { readonly revision?: number | undefined; readonly purge?: boolean | undefined } = {},
	): Promise<number> {
		checkNames("delete", options, { revision: 0, purge: 0 });
		const { revision = null, purge = false } = options;
		return (await this.home.call("delete", this.name, key, revision, purge)) as number;
	}

	/** The keys that have a value and match a pattern, in order. */
	async keys(filter = ">"): Promise<string[]> {
		const found: string[] = [];
		for (;;) {
			const more = (await this.home.ask("keys", [this.name, filter, found.at(-1) ?? null, PAGE])) as string[];
			found.push(...more);
			if (more.length < PAGE) {
				return found;
			}
		}
	}

	/** The stored entries of a key, oldest first, deletions included. */
	async history(key: string): Promise<Entry<T>[]> {
		const raw = (await this.home.ask("history", [this.name, key])) as unknown[];
		return raw.map((fields) => new Entry<T>(fields));
	}

	/**
	 * The present entries, and then every change: of each key at least the newest. The watch waits
	 * while the link is lost.
	 *
	 * @param options `after`: changes after this revision only; `signal` ends the wait.
	 */
	watch(
		filter = ">",
		options: { readonly after?: number | undefined; readonly signal?: AbortSignal | undefined } = {},
	): Reader<Entry<T>> {
		checkNames("watch", options, { after: 0, signal: 0 });
		let after = options.after ?? 0;
		return new PageReader(async (signal) => {
			const args = [this.name, filter, after, PAGE, WAIT_US];
			const [raw, upto] = (await this.home.ask("watch", args, signal)) as [unknown[], number];
			after = upto;
			return raw.map((fields) => new Entry<T>(fields));
		}, options.signal);
	}

	/** Its settings, and how many keys and bytes it has. */
	async info(): Promise<BucketInfo> {
		return bucketInfo(await this.home.ask("bucket_info", [this.name]));
	}

	/** Deletes the bucket with all it has. */
	async purge(): Promise<void> {
		await this.home.call("delete_bucket", this.name);
	}
}

/** Converts the description of a bucket from the storage backend. */
export function bucketInfo(raw: unknown): BucketInfo {
	const answer = raw as Omit<BucketInfo, "ttl" | "maxBytes"> & {
		readonly ttl_us: number | null;
		readonly max_bytes: number | null;
	};
	const { name, history, keys, bytes, revision } = answer;
	const ttl = answer.ttl_us === null ? undefined : answer.ttl_us / 1000;
	return { name, history, ttl, maxBytes: answer.max_bytes ?? undefined, keys, bytes, revision };
}
