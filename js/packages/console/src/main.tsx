/** The page: navigation, state of the link, and the view of the address. */
import { Fragment, type JSX, render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { HubContext, hrefOf, useHub, useRoute } from "./hooks.js";
import { Hub } from "./hub.js";
import { Notices } from "./parts.js";
import { grouped, viewAfter, viewOf } from "./views/index.js";

const THEME = "tidewire-theme";
const THEMES = ["system", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];

function Page(): JSX.Element {
	const hub = useHub();
	const place = useRoute();
	const view = viewOf(place.view);
	useEffect(() => {
		document.title = `${view.title} · ${hub.name || "Tidewire console"}`;
	}, [view, hub.name]);
	useKeys();
	const isIn = hub.node !== undefined;
	return (
		<>
			<button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
				Skip to the view
			</button>
			<header class="top">
				<span class="brand">
					<img src="icon.svg" alt="" width="24" height="24" /> Tidewire
				</span>
				<span class="hub">{hub.name}</span>
				<LinkState />
				<ThemeSwitch />
			</header>
			<LostBanner />
			{hub.link.state === "token" ? (
				<TokenForm error={hub.link.error} />
			) : (
				<div class="body">
					<Navigation active={view.id} />
					<main id="main" tabIndex={-1}>
						{isIn ? <view.component key={view.id} /> : <p class="calm">Joining the hub …</p>}
					</main>
				</div>
			)}
			<Notices />
		</>
	);
}

function Navigation(props: { active: string }): JSX.Element {
	const hub = useHub();
	const has = (service: string | undefined): boolean =>
		service === undefined || hub.services.some((one) => one.name === service);
	return (
		<nav aria-label="Views">
			{grouped().map(([group, views]) => (
				<Fragment key={group}>
					{group !== "" && <h2>{group}</h2>}
					<ul>
						{views.map((view) => (
							<li key={view.id}>
								<a
									href={hrefOf(view.id)}
									aria-current={view.id === props.active ? "page" : undefined}
									class={has(view.needs) ? "" : "absent"}
								>
									{view.title}
								</a>
							</li>
						))}
					</ul>
				</Fragment>
			))}
			<p class="keys dim">
				<kbd>[</kbd> <kbd>]</kbd> views · <kbd>/</kbd> filter · <kbd>Esc</kbd> close
			</p>
		</nav>
	);
}

function LinkState(): JSX.Element {
	const { link, mayAct } = useHub();
	const said = {
		ready: mayAct ? "connected" : "connected, looking only",
		joining: "joining",
		token: "signed out",
		lost: "lost",
	};
	const level = link.state === "ready" ? "good" : link.state === "lost" ? "bad" : "warn";
	return (
		<span class={`state ${level}`} role="status" data-state={link.state}>
			{said[link.state]}
		</span>
	);
}

/** The loss of the hub stands out: figures below are those of the past. */
function LostBanner(): JSX.Element | null {
	const { link } = useHub();
	return link.state === "lost" ? (
		<div class="lost" role="alert">
			<strong>The hub is lost.</strong> {link.reason}. The figures below are old; the page snapshots for the hub.
		</div>
	) : null;
}

function TokenForm(props: { error: string }): JSX.Element {
	const hub = useHub();
	const input = useRef<HTMLInputElement>(null);
	useEffect(() => input.current?.focus(), []);
	const submit = (event: Event): void => {
		event.preventDefault();
		void hub.join(input.current?.value ?? "");
	};
	return (
		<main id="main" class="token">
			<form onSubmit={submit}>
				<h1>This hub asks for a token</h1>
				<label>
					Token
					<input ref={input} type="password" autocomplete="off" required minLength={8} aria-describedby="token-note" />
				</label>
				{props.error !== "" && (
					<p class="failure" role="alert">
						{props.error}
					</p>
				)}
				<p id="token-note" class="dim">
					This tab keeps it until it closes. Its rights are those of the token at the hub.
				</p>
				<button type="submit" class="primary">
					Join
				</button>
			</form>
		</main>
	);
}

function ThemeSwitch(): JSX.Element {
	const [theme, setTheme] = useState<Theme>((localStorage.getItem(THEME) as Theme | null) ?? "system");
	useEffect(() => {
		document.documentElement.dataset.theme = theme;
		localStorage.setItem(THEME, theme);
	}, [theme]);
	const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] as Theme;
	return (
		<button
			type="button"
			class="plain"
			onClick={() => setTheme(next)}
			aria-label={`Colours: ${theme}; change to ${next}`}
		>
			{{ system: "◐", light: "☀", dark: "☾" }[theme]}
		</button>
	);
}

function useKeys(): void {
	const { view } = useRoute();
	useEffect(() => {
		const pressed = (event: KeyboardEvent): void => {
			const isText = (event.target as Element).closest("input, textarea, select, dialog");
			if (isText || event.ctrlKey || event.metaKey || event.altKey) {
				return;
			}
			if (event.key === "[" || event.key === "]") {
				location.hash = hrefOf(viewAfter(view, event.key === "]" ? 1 : -1).id);
			} else if (event.key === "/") {
				event.preventDefault();
				document.querySelector<HTMLInputElement>("input[type=search]")?.focus();
			}
		};
		addEventListener("keydown", pressed);
		return () => removeEventListener("keydown", pressed);
	}, [view]);
}

const hub = new Hub();
document.documentElement.dataset.theme = localStorage.getItem(THEME) ?? "system";
render(
	<HubContext.Provider value={hub}>
		<Page />
	</HubContext.Provider>,
	document.getElementById("app") as HTMLElement,
);
void hub.start();
