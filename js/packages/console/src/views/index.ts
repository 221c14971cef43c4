/** The views, in the order of the navigation. A view is one component in a file of its own. */
import type { ComponentType } from "preact";
import { Actors } from "./actors.js";
import { Buckets } from "./buckets.js";
import { Campaigns } from "./campaigns.js";
import { Commands } from "./commands.js";
import { DeadLetters } from "./dead_letters.js";
import { Leases } from "./leases.js";
import { Nodes } from "./nodes.js";
import { Overview } from "./overview.js";
import { Pools } from "./pools.js";
import { Services } from "./services.js";
import { Streams } from "./streams.js";
import { Trace } from "./trace.js";

export interface View {
	/** Its part of the address, `#/id`. */
	readonly id: string;
	readonly title: string;
	/** Heading of its part of the navigation. */
	readonly group: "Live" | "Durable" | "";
	/** Service that the hub needs for it; without the service the navigation dims it. */
	readonly needs?: string;
	readonly component: ComponentType;
}

export const VIEWS: readonly View[] = [
	{ id: "overview", title: "Overview", group: "", component: Overview },
	{ id: "nodes", title: "Nodes", group: "Live", component: Nodes },
	{ id: "services", title: "Services", group: "Live", component: Services },
	{ id: "actors", title: "Agents and actors", group: "Live", component: Actors },
	{ id: "pools", title: "Pools", group: "Live", component: Pools },
	{ id: "campaigns", title: "Campaigns", group: "Live", component: Campaigns },
	{ id: "trace", title: "Trace", group: "Live", component: Trace },
	{ id: "streams", title: "Streams", group: "Durable", needs: "tidewire-streams", component: Streams },
	{ id: "dead-letters", title: "Dead letters", group: "Durable", needs: "tidewire-streams", component: DeadLetters },
	{ id: "buckets", title: "Key-value", group: "Durable", needs: "tidewire-streams", component: Buckets },
	{ id: "leases", title: "Leases", group: "Durable", needs: "tidewire-streams", component: Leases },
	{ id: "commands", title: "Commands", group: "Durable", needs: "tidewire-commands", component: Commands },
];

/** The view of an address; the overview if there is no such view. */
export function viewOf(id: string): View {
	return (VIEWS.find((view) => view.id === id) ?? VIEWS[0]) as View;
}

/** The view so many steps further in the navigation. */
export function viewAfter(id: string, steps: number): View {
	const at = VIEWS.indexOf(viewOf(id));
	return VIEWS[(at + steps + VIEWS.length) % VIEWS.length] as View;
}
