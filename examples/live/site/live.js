/** The page: a node that calls `live`, serves `person`, and draws what comes. */
import { connect, context, LocalDate } from "./tidewire.js";
import { FlightMap } from "./map.js";

/** As many as the tallest list has room for. */
const ALERTS_SHOWN = 30;
const byId = (id) => document.getElementById(id);
const map = new FlightMap(byId("map"));
const whole = new Intl.NumberFormat("en");
/** What is known of the run: the minute that was told last, the one that is drawn, and when that was. */
const run = { object: undefined, first: undefined, told: 0, drawn: 0, at: 0, rate: 0 };
let carriers = {};

function state(name, text) {
	document.body.dataset.state = name;
	byId("status").textContent = text;
	byId("go").disabled = name === "joining" || name === "lost" || name === "ending";
	byId("go").textContent = name === "flying" || name === "ending" ? "Stop" : "Fly";
}

function show(id, number) {
	byId(id).textContent = whole.format(number);
}

/** Hours in a second: 0.25 to 256, by halves and doubles. */
const rate = () => 2 ** Number(byId("rate").value);

function made(name, text, ...parts) {
	const element = document.createElement(name);
	element.textContent = text;
	element.append(...parts);
	return element;
}

/** Called by Python ten times a second; when it returns, the next flights leave. */
function progress({ minute, rate, departed, flights, late, carriers: means }) {
	Object.assign(run, { told: minute, rate });
	if (run.drawn === 0) {
		run.drawn = minute;
	}
	for (const [at, minutes, , origin, dest, delay] of departed) {
		if (delay !== null) {
			map.depart(at, minutes, origin, dest, delay);
		}
	}
	show("n-all", flights.all ?? 0);
	show("n-cancelled", flights.cancelled ?? 0);
	show("n-late", late);
	showCarriers(means);
}

function showCarriers(means) {
	// All carriers have a row from the start, so that nothing below or above moves.
	const rows = Object.keys(carriers)
		.map((code) => ({ code, mean: means[code] ? means[code][1] / means[code][0] : -Infinity }))
		.sort((one, other) => other.mean - one.mean);
	const most = Math.max(30, ...rows.map(({ mean }) => mean));
	byId("carriers").replaceChildren(
		...rows.map(({ code, mean }) => {
			const bar = made("div", "");
			bar.style.setProperty("--share", Math.max(0, mean / most));
			bar.style.setProperty("--tone", `var(--${mean >= 60 ? "late" : mean >= 15 ? "warn" : "calm"})`);
			return made("li", "", made("span", carriers[code]), bar, made("b", mean === -Infinity ? "–" : mean.toFixed(1)));
		}),
	);
}

/** Reads the alerts of a run until it is over. */
async function listen(alerts) {
	let count = 0;
	for await (const { origin, carrier, minutes } of alerts) {
		byId("alerts").dataset.count = ++count;
		const row = made("li", "", made("b", `${minutes} min`), made("span", carriers[carrier] ?? carrier), made("i", origin));
		byId("alerts").prepend(row);
		byId("alerts").children[ALERTS_SHOWN]?.remove();
	}
}

/** Python asks the person at the page. */
function ask(question, choices) {
	const { signal } = context();
	const card = byId("question");
	byId("asked").textContent = question;
	card.hidden = false;
	return new Promise((resolve, reject) => {
		const end = (settle, value) => {
			card.hidden = true;
			settle(value);
		};
		signal.addEventListener("abort", () => end(reject, signal.reason));
		const buttons = choices.map((choice) => {
			const button = made("button", choice);
			button.addEventListener("click", () => end(resolve, choice));
			return button;
		});
		byId("choices").replaceChildren(...buttons);
		buttons[0].focus();
	});
}

async function fly(live, person) {
	const first = byId("day").valueAsDate;
	const day = LocalDate.of(first.getUTCFullYear(), first.getUTCMonth() + 1, first.getUTCDate());
	map.clear();
	byId("alerts").replaceChildren();
	byId("verdict").textContent = "";
	byId("alerts").dataset.count = 0;
	showCarriers({});
	state("flying", "Under way");
	try {
		const object = await live.begin(day, Number(byId("days").value), rate());
		Object.assign(run, { object, first, told: 0, drawn: 0 });
		const [outcome] = await Promise.all([object.fly(person, progress), listen(object.alerts())]);
		done(outcome);
		object.dispose();
		state("done", "Landed");
	} catch (error) {
		// With the link the run is gone, and the status says that already.
		if (document.body.dataset.state !== "lost") {
			state("ready", error.message);
		}
	} finally {
		run.object = undefined;
	}
}

function done({ flights, late, totals, differences, messages }) {
	show("n-all", flights.all ?? 0);
	show("n-cancelled", flights.cancelled ?? 0);
	show("n-late", late);
	const verdict = byId("verdict");
	verdict.className = differences.length > 0 ? "wrong" : "right";
	verdict.textContent =
		differences.length > 0
			? `${differences.length} totals differ from those of a plain loop: ${differences[0]}`
			: `All ${whole.format(totals)} totals equal those of a plain loop over the same files. The actors took ${whole.format(messages)} messages.`;
}

function frame(now) {
	// What was told last is where the drawing may go, at the rate of the run.
	run.drawn = Math.min(run.told, run.drawn + ((now - run.at) / 1000) * run.rate * 60);
	run.at = now;
	if (run.object === undefined && map.flying.length > 0) {
		// Nothing leaves any more; what is in the air lands.
		run.told += run.rate;
	}
	map.draw(run.drawn);
	show("n-air", map.flying.length);
	if (run.first !== undefined && run.drawn > 0) {
		const at = new Date(run.first.getTime() + run.drawn * 60_000);
		byId("hour").textContent = at.toISOString().slice(11, 16);
		byId("date").textContent = at.toLocaleDateString("en", { timeZone: "UTC", weekday: "long", day: "numeric", month: "long", year: "numeric" });
	}
	requestAnimationFrame(frame);
}

async function main() {
	const { url } = await (await fetch("hub.json")).json();
	const node = await connect(url, { token: location.hash.slice(1), joinTimeout: 10_000 });
	const live = node.client("live");
	const person = await node.serve("person", { ask }, { description: "The person at the page." });
	const chart = await live.chart();
	const short = (name) => name.replace(/ (Inc|Co|Corporation)\.?$/, "");
	carriers = Object.fromEntries(Object.entries(chart.carriers).map(([code, name]) => [code, short(name)]));
	showCarriers({});
	map.show(chart.airports);
	node.on("lost", () => state("lost", "The link is lost. Looking for the hub: is its program running?"));
	node.on("joined", () => state("ready", "The hub is back"));
	byId("controls").addEventListener("submit", (event) => {
		event.preventDefault();
		if (run.object === undefined) {
			fly(live, person.instance);
		} else {
			state("ending", "No more flights leave");
			// A call is made when it is awaited.
			run.object.stop().catch((error) => state("flying", error.message));
		}
	});
	byId("rate").addEventListener("input", () => {
		byId("rate-shown").textContent = rate();
		run.object?.set_rate(rate()).catch(() => {});
	});
	requestAnimationFrame(frame);
	state("ready", "Ready");
}

main().catch((error) => state("joining", error.message));
