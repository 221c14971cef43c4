/** The calls of a node: clients of services, and requests on subjects. */

import type { Directory } from "../discovery/directory.js";
import { InvalidArgument } from "../generated/errors.js";
import { ASK_TIMEOUT_MS } from "../generated/limits.js";
import type { Presence } from "../link/presence.js";
import type { Runtime } from "../link/runtime.js";
import type { References } from "../objects/references.js";
import { argumentsOf, type CallOptions, checkOptions, choiceOf, headerFields, laneOf, shown } from "../options.js";
import type { Commands, StartOptions } from "../streams/commands.js";
import { checkSubject, NAME, serviceSubject } from "../subjects/subjects.js";
import { Unloaded } from "../values/reader.js";
import { NORMAL } from "../wire/frames.js";
import { type CallSite, callValue, Invocation, type Plan, readItems } from "./calls.js";
import { type AnyService, type Client, clientOf } from "./client.js";
import type { Interceptor, OutgoingCall } from "./interceptors.js";

type Next = Parameters<Interceptor>[1];

export class Clients {
	/** Environment of outbound calls. */
	readonly site: CallSite;
	/** Has a call pass the interceptors, and makes it. */
	private chain = (call: OutgoingCall, make: Next): unknown => make(call);
	private list: Directory | undefined;
	/** Starts a command of a service; the node sets it. */
	declare start: Commands["start"];

	/**
	 * @param references Exports and imports; undefined while their code is not loaded.
	 * @param load Loads that.
	 */
	constructor(
		runtime: Runtime,
		presence: Presence,
		references: () => References | undefined,
		load: () => Promise<unknown>,
	) {
		this.site = {
			runtime,
			load,
			nested: () => (plan) => plan,
			bind: (run) => run,
			exportScope: (peer) => references()?.exportScope(peer),
			take: (reference) => {
				const own = references();
				if (own === undefined) {
					throw new Unloaded();
				}
				return own.take(reference);
			},
			joined: (timeoutMs) => presence.joined(timeoutMs),
			instanceAt: async (service, node) => (await this.directory()).at(service, node),
		};
	}

	/** Has calls pass a function behind those before. */
	use(interceptor: Interceptor): void {
		const { chain } = this;
		this.chain = (call, make) => chain(call, async (passed) => interceptor(passed, make));
	}

	client<T = AnyService>(service: string, options: CallOptions): Client<T> {
		checkService("client", service);
		checkOptions(options);
		return clientOf(
			(method) => this.method(service, method, options),
			(more: CallOptions) => this.client(service, { ...options, ...more }),
		) as Client<T>;
	}

	/** A method of a client; how it is called is found out by its first call. */
	private method(service: string, method: string, options: CallOptions): (...args: unknown[]) => Invocation {
		const { site } = this;
		let known: Plan | undefined;
		const start = (startOptions?: StartOptions) => ({
			start: (...args: unknown[]) => this.start(service, method, args, startOptions),
		});
		const call = (...args: unknown[]): Invocation => {
			known ??= planOf(service, method, options);
			const part = site.nested();
			const own = part(known);
			const run = (isStream: boolean) =>
				this.chain({ service, method, args, options, isStream }, ({ args: sent, options: finalOptions }) => {
					const plan = finalOptions === options ? own : part(planOf(service, method, checkOptions(finalOptions)));
					const value = argumentsOf(sent);
					return isStream
						? readItems(site, plan, value)
						: finalOptions.policy === "all"
							? this.directory().then((directory) => directory.callAll(plan, method, value, finalOptions))
							: callValue(site, plan, value);
				}) as Promise<unknown>;
			return new Invocation(site.runtime, site.bind(run));
		};
		return Object.assign(call, start(), { with: start });
	}

	/** How many entries of the hub's lists of services were skipped. */
	get skipped(): number {
		return this.list?.skipped ?? 0;
	}

	/** The hub's list of services. */
	async directory(): Promise<Directory> {
		const { Directory } = await import("../lazy_chunk.js");
		this.list ??= new Directory(this.site);
		return this.list;
	}

	/** Sends a request to a subscriber of a subject. */
	request(subject: string, value: unknown, options: CallOptions): Promise<unknown> {
		return callValue(this.site, requestPlan(subject, options), value);
	}
}

/** Refuses what is no name of a service. */
export function checkService(title: string, service: unknown): void {
	if (typeof service !== "string" || !NAME.test(service)) {
		throw new InvalidArgument(`${title}: service: ${shown(service)} is not allowed: give the name of a service`);
	}
}

/** How a method of a service is called. */
export function planOf(service: string, method: string, options: CallOptions): Plan {
	const title = `${service}.${method}`;
	const own = serviceSubject(service, method);
	const subject = (instance = options.instance): string =>
		instance === undefined ? own : serviceSubject(service, method, instance);
	checkSubject(subject(), false);
	return { ...commonPlan(title, options), subject, service, choice: choiceOf(options.policy), gives: true };
}

/** Sender of requests to a subscriber of a subject. */
export function requestPlan(subject: string, options: CallOptions): Plan {
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
