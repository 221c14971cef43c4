/** Builds the console into the Python package, and refuses a page that has grown too large. */
import { copyFileSync, mkdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const TARGET = fileURLToPath(new URL("../../../python/tidewire/console/", import.meta.url));
const BYTES_MAX = 150_000;

rmSync(TARGET, { recursive: true, force: true });
mkdirSync(TARGET, { recursive: true });
const { metafile } = await build({
	entryPoints: { console: `${HERE}src/main.tsx`, style: `${HERE}page/style.css` },
	outdir: TARGET,
	bundle: true,
	splitting: true,
	minify: true,
	format: "esm",
	platform: "browser",
	target: "es2022",
	jsx: "automatic",
	jsxImportSource: "preact",
	tsconfigRaw: "{}",
	metafile: true,
	logLevel: "warning",
});
const pages = ["index.html", "icon.svg"];
for (const name of pages) {
	copyFileSync(`${HERE}page/${name}`, `${TARGET}${name}`);
}
const names = [...Object.keys(metafile.outputs).map((path) => path.split("/").pop()), ...pages];
const sizes = names.map((name) => [gzipSync(readFileSync(TARGET + name), { level: 9 }).length, name]);
const total = sizes.reduce((sum, [bytes]) => sum + bytes, 0);
console.log(`console: ${names.length} files, ${total} bytes compressed (at most ${BYTES_MAX})`);
if (total > BYTES_MAX || !statSync(`${TARGET}console.js`).isFile()) {
	console.error(sizes.map(([bytes, name]) => `${bytes}\t${name}`).join("\n"));
	process.exit(1);
}
