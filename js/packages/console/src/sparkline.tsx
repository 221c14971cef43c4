/** Sparklines over the last five minutes, drawn by uPlot. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import UPlot from "uplot";
import { HISTORY_S } from "./hub.js";

const HEIGHT_PX = 44;

/**
 * One line without axes, in the colour of the text around it. `times` are seconds since 1970, in
 * order. Screen readers read `label`, and the newest value as `shown`.
 */
export function Sparkline(props: {
	label: string;
	shown: string;
	times: readonly number[];
	values: readonly number[];
	isBad: boolean;
}): JSX.Element {
	const place = useRef<HTMLDivElement>(null);
	const plot = useRef<UPlot>(undefined);
	useEffect(() => {
		const root = place.current as HTMLDivElement;
		const stroke = (): string => getComputedStyle(root).color;
		const hidden = { show: false };
		const options: UPlot.Options = {
			width: root.clientWidth || 200,
			height: HEIGHT_PX,
			cursor: hidden,
			legend: hidden,
			padding: [3, 0, 3, 0],
			axes: [hidden, hidden],
			scales: {
				x: { range: (_, __, max) => [max - HISTORY_S, max] },
				y: { range: (_, __, max) => [0, Math.max(max, 1e-9) * 1.05] },
			},
			series: [
				{},
				{ stroke, width: 1.5, fill: () => `color-mix(in srgb, ${stroke()} 14%, transparent)`, points: hidden },
			],
		};
		const chart = new UPlot(options, [[], []], root);
		plot.current = chart;
		const resized = new ResizeObserver(() => chart.setSize({ width: root.clientWidth, height: HEIGHT_PX }));
		resized.observe(root);
		return () => {
			resized.disconnect();
			chart.destroy();
		};
	}, []);
	useEffect(() => plot.current?.setData([[...props.times], [...props.values]]), [props.times, props.values]);
	return (
		<div
			class={`sparkline${props.isBad ? " bad" : ""}`}
			ref={place}
			role="img"
			aria-label={`${props.label} over 5 minutes, now ${props.shown}`}
		/>
	);
}
