/**
 * Dispatch of inbound traffic: calls to services, subscribers and exports, messages to
 * subscribers.
 */
import { TidewireError } from "../error.js";
import { ERRORS } from "../generated/error_table.js";
import { InvalidArgument } from "../generated/errors.js";
import type { Callee, Incoming, Message } from "../link/exchanges.js";
import type { Runtime } from "../link/runtime.js";
import type { Session } from "../link/session.js";
import type { Bound } from "../objects/methods.js";
import type { References } from "../objects/references.js";
import type { Envelope, Subscribed, Subscriptions } from "../subjects/subscriptions.js";
import { encode } from "../text.js";
import { readValue } from "../values/reader.js";
import { writeValue } from "../values/writer.js";
import type { Serving } from "./served_instance.js";
import { HandlerLimits, headersOf, isPublic, userOf } from "./service_instance.js";

const NO_SUCH_TARGET = 7;
const REMOTE_ERROR = 15;
const NUMBERS = new Map([...ERRORS].map(([number, errorClass]) => [new errorClass().code, number]));

export class Dispatch {
	/** Limits of the calls of exports, and of those of subscribers. */
	readonly limits: readonly [objects: HandlerLimits, answering: HandlerLimits];

	constructor(
		private readonly runtime: Runtime,
		private readonly servings: ReadonlySet<Serving>,
		private readonly subscriptions: Subscriptions,
		private readonly references: References,
	) {
		this.limits = [new HandlerLimits(runtime), new HandlerLimits(runtime)];
	}

	published(message: Message): void {
		const { session } = this.runtime.link;
		this.subscriptions.deliver(message.to, message.subject, { envelope: envelopeOf(message, session) });
	}

	called(call: Incoming, now: number): Callee | undefined {
		const session = this.runtime.session;
		try {
			if (call.subject.startsWith("$node.")) {
				return this.calledObject(call, session, now);
			}
			const subscription = this.subscriptions.find(call.to);
			if (subscription !== undefined) {
				return this.requested(call, session, subscription, now);
			}
			for (const serving of this.servings) {
				if (serving.has(call.to)) {
					return this.calledService(call, session, serving, now);
				}
			}
			session.theirs.fail(call.id, NO_SUCH_TARGET, encode(`${call.subject}: nothing here answers it any more`));
		} catch (error) {
			const thrown = error instanceof TidewireError ? error : new InvalidArgument(String(error));
			session.theirs.fail(call.id, NUMBERS.get(thrown.code) ?? REMOTE_ERROR, encode(thrown.message));
		} finally {
			this.runtime.plan();
		}
		return undefined;
	}

	private calledService(call: Incoming, session: Session, serving: Serving, now: number): Callee | undefined {
		const name = call.subject.slice(call.subject.lastIndexOf(".") + 1);
		const methods = isPublic(call) ? serving.open : serving.methods;
		const bound = methods.get(name);
		if (bound === undefined) {
			const text = `${serving.name} has no method '${name}': there are ${[...methods.keys()].slice(0, 10).join(", ")}`;
			session.theirs.fail(call.id, NO_SUCH_TARGET, encode(text));
			return undefined;
		}
		return this.run(serving.limits, call, session, `${serving.name}.${name}`, bound, now);
	}

	private calledObject(call: Incoming, session: Session, now: number): Callee | undefined {
		const [, , what = "", ...rest] = call.subject.split(".");
		if (what === "claim" || what === "release") {
			this.references.exports[what](readValue(call.payload), call.origin);
			session.theirs.reply(call.id, writeValue(null));
			return undefined;
		}
		const entry = this.references.exports.use(what, call.origin);
		const name = rest.join(".");
		const bound = entry.methods.get(name);
		if (bound === undefined) {
			session.theirs.fail(call.id, NO_SUCH_TARGET, encode(`${entry.title} has no method '${name}'`));
			return undefined;
		}
		this.references.exports.busy(entry);
		const title = entry.kind === "object" ? `${entry.title}.${name}` : entry.title;
		return this.run(this.limits[0], call, session, title, bound, now, () => this.references.exports.idle(entry));
	}

	private run(
		limits: HandlerLimits,
		call: Incoming,
		session: Session,
		title: string,
		bound: Bound,
		now: number,
		onEnd?: () => void,
	): Callee | undefined {
		const run = (): unknown => bound.run(argumentsOf(readValue(call.payload, this.references.take), bound, title));
		const give = this.references.resultExporter(call.origin);
		const work = { call, session, title, streams: bound.streams, run, give };
		return limits.take(onEnd === undefined ? work : { ...work, onEnd }, now);
	}

	private requested(call: Incoming, session: Session, subscription: Subscribed, now: number): Callee | undefined {
		const envelope = envelopeOf(call, session);
		const run = (): unknown => subscription.listener?.(envelope().value, envelope());
		const work = { call, session, title: call.subject, streams: false, run, give: undefined };
		return this.limits[1].take(work, now);
	}
}

/** A message of a link with its metadata, whose value is read once. */
function envelopeOf(message: Incoming | Message, session: Session | undefined): () => Envelope {
	const { origin, subject, fields, payload } = message;
	const [node, user] = [session?.peer(origin).name ?? "", userOf(message, session)];
	let read: Envelope | undefined;
	return () => {
		read ??= { subject, value: readValue(payload), headers: headersOf(fields), node, user };
		return read;
	};
}

/** The arguments of a call, in the order of the parameters. */
function argumentsOf(value: unknown, bound: Bound, title: string): unknown[] {
	if (value === null) {
		return [];
	}
	const both = Array.isArray(value) && value.length === 2 && Array.isArray(value[0]) && isMap(value[1]);
	if (Array.isArray(value) && !(both && value.constructor === Array)) {
		return [...(value as unknown[])];
	}
	const positional = both ? [...((value as unknown[][])[0] as unknown[])] : [];
	const named: unknown = both ? (value as unknown[])[1] : value;
	if (!isMap(named)) {
		throw new InvalidArgument(`${title}: the arguments are a ${typeof value}: send a list of them, or a map by name`);
	}
	for (const [name, argument] of Object.entries(named)) {
		const at = bound.parameters?.indexOf(name) ?? -1;
		if (bound.parameters === undefined) {
			throw new InvalidArgument(
				`${title}: ${name}: its parameters have no names: call it by position, or serve it with methods: { ${bound.name}: { parameters: [...] } }`,
			);
		}
		if (at < 0) {
			throw new InvalidArgument(
				`${title}: ${JSON.stringify(name)} is not the name of a parameter: there are ${bound.parameters.join(", ")}`,
			);
		}
		if (at < (both ? ((value as unknown[][])[0] as unknown[]).length : 0)) {
			throw new InvalidArgument(`${title}: ${name}: it is given twice, by position and by name`);
		}
		positional[at] = argument;
	}
	return positional;
}

function isMap(value: unknown): value is object {
	return typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}
