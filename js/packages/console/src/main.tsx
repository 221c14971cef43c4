/** The page: navigation, state of the link, and the view of the address. */
import { Fragment, type JSX, render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { HubContext, hrefOf, select, useHub, useRoute } from "./hooks.js";
import { Hub, STREAMS } from "./hub.js";
import { Failure, Notices, submits } from "./parts.js";
import { VIEWS, viewAfter, viewOf } from "./views/index.js";

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
	const { state } = hub.link;
	const link = {
		ready: { text: hub.may(STREAMS, "act") ? "connected" : "connected, looking only", level: "good" },
		joining: { text: "joining", level: "warn" },
		token: { text: "signed out", level: "warn" },
		lost: { text: "lost", level: "bad" },
	}[state];
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
				<span class={`state ${link.level}`} role="status" data-state={state}>
					{link.text}
				</span>
				<ThemeSwitch />
			</header>
			{hub.link.state === "lost" && (
				<div class="lost" role="alert">
					<strong>The hub is lost.</strong> {hub.link.reason}. The figures below are old; the page looks for the hub.
				</div>
			)}
			{hub.link.state === "token" ? (
				<TokenForm error={hub.link.error} />
			) : (
				<div class="body">
					<Navigation active={view.id} />
					<main id="main" tabIndex={-1}>
						{hub.node ? <view.component key={view.id} /> : <p class="calm">Joining the hub …</p>}
					</main>
				</div>
			)}
			<Notices />
		</>
	);
}

function Navigation(props: { active: string }): JSX.Element {
	const hub = useHub();
	const list = useRef<HTMLElement>(null);
	useEffect(() => list.current?.querySelector("[aria-current]")?.scrollIntoView({ inline: "nearest" }), [props.active]);
	const has = (service = ""): boolean => service === "" || hub.services.some((one) => one.name === service);
	return (
		<nav aria-label="Views" ref={list}>
			{["", "Live", "Durable"].map((group) => (
				<Fragment key={group}>
					{group && <h2>{group}</h2>}
					<ul>
						{VIEWS.filter((view) => view.group === group).map((view) => (
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

function TokenForm(props: { error: string }): JSX.Element {
	const hub = useHub();
	const input = useRef<HTMLInputElement>(null);
	useEffect(() => input.current?.focus(), []);
	return (
		<main id="main" class="token">
			<form onSubmit={submits(() => hub.join(input.current?.value))}>
				<h1>This hub asks for a token</h1>
				<label>
					Token
					<input ref={input} type="password" autocomplete="off" required minLength={8} aria-describedby="token-note" />
				</label>
				<Failure of={props.error} />
				<p id="token-note" class="dim">
					This tab keeps it until it closes. A token with inspect looks, one with admin acts.
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
	const label = `Colours: ${theme}; change to ${next}`;
	return (
		<button type="button" class="plain" onClick={() => setTheme(next)} aria-label={label}>
			{{ system: "◐", light: "☀", dark: "☾" }[theme]}
		</button>
	);
}

function useKeys(): void {
	const { view } = useRoute();
	useEffect(() => {
		const pressed = (event: KeyboardEvent): void => {
			const isText = (event.target as Element).closest("input, textarea, select, dialog");
			const key = isText || event.ctrlKey || event.metaKey || event.altKey ? "" : event.key;
			if (key === "[" || key === "]") {
				select(viewAfter(view, key === "]" ? 1 : -1).id);
			} else if (key === "/") {
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
