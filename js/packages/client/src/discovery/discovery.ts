/** The hub's list of services. */

import { WireError } from "../generated/errors.js";
import { serviceSubject } from "../subjects/subjects.js";
import { decode } from "../text.js";
import { type Fields, fieldText } from "../wire/frames.js";

/** JSON Schema (2020-12). */
export type Schema = { readonly [key: string]: unknown } | boolean;
/** Allowed callers: the nodes that joined the hub, or also clients over HTTP. */
export type Visibility = "private" | "public";

/** A method of a service. */
export interface MethodInfo {
	readonly name: string;
	readonly description: string;
	/** JSON Schema of its arguments, as an object by their names. */
	readonly parameters: Schema;
	/** JSON Schema of its result; of one item, if it is a stream. */
	readonly result: Schema;
	readonly stream: boolean;
	readonly idempotent: boolean;
	/** Seconds that a call may take where its caller says nothing. */
	readonly timeout: number | null;
	readonly visibility: string;
	readonly notes: readonly string[];
}

/** The keys that the description of a method may omit. */
export const METHOD = {
	description: "",
	parameters: {},
	result: {},
	stream: false,
	idempotent: false,
	timeout: null,
	visibility: "private",
};

/** A service, as its hub lists it. */
export interface ServiceInfo {
	readonly name: string;
	readonly description: string;
	readonly visibility: string;
	readonly methods: readonly MethodInfo[];
	readonly events: readonly unknown[];
	/** The ids of its instances. */
	readonly instances: readonly string[];
	/** Details of the single instances, in the same order. */
	readonly details: readonly InstanceInfo[];
}

/** An instance of a service, as its hub lists it. */
export interface InstanceInfo {
	readonly id: string;
	/** The name of the node that serves it. */
	readonly node: string;
	/** Its semantic version; empty if it says none. */
	readonly version: string;
	/** Further metadata of the instance, by name. */
	readonly metadata: Readonly<Record<string, string>>;
}

/** An instance of a service, and whose it is. */
export interface Instance {
	readonly node: string;
	readonly info: ServiceInfo;
}

/**
 * Reads the list of a hub. The reader skips descriptions of services that are malformed.
 */
export function readInstances(listed: unknown, skipped: () => void = () => {}): Instance[] {
	if (!(listed instanceof Uint8Array)) {
		throw malformed();
	}
	const view = new DataView(listed.buffer, listed.byteOffset, listed.byteLength);
	const found: Instance[] = [];
	let at = 0;
	const text = (length: number): string => {
		const part = at + length <= listed.length ? decode(listed, at, at + length) : undefined;
		if (part === undefined) {
			throw malformed();
		}
		at += length;
		return part;
	};
	const u16 = (): number => {
		at += 2;
		return view.getUint16(at - 2, true);
	};
	try {
		while (at < listed.length) {
			const [node, queue, pattern] = [text(u16()), text(u16()), text(u16())];
			const length = view.getUint32(at + 4, true);
			at += 8;
			const end = at + length;
			const fields: Fields = readFields(listed, view, at, end);
			at = end;
			const announcement = fieldText(fields, "service");
			if (announcement === undefined) {
				continue;
			}
			const info = described(announcement);
			const [instance] = info?.instances ?? [];
			if (info && queue === "" && pattern === serviceSubject(info.name, "*", instance)) {
				const detail = { id: instance, version: "", metadata: {}, ...info.details?.[0], node } as InstanceInfo;
				found.push({ node, info: { ...info, details: [detail] } });
			} else {
				skipped();
			}
		}
	} catch (error) {
		throw error instanceof RangeError ? malformed() : error;
	}
	return found;
}

/** Puts the instances of one name together, in the order of their names. */
export function services(instances: readonly Instance[]): ServiceInfo[] {
	const found = new Map<string, ServiceInfo>();
	for (const { info } of instances) {
		const known = found.get(info.name);
		const instances = [...(known?.instances ?? []), ...info.instances];
		found.set(info.name, { ...(known ?? info), instances, details: [...(known?.details ?? []), ...info.details] });
	}
	return [...found.values()].sort((one, other) => (one.name < other.name ? -1 : 1));
}

function readFields(bytes: Uint8Array, view: DataView, begin: number, end: number): Fields {
	const fields: [string, Uint8Array][] = [];
	let at = begin + 1;
	for (let left = begin < end ? view.getUint8(begin) : 0; left > 0; left--) {
		const name = decode(bytes, at + 1, at + 1 + view.getUint8(at)) ?? "";
		at += 1 + view.getUint8(at);
		const length = view.getUint16(at, true);
		fields.push([name, bytes.subarray(at + 2, at + 2 + length)]);
		at += 2 + length;
	}
	if (at > Math.max(end, begin + 1)) {
		throw malformed();
	}
	return fields;
}

function described(text: string): ServiceInfo | undefined {
	try {
		// Text of another form throws, or is left out.
		const info = JSON.parse(text) as ServiceInfo;
		const methods = info.methods.map((one: Partial<MethodInfo>) => ({ notes: [], ...METHOD, ...one }));
		const isNamed = [info, ...methods].every(({ name }) => typeof name === "string");
		return isNamed && info.instances.length === 1 ? ({ ...info, methods } as ServiceInfo) : undefined;
	} catch {
		return undefined;
	}
}

function malformed(): WireError {
	return new WireError("the hub's list of services has an unknown form: run versions that fit");
}
