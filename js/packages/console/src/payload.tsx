/** Payloads, decoded, for those who may see them. */
import type { JSX } from "preact";
import { pretty, reasonOf } from "./format.js";
import { useHub } from "./hooks.js";
import { STREAMS } from "./hub.js";
import { Failure, lacks } from "./parts.js";

const SHOWN_MAX = 20_000;

/** A decoded payload, for those who may read it. */
export function Payload(props: { label: string; of: () => unknown }): JSX.Element {
	const hub = useHub();
	if (!hub.may(STREAMS, "read")) {
		return <p class="dim">{lacks(hub, "may see no payload", "inspect_payloads = true")}</p>;
	}
	try {
		const shown = textOf(props.of());
		const rest = shown.length - SHOWN_MAX;
		return (
			// biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls it.
			<section class="payload" tabIndex={0} aria-label={props.label}>
				<pre>{rest > 0 ? `${shown.slice(0, SHOWN_MAX)}\n… and ${rest} more characters` : shown}</pre>
			</section>
		);
	} catch (error) {
		return <Failure of={`The payload does not decode: ${reasonOf(error)}`} />;
	}
}

/** Bytes as UTF-8, if they are; other values as JSON. */
function textOf(value: unknown): string {
	if (!(value instanceof Uint8Array)) {
		return pretty(value);
	}
	try {
		return new TextDecoder("utf-8", { fatal: true }).decode(value);
	} catch {
		return pretty(value);
	}
}
