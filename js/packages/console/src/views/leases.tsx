/** Leases: who holds each, with which fence, and for how long still. */
import type { JSX } from "preact";
import { ask, change, orNone } from "../durable.js";
import { age } from "../format.js";
import { useHub, useQuery } from "../hooks.js";
import { Action, Detail, facts, TableView } from "../parts.js";
import { type Column, number } from "../table.js";

/** A lease, as the storage backend lists those that are held. */
type Lease = readonly [name: string, holder: string, fence: number, remainingUs: number];

const remaining = (micros = 0): string => age(micros / 1e6);

const COLUMNS: readonly Column<Lease>[] = [
	{ title: "Lease", value: ([name]) => name },
	number("Fence", ([, , fence]) => fence, String),
	number("Remaining", (lease) => lease[3], remaining),
	{ title: "Holder", value: ([, holder]) => holder },
];

export function Leases(): JSX.Element {
	const { data, error, reload } = useQuery("leases", (hub) => orNone(ask<readonly Lease[]>(hub, "list_leases")));
	return (
		<TableView
			label="Leases"
			columns={COLUMNS}
			rows={data}
			rowKey={([name]) => name}
			error={error}
			empty="Nobody holds a lease: node.lease(...) takes one, at a hub with a data folder."
			detail={(lease) => <LeaseDetail of={lease} reload={reload} />}
		/>
	);
}

function LeaseDetail(props: { of: Lease; reload: () => void }): JSX.Element {
	const hub = useHub();
	const [name, holder, fence, remainingUs] = props.of;
	const release = async (): Promise<string> => {
		const wasHeld = await change<boolean>(hub, "release", name, fence);
		props.reload();
		return wasHeld ? `${name}: fence ${fence} is released` : `${name}: fence ${fence} does not hold it any more`;
	};
	return (
		<Detail title={name}>
			{facts({ Holder: holder, Fence: String(fence), Remaining: remaining(remainingUs) })}
			<p>A holder renews its lease: the remaining time grows again.</p>
			<div class="buttons">
				<Action
					label={`Release ${name}`}
					ask={`Another may take it at once. ${holder} loses fence ${fence}, and learns it at its next renewal: what the lease protects may run twice until then.`}
					type={name}
					isDanger
					run={release}
				/>
			</div>
		</Detail>
	);
}
