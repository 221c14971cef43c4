/** The calls of a node: clients of services, and requests on subjects. */
import { type CallSite, callValue, Invocation, type Plan, Stream } from "./calls.js";
import { type Answer, type AnyService, type Client, clientOf } from "./client.js";
import { type Instance, readInstances } from "./discovery.js";
import { NORMAL } from "./frames.js";
import { InvalidArgument, NoResponders } from "./generated/errors.js";
import { ASK_TIMEOUT_MS } from "./generated/limits.js";
import { type CallOptions, checkOptions, choiceOf, headerFields, laneOf, shown, splitArguments } from "./options.js";
import type { Presence } from "./presence.js";
import type { References } from "./references.js";
import type { Runtime } from "./runtime.js";
import { checkSubject } from "./subjects.js";
import { tuple } from "./values/kinds.js";

const LIST_MS = 5000;
/** What a service, an instance and a method may be called. */
export const NAME = /^[^\s.*>\p{Cc}]{1,255}$/u;

export class Clients {
	/** What calls are made with. */
	readonly site: CallSite;
	/** How many entries of the hub's lists of services were skipped. */
	skipped = 0;

	constructor(runtime: Runtime, presence: Presence, references: () => References) {
		this.site = {
			runtime,
			get references() {
				return references();
			},
			joined: (timeoutMs) => presence.joined(timeoutMs),
			instanceAt: (service, node) => this.instanceAt(service, node),
		};
	}

	client<T = AnyService>(service: string, options: CallOptions): Client<T> {
		if (typeof service !== "string" || !NAME.test(service)) {
			throw new InvalidArgument(`client: service: ${shown(service)} is not allowed: give the name of a service`);
		}
		checkOptions(options);
		return clientOf(
			(method) => this.method(service, method, options),
			(more: CallOptions) => this.client(service, { ...options, ...more }),
		) as Client<T>;
	}

	/** A method of a client; how it is called is found out by its first call. */
	private method(service: string, method: string, options: CallOptions): (...args: unknown[]) => Invocation {
		let known: Plan | undefined;
		return (...args) => {
			known ??= planOf(service, method, options);
			const plan = known;
			const [positional, byName] = splitArguments(args);
			const value = byName === undefined ? tuple(...positional) : [tuple(...positional), byName];
			return new Invocation(
				() =>
					options.policy === "all" ? this.callAll(service, method, value, options) : callValue(this.site, plan, value),
				() => new Stream(this.site, plan, value),
			);
		};
	}

	private async callAll(service: string, method: string, value: unknown, options: CallOptions): Promise<Answer[]> {
		const found = (await this.instances()).filter((one) => one.info.name === service);
		if (found.length === 0) {
			throw new NoResponders(`${service}: nobody serves it now`);
		}
		const one = async (instance: string): Promise<Answer> => {
			const { policy: _, ...rest } = options;
			try {
				const plan = planOf(service, method, { ...rest, instance });
				return { instance, value: await callValue(this.site, plan, value), error: undefined };
			} catch (error) {
				return { instance, value: undefined, error };
			}
		};
		return Promise.all(found.map(({ info }) => one(info.instances[0] as string)));
	}

	/** Asks whoever is subscribed to a subject. */
	request(subject: string, value: unknown, options: CallOptions): Promise<unknown> {
		return callValue(this.site, requestPlan(subject, options), value);
	}

	/** What is served, as the hub lists it: each instance by itself. */
	async instances(): Promise<Instance[]> {
		const listed = await this.request("$hub.services", null, { timeout: LIST_MS });
		return readInstances(listed, () => this.skipped++);
	}

	private async instanceAt(service: string, node: string): Promise<string> {
		const found = (await this.instances()).find((one) => one.node === node && one.info.name === service);
		if (found === undefined) {
			throw new InvalidArgument(
				`${service}: node '${node}' does not serve it: what it owns can only be given back to it`,
			);
		}
		return found.info.instances[0] as string;
	}
}

function planOf(service: string, method: string, options: CallOptions): Plan {
	const title = `${service}.${method}`;
	const subject = (instance = options.instance): string =>
		instance === undefined ? own : `svc.${service}.${instance}.${method}`;
	const own = `svc.${title}`;
	checkSubject(subject(), false);
	return { ...commonPlan(title, options), subject, service, choice: choiceOf(options.policy), gives: true };
}

function requestPlan(subject: string, options: CallOptions): Plan {
	return { ...commonPlan(subject, options), subject: () => subject, choice: 0, gives: false };
}

function commonPlan(title: string, options: CallOptions): Omit<Plan, "subject" | "choice" | "gives"> {
	return {
		title,
		fields: headerFields(options.headers),
		lane: options.priority === undefined ? NORMAL : laneOf(options.priority),
		timeoutMs: options.timeout,
		defaultMs: ASK_TIMEOUT_MS,
		again: options.idempotent ?? false,
		signal: options.signal,
	};
}
