/** Tables of rows: sorted, filtered by text, with the visible rows alone in the page. */
import type { ComponentChildren, JSX } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import { count } from "./format.js";

/** One column of a table. */
export interface Column<T> {
	readonly title: string;
	/** Value to sort and filter by. */
	readonly value: (row: T) => string | number | undefined;
	/** Content of the cell; the value by default. */
	readonly cell?: (row: T) => ComponentChildren;
	/** Numbers stand at the right, and sort from high to low first. */
	readonly isNumber?: boolean;
	/** Narrow windows leave the column out. */
	readonly isWide?: boolean;
}

export interface TableProps<T> {
	/** Name of the table for screen readers, and of its rows in the filter. */
	readonly label: string;
	readonly columns: readonly Column<T>[];
	readonly rows: readonly T[];
	readonly rowKey: (row: T) => string;
	/** Opens the details of a row. */
	readonly onOpen?: (row: T) => void;
	/** The key of the row whose details are open. */
	readonly opened?: string | undefined;
	/** Keys of the marked rows, and the listener of changes: the table then has boxes to mark. */
	readonly marked?: ReadonlySet<string>;
	readonly onMark?: (marked: ReadonlySet<string>) => void;
	/** Text of a table without rows. */
	readonly empty: string;
	/** Index of the column to sort by at first. */
	readonly sortBy?: number;
	/** Rows that exist in all, if more than are listed. */
	readonly total?: number;
	/** Further controls beside the filter. */
	readonly children?: ComponentChildren;
}

const ROW_PX = 36;
const SPARE = 12;
const FILTER_FROM = 8;

/** A table with any number of rows. */
export function Table<T>(props: TableProps<T>): JSX.Element {
	const { columns, rows, rowKey, label, onOpen, marked, onMark } = props;
	const [sort, setSort] = useState({
		column: props.sortBy ?? 0,
		isDown: columns[props.sortBy ?? 0]?.isNumber ?? false,
	});
	const [filter, setFilter] = useState("");
	const [top, setTop] = useState(0);
	const frame = useRef<HTMLDivElement>(null);
	const shown = useMemo(() => sorted(filtered(rows, columns, filter), columns, sort), [rows, columns, filter, sort]);
	const height = frame.current?.clientHeight || 720;
	const from = Math.max(0, Math.floor(top / ROW_PX) - SPARE);
	const to = Math.min(shown.length, from + Math.ceil(height / ROW_PX) + 2 * SPARE);
	const spacer = (rows: number): JSX.Element | null =>
		rows > 0 ? (
			<tr class="spacer">
				<td style={{ height: `${rows * ROW_PX}px` }} colSpan={columns.length + 1} />
			</tr>
		) : null;
	const mark = (keys: readonly string[], isMarked: boolean): void => {
		const next = new Set(marked);
		for (const key of keys) {
			next[isMarked ? "add" : "delete"](key);
		}
		onMark?.(next);
	};
	const head = (column: Column<T>, at: number): JSX.Element => {
		const order = sort.column === at ? (sort.isDown ? "descending" : "ascending") : "none";
		const click = (): void =>
			setSort({ column: at, isDown: sort.column === at ? !sort.isDown : (column.isNumber ?? false) });
		return (
			<th key={column.title} scope="col" aria-sort={order} class={classOf(column)}>
				<button type="button" class="sort" onClick={click}>
					{column.title}
					<span aria-hidden="true">{order === "none" ? "" : sort.isDown ? " ↓" : " ↑"}</span>
				</button>
			</th>
		);
	};
	const line = (row: T): JSX.Element => {
		const key = rowKey(row);
		const content = (column: Column<T>): ComponentChildren => column.cell?.(row) ?? column.value(row) ?? "–";
		return (
			<tr key={key} class={props.opened === key ? "opened" : ""} onClick={() => onOpen?.(row)}>
				{marked && (
					<td class="mark">
						<input
							type="checkbox"
							aria-label={`Mark ${key}`}
							checked={marked.has(key)}
							onClick={(event) => event.stopPropagation()}
							onChange={(event) => mark([key], event.currentTarget.checked)}
						/>
					</td>
				)}
				{columns.map((column, at) => (
					<td key={column.title} class={classOf(column)}>
						{at === 0 && onOpen ? (
							<button type="button" class="link" onClick={() => onOpen(row)}>
								{content(column)}
							</button>
						) : (
							content(column)
						)}
					</td>
				))}
			</tr>
		);
	};
	const total = Math.max(props.total ?? 0, rows.length);
	return (
		<div class="table">
			{(rows.length >= FILTER_FROM || filter !== "" || props.children) && (
				<div class="tools">
					<input
						type="search"
						placeholder={`Filter ${label.toLowerCase()}`}
						aria-label={`Filter ${label.toLowerCase()}`}
						value={filter}
						onInput={(event) => setFilter(event.currentTarget.value)}
					/>
					{props.children}
					<span class="dim" role="status">
						{shown.length < total ? `${count(shown.length)} of ${count(total)}` : count(total)}
					</span>
				</div>
			)}
			{shown.length === 0 ? (
				<p class="empty">{filter === "" ? props.empty : `Nothing has “${filter}”.`}</p>
			) : (
				<section
					class="frame"
					ref={frame}
					// biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls it.
					tabIndex={0}
					aria-label={label}
					onScroll={(event) => setTop(event.currentTarget.scrollTop)}
				>
					<table aria-rowcount={shown.length + 1}>
						<thead>
							<tr>
								{marked && (
									<th scope="col" class="mark">
										<input
											type="checkbox"
											aria-label="Mark all that are listed"
											checked={shown.every((row) => marked.has(rowKey(row)))}
											onChange={(event) => mark(shown.map(rowKey), event.currentTarget.checked)}
										/>
									</th>
								)}
								{columns.map(head)}
							</tr>
						</thead>
						<tbody>
							{spacer(from)}
							{shown.slice(from, to).map(line)}
							{spacer(shown.length - to)}
						</tbody>
					</table>
				</section>
			)}
		</div>
	);
}

function classOf<T>(column: Column<T>): string {
	return `${column.isNumber ? "number" : ""}${column.isWide ? " wide" : ""}`.trim();
}

function filtered<T>(rows: readonly T[], columns: readonly Column<T>[], filter: string): readonly T[] {
	const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
	const textOf = (row: T): string =>
		columns
			.map((column) => column.value(row) ?? "")
			.join(" ")
			.toLowerCase();
	return words.length === 0
		? rows
		: rows.filter((row) => {
				const text = textOf(row);
				return words.every((word) => text.includes(word));
			});
}

function sorted<T>(
	rows: readonly T[],
	columns: readonly Column<T>[],
	sort: { column: number; isDown: boolean },
): readonly T[] {
	const value = columns[sort.column]?.value;
	if (value === undefined) {
		return rows;
	}
	const compare = (one: T, other: T): number => {
		const [a, b] = [value(one), value(other)];
		const order =
			typeof a === "number" && typeof b === "number" ? a - b : String(a ?? "").localeCompare(String(b ?? ""));
		return sort.isDown ? -order : order;
	};
	return [...rows].sort(compare);
}
