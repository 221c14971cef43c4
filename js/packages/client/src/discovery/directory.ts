/**
 * The hub's list of services, as it is asked for: for all instances of a service, or for the one on
 * a node.
 */
import { type CallSite, callValue, type Plan } from "../calls/calls.js";
import type { Answer } from "../calls/client.js";
import { planOf, requestPlan } from "../calls/clients.js";
import { InvalidArgument, NoResponders } from "../generated/errors.js";
import type { CallOptions } from "../options.js";
import { type Instance, readInstances, type ServiceInfo, services } from "./discovery.js";

const LIST_MS = 5000;

export class Directory {
	/** How many entries were skipped, as they were not of the form that they have to have. */
	skipped = 0;

	constructor(private readonly site: CallSite) {}

	/** The services of all nodes, by name. */
	async services(): Promise<ServiceInfo[]> {
		return services(await this.instances());
	}

	/** The instance of a service that is on a node. */
	async at(service: string, node: string): Promise<string> {
		const found = (await this.instances()).find((one) => one.node === node && one.info.name === service);
		if (found === undefined) {
			throw new InvalidArgument(
				`${service}: node '${node}' does not serve it: what it owns can only be given back to it`,
			);
		}
		return found.info.instances[0] as string;
	}

	/** Calls all instances of a service. */
	async callAll(common: Plan, method: string, value: unknown, options: CallOptions): Promise<Answer[]> {
		const { service = "", fields, timeoutMs, signal } = common;
		const found = (await this.instances()).filter((one) => one.info.name === service);
		if (found.length === 0) {
			throw new NoResponders(`${service}: nobody serves it now`);
		}
		const one = async (instance: string): Promise<Answer> => {
			const { policy: _, ...rest } = options;
			try {
				const plan = { ...planOf(service, method, { ...rest, instance }), fields, timeoutMs, signal };
				return { instance, value: await callValue(this.site, plan, value), error: undefined };
			} catch (error) {
				return { instance, value: undefined, error };
			}
		};
		return Promise.all(found.map(({ info }) => one(info.instances[0] as string)));
	}

	private async instances(): Promise<Instance[]> {
		const plan = requestPlan("$hub.services", { timeout: LIST_MS });
		return readInstances(await callValue(this.site, plan, null), () => this.skipped++);
	}
}
