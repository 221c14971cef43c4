/** A map of the airports, and the flights that move over it. */

const RADIANS = Math.PI / 180;
/** Albers' conic projection, with the parallels that maps of the United States use. */
const [SOUTH, NORTH, MIDDLE, MERIDIAN] = [29.5, 45.5, 37.5, -96].map((degrees) => degrees * RADIANS);
const CONE = (Math.sin(SOUTH) + Math.sin(NORTH)) / 2;
const BASE = Math.cos(SOUTH) ** 2 + 2 * CONE * Math.sin(SOUTH);
const ORIGIN = Math.sqrt(BASE - 2 * CONE * Math.sin(MIDDLE)) / CONE;
/** What lies far outside is drawn at the edge that one flies over. */
const EDGE = { ANC: [51.5, -109], HNL: [27.5, -123] };
const BOUNDS = { lat: [16.5, 51], lon: [-128, -64] };
const TAIL = 0.16;
const STEPS = 14;
const LANDED_MS = 700;

function project(lat, lon) {
	const radius = Math.sqrt(BASE - 2 * CONE * Math.sin(lat * RADIANS)) / CONE;
	const angle = CONE * (lon * RADIANS - MERIDIAN);
	return [radius * Math.sin(angle), radius * Math.cos(angle) - ORIGIN];
}

export class FlightMap {
	/** Flights that are in the air. */
	flying = [];
	#airports = [];
	#places = new Map();
	#landed = [];
	#base = document.createElement("canvas");
	#colours = {};
	#size = [0, 0];

	constructor(canvas) {
		this.canvas = canvas;
		this.pen = canvas.getContext("2d");
		new ResizeObserver(() => this.#fit()).observe(canvas);
		matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#fit());
	}

	/** Takes the airports: `code`, `lat` and `lon` of each. */
	show(airports) {
		const inside = ({ lat, lon }) =>
			lat > BOUNDS.lat[0] && lat < BOUNDS.lat[1] && lon > BOUNDS.lon[0] && lon < BOUNDS.lon[1];
		this.#airports = airports
			.map(({ code, lat, lon }) => ({ code, at: project(...(EDGE[code] ?? [lat, lon])), lat, lon }))
			.filter((one) => EDGE[one.code] || inside(one));
		this.#fit();
	}

	/** Lets a flight leave at a minute, for so many minutes. */
	depart(minute, minutes, origin, dest, delay) {
		const [begin, end] = [this.#places.get(origin), this.#places.get(dest)];
		if (begin && end) {
			const tone = delay >= 60 ? "late" : delay >= 15 ? "warn" : "calm";
			this.flying.push({ minute, minutes, origin, dest, tone });
		}
	}

	clear() {
		this.flying = [];
		this.#landed = [];
	}

	/** Draws everything as it is at a minute. */
	draw(minute) {
		const { pen } = this;
		const [width, height] = this.#size;
		pen.clearRect(0, 0, width, height);
		pen.drawImage(this.#base, 0, 0, width, height);
		const now = performance.now();
		this.flying = this.flying.filter((flight) => {
			const part = (minute - flight.minute) / flight.minutes;
			if (part < 1) {
				this.#flight(flight, Math.max(0, part));
				return true;
			}
			this.#landed.push({ dest: flight.dest, tone: flight.tone, at: now });
			return false;
		});
		this.#landed = this.#landed.filter(({ dest, tone, at }) => {
			const part = (now - at) / LANDED_MS;
			if (part < 1) {
				const [x, y] = this.#places.get(dest);
				pen.globalAlpha = (1 - part) * 0.7;
				pen.strokeStyle = this.#colours[tone];
				pen.lineWidth = 1.2;
				pen.beginPath();
				pen.arc(x, y, 2 + part * 9, 0, 7);
				pen.stroke();
			}
			return part < 1;
		});
		pen.globalAlpha = 1;
	}

	/** The head of a flight and what it draws behind it, on a bow between its two places. */
	#flight({ origin, dest, tone }, part) {
		const { pen } = this;
		const [[x0, y0], [x2, y2]] = [this.#places.get(origin), this.#places.get(dest)];
		const lift = 0.16 * Math.hypot(x2 - x0, y2 - y0);
		const [x1, y1] = [(x0 + x2) / 2, (y0 + y2) / 2 - lift];
		const at = (t) => {
			const [a, b, c] = [(1 - t) ** 2, 2 * t * (1 - t), t ** 2];
			return [a * x0 + b * x1 + c * x2, a * y0 + b * y1 + c * y2];
		};
		pen.strokeStyle = pen.fillStyle = this.#colours[tone];
		pen.lineCap = "round";
		let from = at(Math.max(0, part - TAIL));
		for (let step = 1; step <= STEPS; step++) {
			const to = at(Math.max(0, part - TAIL * (1 - step / STEPS)));
			pen.globalAlpha = 0.75 * (step / STEPS) ** 2;
			pen.lineWidth = 0.6 + 1.4 * (step / STEPS);
			pen.beginPath();
			pen.moveTo(...from);
			pen.lineTo(...to);
			pen.stroke();
			from = to;
		}
		pen.globalAlpha = 1;
		pen.beginPath();
		pen.arc(...from, 2.1, 0, 7);
		pen.fill();
	}

	/** Lays everything out for the size and the colours that there are now, and draws what stands still. */
	#fit() {
		const style = getComputedStyle(document.documentElement);
		for (const name of ["calm", "warn", "late", "land", "ink", "soft", "glow"]) {
			this.#colours[name] = style.getPropertyValue(`--${name}`).trim();
		}
		const { clientWidth: width, clientHeight: height } = this.canvas;
		const scale = devicePixelRatio || 1;
		this.#size = [width, height];
		for (const canvas of [this.canvas, this.#base]) {
			canvas.width = Math.max(1, width * scale);
			canvas.height = Math.max(1, height * scale);
			canvas.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
		}
		if (this.#airports.length > 0) {
			this.#lay(width, height);
			this.#drawBase(width, height);
		}
	}

	#lay(width, height) {
		const [xs, ys] = [0, 1].map((axis) => this.#airports.map(({ at }) => at[axis]));
		const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
		const margin = Math.min(40, width / 20);
		const factor = Math.min((width - 2 * margin) / (right - left), (height - margin) / (bottom - top));
		const [x0, y0] = [(width - factor * (right - left)) / 2, (height - factor * (bottom - top)) / 2];
		for (const { code, at } of this.#airports) {
			this.#places.set(code, [x0 + (at[0] - left) * factor, y0 + (at[1] - top) * factor]);
		}
	}

	#drawBase(width, height) {
		const pen = this.#base.getContext("2d");
		pen.clearRect(0, 0, width, height);
		pen.fillStyle = this.#colours.land;
		for (const { code } of this.#airports) {
			const [x, y] = this.#places.get(code);
			pen.beginPath();
			pen.arc(x, y, 1, 0, 7);
			pen.fill();
		}
		const [x, y] = this.#places.get("LGA");
		const glow = pen.createRadialGradient(x, y, 0, x, y, 46);
		glow.addColorStop(0, this.#colours.glow);
		glow.addColorStop(1, "transparent");
		pen.fillStyle = glow;
		pen.fillRect(x - 46, y - 46, 92, 92);
		pen.fillStyle = this.#colours.soft;
		pen.font = "12px system-ui, sans-serif";
		for (const [code, name] of [["ANC", "Anchorage"], ["HNL", "Honolulu"]]) {
			const [edge, level] = this.#places.get(code);
			pen.fillText(name, edge + 8, level + 4);
		}
	}
}
