/**
 * Inbound side of a node: its services, subscriptions and exports, their announcement to the hub,
 * and the calls and messages for them.
 */

import type { CallSite } from "../calls/calls.js";
import type { TidewireError } from "../error.js";
import { InvalidArgument, LinkLost } from "../generated/errors.js";
import type { Callee, Incoming as IncomingCall, Message } from "../link/exchanges.js";
import type { Presence } from "../link/presence.js";
import type { Runtime } from "../link/runtime.js";
import { boundMethods } from "../objects/methods.js";
import { References } from "../objects/references.js";
import { shown } from "../options.js";
import { randomName } from "../platform/shell.js";
import { NAME, serviceSubject } from "../subjects/subjects.js";
import {
	type Envelope,
	type Listener,
	Subscribed,
	type SubscribeOptions,
	Subscriptions,
} from "../subjects/subscriptions.js";
import { encode } from "../text.js";
import { readValue } from "../values/reader.js";
import { writeValue } from "../values/writer.js";
import { handledCall } from "./context.js";
import { Dispatch } from "./dispatch.js";
import { nested } from "./nested_call.js";
import {
	checkServeOptions,
	infoOf,
	openOf,
	type ServeOptions,
	type ServiceHandle,
	Serving,
} from "./served_instance.js";
import { HandlerLimits } from "./service_instance.js";

type ServiceField = readonly [name: string, value: Uint8Array];

export class Incoming {
	readonly subscriptions = new Subscriptions();
	readonly references: References;
	private readonly servings = new Set<Serving>();
	private readonly dispatch: Dispatch;

	constructor(
		private readonly runtime: Runtime,
		private readonly presence: Presence,
		site: CallSite,
		private readonly name: string,
		/** Says what can't be thrown to anybody. */
		private readonly report: (error: unknown) => void,
	) {
		site.nested = nested;
		const { soon } = runtime.shell;
		// The work for all calls at once is no part of the call whose handler caused it.
		runtime.shell.soon = (run) => soon(() => handledCall.run(undefined, run));
		this.references = new References(runtime, site, name);
		this.dispatch = new Dispatch(runtime, this.servings, this.subscriptions, this.references);
	}

	get services(): number {
		return this.servings.size;
	}

	/** Limits of the handlers of exports, subscribers and services. */
	get limits(): readonly HandlerLimits[] {
		return [...this.dispatch.limits, ...[...this.servings].map((serving) => serving.limits)];
	}

	called(call: IncomingCall, now: number): Callee | undefined {
		return this.dispatch.called(call, now);
	}

	published(message: Message): void {
		this.dispatch.published(message);
	}

	// Services

	async serve(name: string, target: object, options: ServeOptions): Promise<ServiceHandle> {
		checkServeOptions(options);
		const instance = options.instance ?? randomName(this.runtime.shell);
		for (const [field, value] of Object.entries({ name, instance })) {
			if (typeof value !== "string" || !NAME.test(value)) {
				throw new InvalidArgument(
					`serve: ${field}: ${shown(value)} is not allowed: give one token without dots, blanks, '*' and '>'`,
				);
			}
		}
		const methods = boundMethods(target, options.methods ?? {});
		if (methods.size === 0) {
			throw new InvalidArgument(
				`serve: ${name}: it has no functions: give an object of functions, or an instance of a class`,
			);
		}
		const info = infoOf(name, instance, methods, options);
		const open = openOf(methods, options);
		const serving: Serving = new Serving(
			name,
			instance,
			methods,
			open,
			info,
			new HandlerLimits(this.runtime, options),
			() => this.stopServing(serving),
		);
		if ([...this.servings].some((one) => one.name === name && one.instance === instance)) {
			throw new InvalidArgument(
				`serve: instance: '${instance}' of '${name}' is served by this node already: choose another id`,
			);
		}
		this.servings.add(serving);
		try {
			await this.during(() => this.announce(serving));
			serving.isKnown = true;
		} catch (error) {
			this.stopServing(serving);
			throw error;
		}
		return serving;
	}

	private stopServing(serving: Serving): void {
		this.servings.delete(serving);
		for (const id of serving.ids.splice(0)) {
			this.runtime.link.session?.unsubscribe(id);
		}
		this.runtime.plan();
	}

	private async announce(serving: Serving): Promise<void> {
		const { session } = this.runtime;
		const { name, instance, info } = serving;
		serving.ids.length = 0;
		const one = (pattern: string, queue: string, fields: readonly ServiceField[]): Promise<void> =>
			answered((then) => serving.ids.push(session.subscribe(pattern, queue, false, fields, then)));
		const both = [
			one(serviceSubject(name, "*", instance), "", [["service", encode(info)]]),
			one(serviceSubject(name, "*"), name, []),
		];
		this.runtime.plan();
		await Promise.all(both);
	}

	// Subscriptions

	async subscribe(pattern: string, listener: Listener | undefined, options: SubscribeOptions): Promise<Subscribed> {
		const ends = (one: Subscribed): void => {
			if (one.id !== undefined) {
				this.runtime.link.session?.unsubscribe(one.id);
				this.runtime.plan();
			}
			this.subscriptions.remove(one);
		};
		const subscribed = new Subscribed(pattern, options.queue ?? "", listener, ends, this.report);
		this.subscriptions.add(subscribed);
		try {
			await this.during(() => this.enter(subscribed));
			subscribed.isKnown = true;
		} catch (error) {
			subscribed.stop();
			throw error;
		}
		return subscribed;
	}

	/** Delivers what this node publishes to its own subscribers. */
	publishedHere(subject: string, value: unknown, headers?: Envelope["headers"]): void {
		const envelope = this.envelope(subject, value, headers);
		for (const one of this.subscriptions.chosen(subject)) {
			one.deliver({ envelope: () => envelope });
		}
	}

	/** Has a subscriber of this node answer a request; undefined if none can. */
	requestedHere(subject: string, value: unknown, headers?: Envelope["headers"]): Promise<unknown> | undefined {
		const own = this.subscriptions.of(subject).find((one) => one.listener !== undefined);
		return own?.listener && this.answer(own.listener, subject, value, headers);
	}

	private async answer(
		listener: Listener,
		subject: string,
		value: unknown,
		headers?: Envelope["headers"],
	): Promise<unknown> {
		const copy = readValue(writeValue(value));
		return readValue(writeValue(await listener(copy, this.envelope(subject, copy, headers))));
	}

	private envelope(subject: string, value: unknown, headers?: Envelope["headers"]): Envelope {
		return { subject, value, headers: { ...headers }, node: this.name, user: "" };
	}

	private enter(one: Subscribed): Promise<void> {
		return answered((then) => {
			const { session } = this.runtime;
			const listens = one.listener === undefined;
			this.subscriptions.at(one, session.subscribe(one.pattern, one.queue, listens, [], then));
			this.runtime.plan();
		});
	}

	/** Does something that needs the hub, as often as the link is lost meanwhile. */
	private async during(run: () => Promise<void>): Promise<void> {
		for (;;) {
			await this.presence.joined();
			try {
				await run();
				return;
			} catch (error) {
				if (!(error instanceof LinkLost)) {
					throw error;
				}
			}
		}
	}

	// The link

	/** There is a link again: the hub learns again everything that it knew before. */
	joined(): void {
		const report = (error: unknown): void => {
			if (!(error instanceof LinkLost)) {
				this.report(error);
			}
		};
		for (const serving of this.servings) {
			if (serving.isKnown) {
				this.announce(serving).catch(report);
			}
		}
		for (const one of this.subscriptions) {
			if (one.isKnown) {
				this.enter(one).catch(report);
			}
		}
	}

	lost(): void {
		this.references.lost();
		for (const one of this.subscriptions) {
			this.subscriptions.at(one, undefined);
		}
	}

	/** There will be no link any more. */
	closed(): void {
		this.references.lost();
		for (const one of [...this.subscriptions]) {
			one.stop();
		}
	}
}

/** Waits for the hub's answer to a request. */
function answered(request: (then: (error?: TidewireError) => void) => void): Promise<void> {
	return new Promise((resolve, reject) => request((error) => (error === undefined ? resolve() : reject(error))));
}
