/** Overview: what needs attention first, and the figures of the last five minutes. */
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { calm, concernsOf } from "../attention.js";
import { count, micros, rate } from "../format.js";
import { hrefOf, useHub } from "../hooks.js";
import type { Totals } from "../snapshots.js";
import { Sparkline } from "../sparkline.js";

const LEVELS = { 1: "note", 2: "late", 3: "urgent" } as const;
const CONCERNS_MAX = 30;

type Figure = { label: string; of: (totals: Totals) => number; show: (value: number) => string; isFault?: boolean };
const FIGURES: readonly Figure[] = [
	{ label: "Messages per second", of: (one) => one.messages, show: rate },
	{ label: "Calls per second", of: (one) => one.calls, show: rate },
	{ label: "Errors per second", of: (one) => one.errors, show: rate, isFault: true },
	{ label: "Waiting", of: (one) => one.waiting, show: count },
	{ label: "Median of calls, slowest service", of: (one) => one.p50, show: micros },
	{ label: "p99 of calls, slowest service", of: (one) => one.p99, show: micros },
	{ label: "Dead letters", of: (one) => one.dead, show: count, isFault: true },
	{ label: "Lag of consumers", of: (one) => one.lag, show: count },
];

export function Overview(): JSX.Element {
	const hub = useHub();
	const concerns = concernsOf(hub);
	return (
		<>
			<h1>Overview</h1>
			<section aria-labelledby="attention">
				<h2 id="attention">Needs attention</h2>
				{concerns.length === 0 ? (
					<p class="calm">{hub.history.length === 0 ? "Looking at the nodes …" : `Nothing. ${calm(hub)}`}</p>
				) : (
					<ul class="concerns">
						{concerns.slice(0, CONCERNS_MAX).map(({ level, subject, text, view, selected }) => (
							<li key={`${view} ${subject} ${text}`} class={LEVELS[level]}>
								<span class="level">{LEVELS[level]}</span>
								<a href={hrefOf(view, selected)}>{subject}</a>
								<span>{text}</span>
							</li>
						))}
						{concerns.length > CONCERNS_MAX && <li class="dim">and {concerns.length - CONCERNS_MAX} more</li>}
					</ul>
				)}
			</section>
			<section class="tiles" aria-label="Last five minutes">
				{FIGURES.map((figure) => (
					<Tile key={figure.label} figure={figure} history={hub.history} />
				))}
			</section>
		</>
	);
}

function Tile(props: { figure: Figure; history: readonly Totals[] }): JSX.Element {
	const { figure, history } = props;
	const times = useMemo(() => history.map((one) => one.at / 1_000), [history]);
	const values = useMemo(() => history.map(figure.of), [history, figure]);
	const last = values.at(-1);
	const shown = last === undefined ? "–" : figure.show(last);
	const isBad = figure.isFault === true && (last ?? 0) > 0;
	return (
		<article class="tile">
			<h3>{figure.label}</h3>
			<p class={`value${isBad ? " bad" : ""}`}>{shown}</p>
			<Sparkline label={figure.label} shown={shown} times={times} values={values} isBad={isBad} />
		</article>
	);
}
