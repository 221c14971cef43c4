/** Tables of rows: sorted, filtered by text, with the visible rows alone in the page. */
import type { ComponentChildren, JSX } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import { count } from "./format.js";

/** One column of a table. */
export interface Column<T> {
	readonly title: string;
	/** Value to sort and filter by. */
	readonly value: (row: T) => string | number | undefined;
	/** Text to filter by, if it is not the value. */
	readonly text?: (row: T) => string;
	/** Content of the cell; the value by default. */
	readonly cell?: (row: T) => ComponentChildren;
	/** Numbers stand at the right, and sort from high to low first. */
	readonly isNumber?: boolean;
	/** Narrow windows leave the column out. */
	readonly isWide?: boolean;
	/**
	 * The name of the field where rows are sorted by their nodes or by the hub; with `-` before it
	 * if large values of the column are small ones there.
	 */
	readonly field?: string;
}

/** A question for the first rows of a search, sorted by a field where the rows are. */
export interface RowsQuery {
	readonly search: string;
	readonly field: string;
	readonly isDown: boolean;
	readonly limit: number;
}

/** Rows of one query at first, and at most. */
const LIMIT = 200;
const LIMIT_MAX = 1_000;

/** A query that a table changes, with the field to sort by at first. */
export function useRowsQuery(field: string, isDown = true): [RowsQuery, (change: Partial<RowsQuery>) => void] {
	const [query, setQuery] = useState<RowsQuery>({ search: "", field, isDown, limit: LIMIT });
	return [query, (change) => setQuery((before) => ({ ...before, limit: LIMIT, ...change }))];
}

/** A column of numbers, shown by a function of `format.ts`. */
export function number<T>(
	title: string,
	value: (row: T) => number | undefined,
	show: (value: number | undefined, row: T) => ComponentChildren,
): Column<T> {
	return { title, value, cell: (row) => show(value(row), row), isNumber: true };
}

/** A field to search with. `onChange` gets its text after Enter, `onInput` at once. */
export function Search(props: {
	label: string;
	placeholder?: string;
	onInput?: (text: string) => void;
	onChange?: (text: string) => void;
}): JSX.Element {
	return (
		<input
			type="search"
			aria-label={props.label}
			placeholder={props.placeholder ?? props.label}
			onInput={(event) => props.onInput?.(event.currentTarget.value)}
			onChange={(event) => props.onChange?.(event.currentTarget.value.trim())}
		/>
	);
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
	readonly total?: number | undefined;
	/** Rows that fit the query, if those that have the rows search and sort them. */
	readonly found?: number | undefined;
	readonly query?: RowsQuery;
	readonly onQuery?: (change: Partial<RowsQuery>) => void;
	/** Further controls beside the filter. */
	readonly tools?: ComponentChildren;
}

const ROW_PX = 36;
const SPARE = 8;
const FILTER_FROM = 8;
const COLLATOR = new Intl.Collator();

/** A table with any number of rows. */
export function Table<T>(props: TableProps<T>): JSX.Element {
	const { columns, rows, rowKey, label, onOpen, marked, onMark } = props;
	const [sort, setSort] = useState({
		column: props.sortBy ?? 0,
		isDown: columns[props.sortBy ?? 0]?.isNumber ?? false,
	});
	const [filter, setFilter] = useState("");
	const [first, setFirst] = useState(0);
	const frame = useRef<HTMLDivElement>(null);
	const { query, onQuery } = props;
	const isCut = query !== undefined && (props.found ?? 0) > rows.length;
	const shown = useMemo(
		() => sorted(query ? rows : filtered(rows, columns, filter), columns, sort),
		[rows, columns, filter, sort, query],
	);
	const height = frame.current?.clientHeight || 720;
	const from = Math.max(0, first - SPARE);
	const to = Math.min(shown.length, first + Math.ceil(height / ROW_PX) + 2 * SPARE);
	const spacer = (rows: number): JSX.Element | false =>
		rows > 0 && (
			<tr class="spacer">
				<td style={{ height: `${rows * ROW_PX}px` }} colSpan={columns.length + 1} />
			</tr>
		);
	const box = (label: string, keys: readonly string[]): JSX.Element => (
		<input
			type="checkbox"
			aria-label={label}
			checked={keys.every((key) => marked?.has(key))}
			onClick={(event) => event.stopPropagation()}
			onChange={({ currentTarget: { checked } }) => {
				const others = [...(marked ?? [])].filter((key) => !keys.includes(key));
				onMark?.(new Set(checked ? [...others, ...keys] : others));
			}}
		/>
	);
	const head = (column: Column<T>, at: number): JSX.Element => {
		const order = sort.column === at ? (sort.isDown ? "descending" : "ascending") : "none";
		const click = (): void => {
			const isDown = sort.column === at ? !sort.isDown : (column.isNumber ?? false);
			setSort({ column: at, isDown });
			const [, isReverse, field] = /^(-?)(.*)$/.exec(column.field ?? "") ?? [];
			field && onQuery?.({ field, isDown: isDown !== (isReverse === "-") });
		};
		return (
			<th key={column.title} scope="col" aria-sort={order} class={classOf(column)}>
				{isCut && !column.field ? (
					<span class="dim">{column.title}</span>
				) : (
					<button type="button" class="sort" onClick={click}>
						{column.title}
						<span aria-hidden="true">{order === "none" ? "" : sort.isDown ? " ↓" : " ↑"}</span>
					</button>
				)}
			</th>
		);
	};
	const line = (row: T): JSX.Element => {
		const key = rowKey(row);
		const content = (column: Column<T>): ComponentChildren => column.cell?.(row) ?? column.value(row) ?? "–";
		return (
			<tr key={key} class={props.opened === key ? "opened" : ""} onClick={() => onOpen?.(row)}>
				{marked && <td class="mark">{box(`Mark ${key}`, [key])}</td>}
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
	const search = (text: string): void => {
		setFilter(text);
		onQuery?.({ search: text });
	};
	return (
		<div class="table">
			{(rows.length >= FILTER_FROM || filter !== "" || props.tools) && (
				<div class="tools">
					<Search label={`Filter ${label.toLowerCase()}`} onInput={search} />
					{props.tools}
					<span class="dim" role="status">
						{shown.length < total ? `${count(shown.length)} of ${count(total)}` : count(total)}
						{isCut && query.limit >= LIMIT_MAX && "; search or sort for others"}
					</span>
					{isCut && query.limit < LIMIT_MAX && (
						<button type="button" onClick={() => onQuery?.({ limit: LIMIT_MAX })}>
							Show {count(Math.min(LIMIT_MAX, props.found ?? 0))}
						</button>
					)}
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
					onScroll={(event) => setFirst(Math.floor(event.currentTarget.scrollTop / ROW_PX / SPARE) * SPARE)}
				>
					<table aria-rowcount={shown.length + 1}>
						<thead>
							<tr>
								{marked && <th class="mark">{box("Mark all that are listed", shown.map(rowKey))}</th>}
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
	const textOf = (row: T): string => columns.map(({ text, value }) => text?.(row) ?? value(row) ?? "").join(" ");
	const has = (text: string): boolean => words.every((word) => text.includes(word));
	return words.length === 0 ? rows : rows.filter((row) => has(textOf(row).toLowerCase()));
}

type Sort = { readonly column: number; readonly isDown: boolean };

function sorted<T>(rows: readonly T[], columns: readonly Column<T>[], sort: Sort): readonly T[] {
	const value = columns[sort.column]?.value;
	const keyed = rows.map((row) => ({ row, key: value?.(row) ?? "" }));
	const compare = (a: string | number, b: string | number): number =>
		typeof a === "number" && typeof b === "number" ? a - b : COLLATOR.compare(String(a), String(b));
	return keyed.sort((a, b) => (sort.isDown ? -1 : 1) * compare(a.key, b.key)).map(({ row }) => row);
}
