/** Sentences about what needs attention first. */
import { count, counted, percent, since } from "./format.js";
import type { Hub } from "./hub.js";
import { depth, failures, num, type Row, type Snapshot, sum, text } from "./snapshots.js";

/** One sentence. The worst come first. */
export interface Concern {
	/** 3: work is lost or stuck; 2: work is late; 1: worth a snapshot. */
	readonly level: 1 | 2 | 3;
	/** Name of the thing. */
	readonly subject: string;
	readonly text: string;
	/** The view with more about it, and the row there. */
	readonly view: string;
	readonly selected: string;
}

const NEARLY_FULL = 0.9;
const HALF_FULL = 0.5;
/** Share of failures, and how many failed at least, from which a service is named. */
const ERROR_SHARE = 0.01;
const ERRORS_MIN = 3;
/** Share of calls that fail now, from which it is urgent. */
const HALF_FAIL = 0.5;
const BEHIND = 100;

/** All concerns of a hub. */
export function concernsOf(hub: Hub): Concern[] {
	const found: Concern[] = [];
	for (const [key, reason] of hub.silent) {
		const node = hub.snapshots.get(key)?.node ?? key;
		found.push({ level: 3, subject: node, text: `does not answer: ${reason}`, view: "nodes", selected: key });
	}
	for (const { stream, name, dead, lag, isPaused, oldestTime } of hub.consumers) {
		const of = { subject: name, view: "streams", selected: stream };
		if (dead > 0) {
			found.push({ level: 3, ...of, text: `${counted(dead, "dead letter")} on ${stream}`, view: "dead-letters" });
		}
		if (lag > 0 && (lag >= BEHIND || isPaused)) {
			const oldest = oldestTime ? `, oldest ${since(oldestTime)}` : "";
			const paused = isPaused ? "; paused" : "";
			found.push({ level: 2, ...of, text: `${counted(lag, "event")} behind on ${stream}${oldest}${paused}` });
		}
	}
	for (const snapshot of hub.snapshots.values()) {
		found.push(...ofNode(snapshot));
	}
	return found.sort((one, other) => other.level - one.level);
}

function ofNode(snapshot: Snapshot): Concern[] {
	const found: Concern[] = [];
	const { rows } = snapshot;
	const add = (level: 1 | 2 | 3, subject: string, message: string, view: string, selected: string): void => {
		found.push({ level, subject, text: message, view, selected });
	};
	for (const row of rows.pools) {
		const [name, workers, busy] = [text(row, "name"), num(row, "workers"), num(row, "workers_busy")];
		const waits = depth(row);
		if (workers === 0 && waits > 0) {
			add(3, name, `no workers; ${counted(waits, "task")} wait`, "pools", name);
		} else if (busy >= workers && waits > 0) {
			add(2, name, `${count(waits)} wait; ${busy} of ${counted(workers, "worker")} busy`, "pools", name);
		}
		if (num(row, "restarts") > 0) {
			add(1, name, `${counted(num(row, "restarts"), "worker")} replaced after a crash`, "pools", name);
		}
	}
	for (const row of [...rows.agents, ...rows.actors]) {
		const name = text(row, "id") === "" ? text(row, "name") : nameOf(row);
		const share = num(row, "capacity") > 0 ? depth(row) / num(row, "capacity") : 0;
		if (share >= HALF_FULL) {
			const message = `${count(depth(row))} wait; the queue is ${percent(share)} full`;
			add(share >= NEARLY_FULL ? 3 : 2, name, message, "actors", keyOf(snapshot, row));
		}
		if (text(row, "status") === "failing") {
			add(2, name, `${counted(failures(row), "message")} failed`, "actors", keyOf(snapshot, row));
		}
	}
	for (const row of rows.services) {
		const [calls, errors] = [num(row, "calls"), num(row, "errors")];
		const name = text(row, "service");
		if ((row.errorRate ?? 0) > 0 || (errors >= ERRORS_MIN && errors / Math.max(calls, 1) >= ERROR_SHARE)) {
			const message = `${count(errors)} of ${counted(calls, "call")} failed (${percent(errors / Math.max(calls, 1))})`;
			const now = (row.errorRate ?? 0) / Math.max(row.rate ?? 0, 1e-9);
			add(now >= HALF_FAIL ? 3 : now > 0 ? 2 : 1, name, `${message} on ${snapshot.node}`, "services", name);
		}
	}
	for (const row of rows.joins) {
		const lost = text(row, "state") === "lost";
		const unshared = Object.entries(Object.assign({}, ...((row.not_shared ?? []) as object[]))) as [string, string][];
		const of = `the hub ${text(row, "name")}`;
		if (lost) {
			add(3, snapshot.node, `the link to ${of} is lost`, "nodes", snapshot.key);
		} else if (unshared.length > 0) {
			const names = unshared.map(([name]) => name).join(", ");
			add(
				2,
				snapshot.node,
				`${names} ${unshared.length === 1 ? "is" : "are"} not shared with ${of}`,
				"nodes",
				snapshot.key,
			);
		}
	}
	for (const row of rows.routes.filter((one) => text(one, "state") === "ejected")) {
		const [name, instance] = [text(row, "service"), text(row, "instance")];
		add(2, name, `${snapshot.node} sends no calls to ${instance}: too many failed`, "services", name);
	}
	for (const row of rows.dispatchers.filter((one) => one.starved === true)) {
		const message = `all threads of the dispatcher ${text(row, "name")} are held by handlers`;
		add(3, snapshot.node, message, "nodes", snapshot.key);
	}
	const { total, text: reasons } = deadLettersOf(snapshot.about);
	if (total > 0) {
		add(1, snapshot.node, `${counted(total, "message")} given up: ${reasons}`, "nodes", snapshot.key);
	}
	return found;
}

/** Messages that a node gave up, with the reasons. */
export function deadLettersOf(about: Snapshot["about"] = {}): { total: number; text: string } {
	const letters = Object.entries((about.dead_letters ?? {}) as Readonly<Record<string, unknown>>);
	const reasons = letters.map(([reason, times]) => [reason.replaceAll("_", " "), Number(times)] as const);
	const some = reasons.filter(([, times]) => times > 0);
	return { total: sum(some, (one) => one[1]), text: some.map(([why, times]) => `${count(times)} ${why}`).join(", ") };
}

/** Name of an actor or agent; its number if it has none. */
export function nameOf(row: Row): string {
	const name = text(row, "agent") || text(row, "name");
	return name || (typeof row.id === "string" ? row.id : `#${text(row, "id")}`);
}

/** Key of an actor or agent among those of all nodes. */
export const keyOf = (snapshot: Snapshot, row: Row): string =>
	`${snapshot.key}:${text(row, "actor") || text(row, "id")}`;

/** The state of a hub without concerns, in one sentence. */
export function calm(hub: Hub): string {
	const of = (kind: "agent" | "pool"): string =>
		counted(
			sum([...hub.snapshots.values()], (one) => one.counts[`${kind}s`]),
			kind,
		);
	const own = hub.services.filter((one) => !isOwn(one.name)).length;
	return `${counted(hub.snapshots.size, "node")}, ${counted(own, "service")}, ${of("agent")} and ${of("pool")} run.`;
}

/** True for services of Tidewire itself. */
export const isOwn = (service: string): boolean => service.startsWith("$") || service.startsWith("tidewire-");
